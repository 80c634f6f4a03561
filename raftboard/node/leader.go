package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
)

// leaderPatience is for how many election timeouts a call waits for a leader
// before it is told that there is none.
const leaderPatience = 4

// leaderChanges lets calls wait for the next change of the leader.
type leaderChanges struct {
	mu   sync.Mutex
	next chan struct{} // closed and replaced at a change; under mu
}

func newLeaderChanges() *leaderChanges { return &leaderChanges{next: make(chan struct{})} }

func (m *leaderChanges) wait() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

func (m *leaderChanges) notify() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.next)
	m.next = make(chan struct{})
}

// watchLeader passes raft's observations on. Its goroutine ends with ctx.
func (n *Node) watchLeader(ctx context.Context) {
	observations := make(chan raft.Observation, leadershipNotices)
	observer := raft.NewObserver(observations, false, func(o *raft.Observation) bool {
		_, isLeader := o.Data.(raft.LeaderObservation)
		return isLeader
	})
	n.raft.RegisterObserver(observer)
	n.routines.Go(func() {
		defer n.raft.DeregisterObserver(observer)
		for {
			select {
			case <-ctx.Done():
				return
			case <-observations:
				n.leaderChanges.notify()
			}
		}
	})
}

// place is where a call is to be answered.
type place struct {
	here  bool
	there Member
}

// findLeader waits a little for a leader that serves, and says where it is.
// ErrUnavailable if there is none.
func (n *Node) findLeader(ctx context.Context) (place, error) {
	patience := time.NewTimer(n.patience(ctx))
	defer patience.Stop()
	for {
		changed := n.leaderChanges.wait()
		if n.Leading() {
			return place{here: true}, nil
		}
		if leader, known := n.leader(); known && leader.Name != n.options.Name {
			return place{there: leader}, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return place{}, fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
		case <-ctx.Done():
			return place{}, fmt.Errorf("%w: the cluster has no leader: %w", jobs.ErrUnavailable, ctx.Err())
		}
	}
}

// patience is how long to wait for a leader: a few elections, and never so long
// that the caller would not hear any more that nothing has happened.
func (n *Node) patience(ctx context.Context) time.Duration {
	usual := leaderPatience * n.options.Raft.Election
	if deadline, ok := ctx.Deadline(); ok {
		return min(usual, time.Until(deadline)*4/5)
	}
	return usual
}

// Ready is nil when the node can serve every call: it knows a leader, and has
// applied what the leader had committed. Otherwise it says what is missing.
func (n *Node) Ready() error {
	if n.stopping.Load() {
		return fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)
	}
	n.mu.Lock()
	awaits := n.awaits
	n.mu.Unlock()
	leader, known := n.leader()
	switch {
	case awaits != "":
		return fmt.Errorf("%w: before the first election this node waits for %s: every member must answer with the same list of members", jobs.ErrUnavailable, awaits)
	case !known:
		return fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
	case leader.Name == n.options.Name && !n.Leading():
		return fmt.Errorf("%w: this node is about to lead", jobs.ErrUnavailable)
	case !n.caughtUp.Load():
		return fmt.Errorf("%w: this node is catching up: %d of %d entries", jobs.ErrUnavailable, n.machine.AppliedIndex(), n.catchUpTo.Load())
	}
	return nil
}

// WaitReady waits until the node is ready, or says what is missing when ctx ends.
func (n *Node) WaitReady(ctx context.Context) error {
	const look = 5 * time.Millisecond // readiness has no single event; nothing but a start waits for it
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := n.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the node is not ready: %w: %w", err, ctx.Err())
		}
	}
}
