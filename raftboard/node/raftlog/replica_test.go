package raftlog_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/raftlog"
)

// TestReplicaAnswersWhoAsks: results are computed only while the node waits for some. The state is
// the same in both cases.
func TestReplicaAnswersWhoAsks(t *testing.T) {
	var digests [2][32]byte
	postings := []*conductordv1.Posting{{Id: jobs.NewJobID().String(), Name: "job", Kind: "k"}, {Name: "a job without an id"}}
	data, err := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: 1, Commands: []*conductordv1.Command{
		{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: postings}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for waiting := range digests {
		machine, err := fsm.Open(fsm.Options{Path: filepath.Join(t.TempDir(), "state.db"), Generation: 1, MmapSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := machine.Close(); err != nil {
				t.Error(err)
			}
		})
		var asked atomic.Int64
		asked.Store(int64(waiting))
		answers := raftlog.NewAskedReplica(machine, &asked).ApplyBatch([]*raft.Log{{Index: 1, Term: 1, Data: data}})
		if results := answers[0].([]*conductordv1.Result); len(results) != waiting {
			t.Errorf("where %d entries are waited for, the results are %v", waiting, results)
		} else if waiting > 0 && (results[0].GetPost().Posted[0].Posted == nil || results[0].GetPost().Posted[1].Error == nil) {
			t.Errorf("a posting and a refused one were answered with %v", results[0])
		}
		if digests[waiting], err = machine.Digest(); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Error("the state depends on who reads the results")
	}
}
