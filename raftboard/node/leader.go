package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/replication"
)

// leaderPatience is how many election timeouts a call waits for a leader before it
// is refused.
const leaderPatience = 4

// leaderState is which node leads, and this node's own leadership. Its methods may be
// called concurrently.
type leaderState struct {
	node     string        // this one's name
	election time.Duration // RaftTimings.Election
	hanging  func() bool   // whether the disk of the log hangs
	log      replication.Log
	changes  *leaderChanges // of the leader, here or elsewhere

	mu       sync.Mutex
	observed *leadership // receives the state machine's changes; under mu
	served   *leadership // set while this node answers as the leader; under mu
	stopped  bool        // it serves no more; under mu
}

func newLeaderState(o Options, log replication.Log) *leaderState {
	return &leaderState{node: o.Name, election: o.Raft.Election, log: log, changes: newLeaderChanges()}
}

// known returns the member that this node knows as the leader: its name and API address.
func (s *leaderState) known() (Member, bool) {
	leader := s.log.Leader()
	return Member{Name: leader.Name, API: leader.API}, leader.Name != ""
}

// heardAgo is how long ago this node has heard the leader; zero while it serves as the leader itself.
// It is not known of a node that has heard none since it started.
func (s *leaderState) heardAgo() (ago time.Duration, known bool) {
	if s.serves() {
		return 0, true
	}
	heard := s.log.Leader().Heard
	return time.Since(heard), !heard.IsZero()
}

// serving returns this node's leadership, or an error while it does not answer as the
// leader.
func (s *leaderState) serving() (*leadership, error) {
	_, served := s.current()
	if served == nil || !s.log.Leads() || s.hanging() {
		return nil, s.refusal()
	}
	return served, nil
}

// serves reports whether this node answers as the leader.
func (s *leaderState) serves() bool {
	_, err := s.serving()
	return err == nil
}

// refusal is the error of a call that only the leader answers.
func (s *leaderState) refusal() error {
	return fmt.Errorf("%w: node %q is not the leader", jobs.ErrUnavailable, s.node)
}

// ended is the error of a call whose wait ends with the leadership.
func (s *leaderState) ended() error {
	return fmt.Errorf("%w: node %q no longer leads", jobs.ErrUnavailable, s.node)
}

// destination is the node that answers a call: this one or another.
type destination struct {
	here  bool
	there Member
}

// find waits a little for a leader that serves, and says where it is.
// ErrUnavailable if there is none.
func (s *leaderState) find(ctx context.Context) (destination, error) {
	var patience <-chan time.Time
	for {
		changed := s.changes.wait()
		if s.serves() {
			return destination{here: true}, nil
		}
		if leader, known := s.known(); known && leader.Name != s.node {
			return destination{there: leader}, nil
		}
		if patience == nil { // rarely: nearly every call finds the leader at once
			patience = time.After(s.patience(ctx))
		}
		select {
		case <-changed:
		case <-patience:
			return destination{}, fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
		case <-ctx.Done():
			return destination{}, fmt.Errorf("%w: the cluster has no leader: %w", jobs.ErrUnavailable, ctx.Err())
		}
	}
}

// patience is how long to wait for a leader: a few elections, but never so long that
// the refusal comes after the caller's deadline.
func (s *leaderState) patience(ctx context.Context) time.Duration {
	usual := leaderPatience * s.election
	if deadline, ok := ctx.Deadline(); ok {
		return min(usual, time.Until(deadline)*4/5)
	}
	return usual
}

// linger waits for a signal or the end of the time; both are no error. The end
// of the leadership or of the call is one.
func (s *leaderState) linger(ctx context.Context, current *leadership, timeout time.Duration, signal <-chan struct{}) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
	case <-current.over:
		return s.ended()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (s *leaderState) current() (observed, served *leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed, s.served
}

func (s *leaderState) observe(l *leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = l
}

// serve makes this node answer as the leader.
func (s *leaderState) serve(l *leadership) {
	s.mu.Lock()
	if !s.stopped {
		s.served = l
	}
	s.mu.Unlock()
	s.changes.notify()
}

// end stops serving first, and then frees the timers.
func (s *leaderState) end(l *leadership) {
	s.mu.Lock()
	if s.observed == l {
		s.observed, s.served = nil, nil
	}
	s.mu.Unlock()
	close(l.over)
}

// stop makes this node serve no more, and returns the leadership that it served.
func (s *leaderState) stop() *leadership {
	s.mu.Lock()
	defer s.mu.Unlock()
	led := s.served
	s.served, s.stopped = nil, true
	return led
}

// watch notifies changes of the leader. It ends with ctx.
func (s *leaderState) watch(ctx context.Context) {
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
	next chan struct{} // closed and replaced at a change; under mu
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
