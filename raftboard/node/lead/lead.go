// Package lead is this node's part in the leadership: it tracks the leader, performs the leader's
// work while this node leads, and checks what a node must have applied before it answers.
//
// A State tracks the leader. A Leadership is this node's time as the leader, and Tasks are the work
// of a leader: it keeps the cluster's time, ends sessions and claims, makes due jobs claimable,
// removes finished jobs, and posts the slots of schedules. Reads make answers linearizable.
// Readiness tracks whether this node has caught up.
//
// The package uses the log only through package replication, so it also runs over a log in memory.
package lead

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// leaderPatience is the number of election timeouts that a call waits for a leader before it is
// refused.
const leaderPatience = 4

// State tracks which node leads, and this node's own leadership. Its methods may be called
// concurrently.
type State struct {
	node     string // name of this node
	election time.Duration
	Hanging  func() bool // reports whether the disk of the log hangs
	log      replication.Log
	changes  *leaderChanges // of the leader, here or elsewhere

	mu       sync.Mutex
	observed *Leadership // receives the state machine's changes; guarded by mu
	served   *Leadership // set while this node answers as the leader; guarded by mu
	stopped  bool        // it no longer serves; guarded by mu
}

// NewState makes the State of the named node, which does not know a leader yet. election is the
// duration of an election.
func NewState(node string, election time.Duration, log replication.Log) *State {
	return &State{node: node, election: election, log: log, changes: newLeaderChanges()}
}

// Known returns the leader that this node knows; false: none.
func (s *State) Known() (replication.Leader, bool) {
	leader := s.log.Leader()
	return leader, leader.Name != ""
}

// HeardAgo returns the time since this node last heard from the leader; zero while this node serves
// as the leader. It is unknown if the node has heard from no leader since its start.
func (s *State) HeardAgo() (ago time.Duration, known bool) {
	if s.Serves() {
		return 0, true
	}
	heard := s.log.Leader().Heard
	return time.Since(heard), !heard.IsZero()
}

// Serving returns this node's leadership, or an error while it does not answer as the
// leader.
func (s *State) Serving() (*Leadership, error) {
	_, served := s.current()
	if served == nil || !s.log.Leads() || s.Hanging() {
		return nil, s.Refusal()
	}
	return served, nil
}

// Serves reports whether this node answers as the leader.
func (s *State) Serves() bool {
	_, err := s.Serving()
	return err == nil
}

// Refusal is the error of a call that only the leader answers.
func (s *State) Refusal() error {
	return fmt.Errorf("%w: node %q is not the leader", jobs.ErrUnavailable, s.node)
}

// Ended is the error of a call that was waiting when the leadership ended.
func (s *State) Ended() error {
	return fmt.Errorf("%w: node %q no longer leads", jobs.ErrUnavailable, s.node)
}

// Destination is the node that answers a call: this one or another.
type Destination struct {
	Here  bool
	There replication.Leader // address of the leader, if not here
}

// Find waits briefly for a leader that serves, and returns its place. It returns ErrUnavailable if
// there is no leader.
func (s *State) Find(ctx context.Context) (Destination, error) {
	var patience <-chan time.Time
	for {
		changed := s.changes.wait()
		if s.Serves() {
			return Destination{Here: true}, nil
		}
		if leader, known := s.Known(); known && leader.Name != s.node {
			return Destination{There: leader}, nil
		}
		if patience == nil { // rarely: nearly every call finds the leader at once
			patience = time.After(s.patience(ctx))
		}
		select {
		case <-changed:
		case <-patience:
			return Destination{}, fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
		case <-ctx.Done():
			return Destination{}, fmt.Errorf("%w: the cluster has no leader: %w", jobs.ErrUnavailable, ctx.Err())
		}
	}
}

// patience is the time to wait for a leader: a few elections, but short enough for a refusal before
// the caller's deadline.
func (s *State) patience(ctx context.Context) time.Duration {
	usual := leaderPatience * s.election
	if deadline, ok := ctx.Deadline(); ok {
		return min(usual, time.Until(deadline)*4/5)
	}
	return usual
}

// Linger waits for a signal or the end of the time, and then returns nil. It returns an error
// if the leadership or the call ends.
func (s *State) Linger(ctx context.Context, current *Leadership, timeout time.Duration, signal <-chan struct{}) error {
	select {
	case <-signal:
	case <-time.After(timeout):
	case <-current.Over:
		return s.Ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Changed forwards the changes of a batch of entries, and reports whether this node leads.
func (s *State) Changed(changes fsm.Changes) bool {
	current, _ := s.current()
	if current == nil {
		return false
	}
	current.changed(changes, time.Now())
	return true
}

func (s *State) current() (observed, served *Leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed, s.served
}

func (s *State) observe(l *Leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = l
}

// serve makes this node answer as the leader.
func (s *State) serve(l *Leadership) {
	s.mu.Lock()
	if !s.stopped {
		s.served = l
	}
	s.mu.Unlock()
	s.changes.notify()
}

// end stops serving first, and then frees the timers.
func (s *State) end(l *Leadership) {
	s.mu.Lock()
	if s.observed == l {
		s.observed, s.served = nil, nil
	}
	s.mu.Unlock()
	close(l.Over)
}

// Stop ends the serving of this node, and returns the leadership that it served.
func (s *State) Stop() *Leadership {
	s.mu.Lock()
	defer s.mu.Unlock()
	led := s.served
	s.served, s.stopped = nil, true
	return led
}

// Watch notifies changes of the leader. It ends with ctx.
func (s *State) Watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.log.LeaderChanges():
			s.changes.notify()
		}
	}
}

// leaderChanges lets calls wait for the next change of the leader.
type leaderChanges struct {
	mu   sync.Mutex
	next chan struct{} // closed and replaced at a change; guarded by mu
}

func newLeaderChanges() *leaderChanges { return &leaderChanges{next: make(chan struct{})} }

func (c *leaderChanges) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

func (c *leaderChanges) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.next)
	c.next = make(chan struct{})
}
