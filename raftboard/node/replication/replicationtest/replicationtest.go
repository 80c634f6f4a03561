// Package replicationtest checks that a log keeps the promises of replication.Log. Every
// implementation runs Exercise.
//
// The rows use the real state machine. Nothing depends on the speed of a log: a row waits minutes
// for an expected event.
package replicationtest

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// Node is one node of a log under test.
type Node struct {
	Log replication.Log
	// Lead makes the node lead, and StepDown ends its leadership. They return when the change is
	// complete.
	Lead, StepDown func()
	// Snapshot makes the log replace its entries by a snapshot; nil: the log has no snapshots.
	Snapshot func() error
	// Reopen ends the node and starts it again with an empty machine; nil: the log is not durable.
	Reopen func(machine replication.Machine) Node
}

// patience limits the wait of a row for an expected event.
const patience = 2 * time.Minute

// Exercise runs all rows, each with its own log. When the test ends, the log has ended too.
func Exercise(t *testing.T, open func(t *testing.T, machine replication.Machine) Node) {
	for name, row := range map[string]func(t *testing.T, n Node, m *machine){
		"entries have places, results and the order of their calls": appends,
		"a node that does not lead appends nothing":                 refuses,
		"leaderships are announced in order":                        leaderships,
		"a confirmed index includes what was answered":              confirms,
		"the end of a leadership leaves no false answer":            deposed,
		"a machine that fails leaves the outcome uncertain":         fails,
		"a node that starts again has the same state":               reopens,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			row(t, open(t, m), m)
		})
	}
}

// machine is the real state machine. It checks how the log calls it.
type machine struct {
	*fsm.Machine
	t       *testing.T
	calls   atomic.Int32 // calls in progress: never two
	applied uint64       // the last index; used by the calling goroutine
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	opened, err := fsm.Open(fsm.Options{Path: filepath.Join(t.TempDir(), "state.db"), Generation: 1, MmapSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return &machine{Machine: opened, t: t}
}

// alone checks that no other call is in progress.
func (m *machine) alone() (done func()) {
	if m.calls.Add(1) > 1 {
		m.t.Error("the log calls its machine twice at a time")
	}
	return func() { m.calls.Add(-1) }
}

// Apply checks the order of the entries.
func (m *machine) Apply(entries []fsm.Entry) ([][]*conductordv1.Result, error) {
	defer m.alone()()
	for _, entry := range entries {
		if entry.Index <= m.applied {
			m.t.Errorf("entry %d is applied after entry %d", entry.Index, m.applied)
		}
		m.applied = entry.Index
	}
	return m.Machine.Apply(entries)
}

// Restore records the next expected entry.
func (m *machine) Restore(from io.Reader) error {
	defer m.alone()()
	err := m.Machine.Restore(from)
	m.applied = m.AppliedIndex()
	return err
}

// has reports whether a job was posted.
func (m *machine) has(id jobs.JobID) bool {
	_, err := m.Job(id)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		m.t.Error(err)
	}
	return err == nil
}

// posting is an entry that posts a job.
func posting(t *testing.T) (id jobs.JobID, entry []byte) {
	t.Helper()
	id = jobs.NewJobID()
	entry, err := command.EncodeEntry(&conductordv1.Entry{TimeUnixNano: 1, Commands: []*conductordv1.Command{
		{Kind: &conductordv1.Command_Post{Post: &conductordv1.PostCommand{Postings: []*conductordv1.Posting{{Id: id.String(), Name: "job", Kind: "k"}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return id, entry
}

// posted appends an entry that posts a job, and repeats this in later leaderships until it
// succeeds.
func posted(t *testing.T, n Node) (id jobs.JobID, index uint64) {
	t.Helper()
	id, entry := posting(t)
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		n.Lead()
		var results []*conductordv1.Result
		if index, results, err = n.Log.Append(entry).Wait(); err == nil {
			if len(results) != 1 || results[0].GetPost().GetPosted()[0].GetPosted().GetId() != id.String() {
				t.Errorf("the results of entry %d are %v", index, results)
			}
			return id, index
		}
	}
	t.Fatalf("no entry is appended: %v", err)
	return id, 0
}

func appends(t *testing.T, n Node, m *machine) {
	const entries = 64
	_, last := posted(t, n)
	var waiting sync.WaitGroup
	indexes := make([]uint64, entries)
	for i := range entries {
		id, entry := posting(t)
		pending := n.Log.Append(entry)
		waiting.Go(func() {
			index, _, err := pending.Wait()
			if err != nil {
				return // the leadership has ended: see deposed
			}
			if indexes[i] = index; m.AppliedIndex() < index || !m.has(id) {
				t.Errorf("entry %d has its outcome before it is applied", index)
			}
		})
	}
	waiting.Wait()
	for _, index := range indexes {
		if index > 0 && index <= last {
			t.Errorf("entry %d was appended after entry %d", index, last)
		}
		last = max(last, index)
	}
}

func refuses(t *testing.T, n Node, m *machine) {
	check := func(when string) {
		t.Helper()
		n.StepDown()
		id, entry := posting(t)
		if _, _, err := n.Log.Append(entry).Wait(); !errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, jobs.ErrUncertain) {
			t.Errorf("%s, an entry is refused with %v", when, err)
		}
		if _, err := n.Log.Confirm(); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("%s, an index is confirmed: %v", when, err)
		}
		if n.Log.Leads() {
			t.Errorf("%s, the node leads", when)
		}
		posted(t, n)
		if m.has(id) {
			t.Errorf("an entry that was refused %s is applied", when)
		}
	}
	check("at first")
	check("after a leadership")
}

func leaderships(t *testing.T, n Node, _ *machine) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	next := func() bool {
		select {
		case leads := <-n.Log.Leaderships():
			return leads
		case <-timer.C:
			t.Fatal("a leadership is not announced")
			return false
		}
	}
	term := n.Log.Term()
	for range 3 {
		n.Lead()
		for !next() {
			t.Error("the end of a leadership is announced without its begin")
		}
		leader := n.Log.Leader()
		if n.Log.Leads() && (leader.ID == "" || leader.Name == "") {
			t.Errorf("the leader of its own log is %+v", leader)
		}
		if now := n.Log.Term(); now <= term {
			t.Errorf("a leadership in term %d follows term %d", now, term)
		} else {
			term = now
		}
		select {
		case <-n.Log.LeaderChanges():
		case <-timer.C:
			t.Fatal("a new leader is not announced")
		}
		if n.StepDown(); next() {
			t.Error("a leadership is announced before the end of another")
		}
	}
}

func confirms(t *testing.T, n Node, _ *machine) {
	for range 3 {
		_, index := posted(t, n)
		confirmed, err := n.Log.Confirm()
		if errors.Is(err, jobs.ErrUnavailable) {
			continue // another node was elected
		}
		if err != nil || confirmed < index || n.Log.Committed() < index {
			t.Errorf("after entry %d, entry %d is confirmed and entry %d committed: %v", index, confirmed, n.Log.Committed(), err)
		}
	}
}

func deposed(t *testing.T, n Node, m *machine) {
	const entries = 200
	posted(t, n)
	var waiting sync.WaitGroup
	outcomes := make([]error, entries)
	ids := make([]jobs.JobID, entries)
	for i := range entries {
		var entry []byte
		ids[i], entry = posting(t)
		waiting.Go(func() { _, _, outcomes[i] = n.Log.Append(entry).Wait() })
	}
	n.StepDown()
	waiting.Wait()
	posted(t, n) // the state has all entries of the previous leaderships
	for i, err := range outcomes {
		switch has := m.has(ids[i]); {
		case err == nil && !has:
			t.Error("an entry with an outcome is lost")
		case errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain) && has:
			t.Errorf("an entry is applied that did not happen: %v", err)
		case err != nil && !errors.Is(err, jobs.ErrUnavailable) && !errors.Is(err, jobs.ErrUncertain):
			t.Errorf("an entry has the outcome %v", err)
		}
	}
}

func fails(t *testing.T, n Node, _ *machine) {
	posted(t, n)
	if _, _, err := n.Log.Append([]byte("no entry")).Wait(); !errors.Is(err, jobs.ErrUncertain) {
		t.Errorf("an entry that the machine cannot apply has the outcome %v", err)
	}
}

func reopens(t *testing.T, n Node, m *machine) {
	if n.Reopen == nil {
		t.Skip("the log is not durable")
	}
	for round := range 3 {
		for range 20 {
			posted(t, n)
		}
		if round > 0 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
			posted(t, n)
		}
		_, index := posted(t, n)
		n.StepDown() // the node no longer gets its own entries
		before, err := m.Digest()
		if err != nil {
			t.Fatal(err)
		}
		m = newMachine(t)
		n = n.Reopen(m)
		n.Lead()
		if err := m.WaitApplied(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		if after, err := m.Digest(); err != nil || after != before {
			t.Error(fmt.Errorf("round %d: the state differs after a start: %w", round, err))
		}
	}
}
