// Package memorylog is a replication.Log in the memory of one process, with one node. It appends
// and applies at once, so a test of a service runs over the real state machine without raft.
//
// Nothing is durable: the log ends with the process.
package memorylog

import (
	"fmt"
	"sync"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// notices limits the waiting changes of leadership.
const notices = 64

// Log is a log of one node. It implements replication.Log.
type Log struct {
	leader      replication.Leader
	machine     replication.Machine
	leaderships chan bool
	changes     chan struct{} // with a buffer of one

	applying sync.Mutex // held while the machine applies; taken before mu

	mu        sync.Mutex
	leads     bool        // guarded by mu
	term      uint64      // guarded by mu
	appended  uint64      // the last entry; guarded by mu
	unapplied []fsm.Entry // guarded by mu
	committed uint64      // guarded by mu
	results   map[uint64]applied
}

// applied is the outcome of an entry until Wait returns it.
type applied struct {
	results []*conductordv1.Result
	err     error
}

// New makes the log of the named node. New entries follow the entries that the machine has applied.
// The node does not lead yet.
func New(name string, machine replication.Machine) *Log {
	return &Log{
		leader: replication.Leader{ID: name, Name: name}, machine: machine, leaderships: make(chan bool, notices), changes: make(chan struct{}, 1),
		appended: machine.AppliedIndex(), committed: machine.AppliedIndex(), results: map[uint64]applied{},
	}
}

// Lead starts a leadership in a new term.
func (l *Log) Lead() { l.set(true) }

// StepDown ends the leadership.
func (l *Log) StepDown() { l.set(false) }

func (l *Log) set(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leads == l.leads {
		return
	}
	if l.leads = leads; leads {
		l.term++
	}
	l.leaderships <- leads
	select {
	case l.changes <- struct{}{}:
	default: // signalled already
	}
}

// Append implements replication.Log.
func (l *Log) Append(entry []byte) replication.Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return &pending{}
	}
	l.appended++
	l.unapplied = append(l.unapplied, fsm.Entry{Index: l.appended, Term: l.term, Data: entry})
	return &pending{l, l.appended}
}

// pending is an appended entry; the zero value is a refused entry.
type pending struct {
	log   *Log
	index uint64
}

// Wait implements replication.Pending. It applies all appended entries.
func (p *pending) Wait() (uint64, []*conductordv1.Result, error) {
	if p.log == nil {
		return 0, nil, refusal()
	}
	p.log.apply()
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	got := p.log.results[p.index]
	delete(p.log.results, p.index)
	if got.err != nil {
		return 0, nil, fmt.Errorf("%w: %w", jobs.ErrUncertain, got.err)
	}
	return p.index, got.results, nil
}

// apply applies all unapplied entries.
func (l *Log) apply() {
	l.applying.Lock()
	defer l.applying.Unlock()
	l.mu.Lock()
	entries := l.unapplied
	l.unapplied = nil
	l.mu.Unlock()
	if len(entries) == 0 {
		return
	}
	results, err := l.machine.Apply(entries)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = entries[len(entries)-1].Index
	for i := range entries {
		if err != nil {
			l.results[entries[i].Index] = applied{err: err}
		} else {
			l.results[entries[i].Index] = applied{results: results[i]}
		}
	}
}

func refusal() error { return fmt.Errorf("%w: this node does not lead", jobs.ErrUnavailable) }

// Leads implements replication.Log.
func (l *Log) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// Term implements replication.Log.
func (l *Log) Term() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Leader implements replication.Log.
func (l *Log) Leader() replication.Leader {
	if !l.Leads() {
		return replication.Leader{}
	}
	leader := l.leader
	leader.Heard = time.Now()
	return leader
}

// Committed implements replication.Log.
func (l *Log) Committed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// Confirm implements replication.Log.
func (l *Log) Confirm() (uint64, error) {
	if !l.Leads() {
		return 0, refusal()
	}
	return l.Committed(), nil
}

// Leaderships implements replication.Log.
func (l *Log) Leaderships() <-chan bool { return l.leaderships }

// LeaderChanges implements replication.Log.
func (l *Log) LeaderChanges() <-chan struct{} { return l.changes }
