package cluster_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/cluster"
)

// TestSumsAreNotedWithTheirEntry: a node that has applied a check, but has not computed its
// checksums yet, does not answer that it has none: the caller waits for them.
func TestSumsAreNotedWithTheirEntry(t *testing.T) {
	hold := make(chan struct{})
	machine, err := fsm.Open(fsm.Options{
		Path: filepath.Join(t.TempDir(), "state.db"), Generation: 1, MmapSize: 1 << 20,
		Changed: func(fsm.Changes) { <-hold }, // the entries are applied, and their check is not reached yet
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := cluster.NewCheckedMachine(machine)
	check, checkErr := cluster.Check()
	post, postErr := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: 1, Commands: []*conductordv1.Command{
		{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: []*conductordv1.Posting{{Id: jobs.NewJobID().String(), Name: "job", Kind: "k"}}}}},
	}})
	if err := errors.Join(checkErr, postErr); err != nil {
		t.Fatal(err)
	}
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		if _, err := checked.Apply([]fsm.Entry{{Index: 1, Term: 1, Data: post}, {Index: 2, Term: 1, Data: check}, {Index: 3, Term: 1}}); err != nil {
			t.Error(err)
		}
	}()
	if err := machine.WaitApplied(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := checked.TableSums(hurried, 2); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("while the sums are computed, the answer is %v", err)
	}
	close(hold)
	if sums, err := checked.TableSums(t.Context(), 2); err != nil || len(sums) == 0 {
		t.Errorf("the sums are %v: %v", sums, err)
	}
	<-applied
	if _, err := checked.TableSums(t.Context(), 1); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("at an entry without a check, the answer is %v", err)
	}
	if err := machine.Close(); err != nil {
		t.Error(err)
	}
}
