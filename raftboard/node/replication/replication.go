// Package replication is the seam between a node and the log below it.
//
// The nouns: a Log is one totally ordered log of entries that the nodes of a group share, as one
// node sees it. One node leads and appends. A Machine is what a node applies committed entries to.
// A Pending is an entry that was appended and has no outcome yet.
//
// Guarantees of a Log: all nodes apply the same entries in the order of their indexes, each once.
// An entry whose outcome was a success is in the log for good, and in every later leader's state.
// A node that was deposed without knowing appends nothing.
//
// A Log calls its Machine from one goroutine. It replays entries to a machine that starts again,
// from the snapshot that it kept. replicationtest.Exercise holds every implementation to this.
package replication

import (
	"io"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
)

// Log is what a node needs of a log. Its methods may be called concurrently, except where a
// method says otherwise, also before the log runs: it then has no leader.
type Log interface {
	// Append appends an entry as the leader. It does not wait for the others; entries get their
	// places in the order of the calls. The caller bounds the entries in flight, never changes
	// the bytes again, and waits for each Pending once.
	Append(entry []byte) Pending

	// Leads reports whether this node leads, as far as it knows. Another node may have been
	// elected meanwhile: Confirm finds out. It is cheap, and waits for nothing.
	Leads() bool

	// Term numbers the leaderships of the group. It never falls, and no two nodes lead in one
	// term. 0: the log does not run yet.
	Term() uint64

	// Leader is what this node knows of the leader.
	Leader() Leader

	// Committed is the last index that this node knows to be committed.
	Committed() uint64

	// Confirm returns an index that includes every entry whose outcome any leader had learned
	// before the call. Its success also means that this node led during the call.
	// It assumes that this node has learned the outcome of an entry that it appended in this
	// term. ErrUnavailable: no majority confirms that this node leads. A call costs a message to
	// every node, so callers share one; it waits no longer than the log's own timeouts.
	Confirm() (uint64, error)

	// Leaderships sends true when this node begins to lead, and false when the leadership ends,
	// in order. One goroutine receives, and does nothing else: the log waits for it.
	Leaderships() <-chan bool

	// LeaderChanges holds a signal after Leader has changed. One goroutine receives.
	LeaderChanges() <-chan struct{}
}

// Leader is what a node knows of the node that leads.
type Leader struct {
	ID   string // of the node in the log; empty: there is no leader
	Name string
	API  string // host:port of its HTTP port
	// Heard is when this node last heard from a leader, also from one that is gone. It is zero
	// on a node that has heard from none since it started.
	Heard time.Time
}

// Pending is an entry that was appended.
type Pending interface {
	// Wait waits until the entry is applied on this node, and returns its index and its results.
	// ErrUnavailable: the entry is not in the log, and never will be. ErrUncertain: it may be.
	// A log that ends may leave a caller waiting.
	Wait() (index uint64, results []*conductordv1.Result, err error)
}

// Machine is the state that a node applies entries to; fsm.Machine is one.
type Machine interface {
	// Apply applies entries in order; entries before AppliedIndex change nothing. results[i] are
	// the answers to entry i; none if the entry is Unanswered. After an error nothing is applied
	// any more, and the process must end.
	Apply(entries []fsm.Entry) (results [][]*conductordv1.Result, err error)

	// Snapshot notes the present state, to be written beside further entries.
	Snapshot() (*fsm.Snapshot, error)

	// Restore replaces the state with that of a snapshot. After an error it has the state before.
	Restore(from io.Reader) error

	// AppliedIndex is the last entry in the state.
	AppliedIndex() uint64
}
