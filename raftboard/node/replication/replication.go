// Package replication is the interface between a node and its log.
//
// The nouns: a Log is one totally ordered log of entries that the nodes of a group share, from the
// view of one node. One node leads and appends. A Machine is the state machine that applies a
// node's committed entries. A Pending is an appended entry without an outcome.
//
// Guarantees of a Log: all nodes apply the same entries in the order of their indexes, each once.
// An entry with a successful outcome is permanently in the log, and in every later leader's state.
// A deposed leader appends nothing, even if it does not know that it was deposed.
//
// A Log calls its Machine from one goroutine. It replays entries to a restarted machine, from the
// stored snapshot. replicationtest.Exercise checks this contract for every implementation.
package replication

import (
	"io"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
)

// Log is a node's interface to its log. Its methods may be called concurrently, except where a
// method states otherwise. They may also be called before the log runs: it then has no leader.
type Log interface {
	// Append appends an entry as the leader. It does not wait for the others; entries get their
	// places in the order of the calls. The caller bounds the entries in flight, never changes
	// the bytes again, and waits for each Pending once.
	Append(entry []byte) Pending

	// Leads reports whether this node leads, to its own knowledge. Another node may have been
	// elected meanwhile: Confirm checks this. Leads is cheap, and does not wait.
	Leads() bool

	// Term numbers the leaderships of the group. It never falls, and no two nodes lead in one
	// term. 0: the log does not run yet.
	Term() uint64

	// Leader returns the leader that this node knows.
	Leader() Leader

	// Committed is the last index that this node knows to be committed.
	Committed() uint64

	// Confirm returns an index that includes every entry whose outcome any leader had learned
	// before the call. Its success also means that this node led during the call. It assumes that
	// this node has learned the outcome of an entry that it appended in this term. ErrUnavailable:
	// no majority confirms that this node leads. A call costs a message to every node, so callers
	// share one. It waits at most for the log's own timeouts.
	Confirm() (uint64, error)

	// Leaderships sends true when this node starts to lead, and false when the leadership ends,
	// in order. One goroutine receives, and does nothing else: the log waits for it.
	Leaderships() <-chan bool

	// LeaderChanges has a signal after Leader has changed. One goroutine receives.
	LeaderChanges() <-chan struct{}
}

// Leader is a node's knowledge of the leader.
type Leader struct {
	ID   string // of the node in the log; empty: no leader
	Name string
	API  string // host:port of its HTTP port
	// Heard is the time of the last message from any leader, including earlier ones. It is zero if
	// the node has heard from no leader since its start.
	Heard time.Time
}

// Pending is an appended entry.
type Pending interface {
	// Wait waits until the entry is applied on this node, and returns its index and its results.
	// ErrUnavailable: the entry is not in the log, and never will be. ErrUncertain: it may be.
	// A log that ends may leave a caller waiting.
	Wait() (index uint64, results []*conductordv1.Result, err error)
}

// Machine is the state that a node applies entries to; fsm.Machine is one.
type Machine interface {
	// Apply applies entries in order; entries up to AppliedIndex change nothing. results[i] are the
	// answers to entry i; none if the entry is Unanswered. After an error, nothing more is applied,
	// and the process must end.
	Apply(entries []fsm.Entry) (results [][]*conductordv1.Result, err error)

	// Snapshot captures the current state. It is written while further entries are applied.
	Snapshot() (*fsm.Snapshot, error)

	// Restore replaces the state with the state of a snapshot. After an error, the machine keeps
	// its earlier state.
	Restore(from io.Reader) error

	// AppliedIndex is the last entry in the state.
	AppliedIndex() uint64
}
