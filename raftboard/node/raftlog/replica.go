package raftlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// replica is the state machine as raft sees it. It implements raft.BatchingFSM.
type replica struct {
	machine replication.Machine
	asked   *atomic.Int64 // entries whose results this node waits for
	growth  *growth
	applied *appliedGuard       // notified of snapshots
	held    prometheus.Observer // called with the time for which a snapshot delayed applying; nil: not called
	fatal   func(error)
	// reconfigured is called after an entry with another list of members.
	reconfigured func()
	started      bool // raft runs: a snapshot that cannot be restored came from a leader, and is discarded

	unrestored error // reason why the last snapshot was not restored
}

// ApplyBatch applies committed entries in one transaction. The answer to an entry is its
// []*conductordv1.Result, or an error. After an error, nothing more is applied. ApplyBatch makes
// results only while this node waits for the results of any entry: a follower waits for none.
func (r *replica) ApplyBatch(logs []*raft.Log) []any {
	unanswered := r.asked.Load() == 0
	entries := make([]fsm.Entry, len(logs))
	for i, log := range logs {
		entries[i] = fsm.Entry{Index: log.Index, Term: log.Term, Data: dataOf(log), Unanswered: unanswered}
	}
	results, err := r.machine.Apply(entries)
	if err != nil {
		err = fmt.Errorf("cannot apply entries %d to %d: %w", logs[0].Index, logs[len(logs)-1].Index, err)
		r.fatal(err)
	}
	r.growth.applied(logs)
	if slices.ContainsFunc(logs, func(log *raft.Log) bool { return log.Type == raft.LogConfiguration }) && r.reconfigured != nil {
		r.reconfigured()
	}
	answers := make([]any, len(logs))
	for i := range answers {
		if err != nil {
			answers[i] = err
			continue
		}
		answers[i] = results[i]
	}
	return answers
}

// dataOf returns the data of an entry for the state machine; nil: the entry is raft's own.
func dataOf(log *raft.Log) []byte {
	if log.Type != raft.LogCommand {
		return nil
	}
	return log.Data
}

// Apply applies one entry.
func (r *replica) Apply(log *raft.Log) any { return r.ApplyBatch([]*raft.Log{log})[0] }

// Snapshot captures the current state. The snapshot is written while further entries are applied.
func (r *replica) Snapshot() (raft.FSMSnapshot, error) {
	began := time.Now()
	snapshot, err := r.machine.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("cannot begin a snapshot: %w", err)
	}
	if r.held != nil {
		r.held.Observe(time.Since(began).Seconds())
	}
	r.applied.noted.Store(snapshot.Index)
	return &replicaSnapshot{snapshot: snapshot, growth: r.growth, applied: r.applied, passed: r.growth.passed()}, nil
}

// Restore replaces the state by the state of a snapshot.
func (r *replica) Restore(from io.ReadCloser) error {
	measured := &sized{ReadCloser: from}
	if err := r.machine.Restore(measured); err != nil {
		r.unrestored = errors.Join(fmt.Errorf("cannot restore a snapshot: %w", err), from.Close())
		if r.started {
			r.unrestored = errors.Join(r.unrestored, discardSnapshot(from))
		}
		return r.unrestored
	}
	r.applied.restored.Store(r.machine.AppliedIndex())
	r.growth.restored(r.machine.AppliedIndex(), measured.read)
	return from.Close()
}

type replicaSnapshot struct {
	snapshot *fsm.Snapshot
	growth   *growth
	applied  *appliedGuard
	passed   int64 // log bytes when the state was captured
}

// Persist writes the snapshot to raft's sink. Only afterwards does it replace the log before it.
func (s *replicaSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := s.snapshot.WriteTo(sink); err != nil {
		return errors.Join(fmt.Errorf("cannot write a snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("cannot keep a snapshot: %w", err)
	}
	s.growth.keep(s.snapshot.Index, s.snapshot.Size(), s.passed)
	return nil
}

// Release releases the captured state.
func (s *replicaSnapshot) Release() {
	s.applied.noted.Store(math.MaxUint64)
	_ = s.snapshot.Close()
}
