package node_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
)

// TestReplicaAnswersWhoAsks: results are made while the node waits for some, and
// the state is the same if it does not.
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
		answers := node.NewAskedReplica(machine, &asked).ApplyBatch([]*raft.Log{{Index: 1, Term: 1, Data: data}})
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

// TestSumsAreNotedWithTheirEntry: a node that has applied a check, and has not summed up its
// state yet, does not say that it has no sums: the caller waits for them.
func TestSumsAreNotedWithTheirEntry(t *testing.T) {
	machine, err := fsm.Open(fsm.Options{Path: filepath.Join(t.TempDir(), "state.db"), Generation: 1, MmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	replica := node.NewCheckedReplica(machine)
	check, err := node.CheckAt(1)
	if err != nil {
		t.Fatal(err)
	}
	release := replica.Hold()
	applied := make(chan struct{})
	go func() {
		replica.ApplyBatch([]*raft.Log{check})
		close(applied)
	}()
	if err := machine.WaitApplied(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replica.TableSums(hurried, 1); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("while the sums are computed, the answer is %v", err)
	}
	release()
	if sums, err := replica.TableSums(t.Context(), 1); err != nil || len(sums) == 0 {
		t.Errorf("the sums are %v: %v", sums, err)
	}
	<-applied
	if _, err := replica.TableSums(t.Context(), 0); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("at an entry without a check, the answer is %v", err)
	}
	if err := machine.Close(); err != nil {
		t.Error(err)
	}
}
