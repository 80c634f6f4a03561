package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
)

// leaderPatience is how many election timeouts a call waits for a leader before it
// is refused.
const leaderPatience = 4

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

// watchLeader notifies leaderChanges of raft's observations. Its goroutine ends with ctx.
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
				n.leading.changes.notify()
			}
		}
	})
}

// destination is the node that answers a call: this one or another.
type destination struct {
	here  bool
	there Member
}

// findLeader waits a little for a leader that serves, and says where it is.
// ErrUnavailable if there is none.
func (n *Node) findLeader(ctx context.Context) (destination, error) {
	patience := time.NewTimer(n.patience(ctx))
	defer patience.Stop()
	for {
		changed := n.leading.changes.wait()
		if n.Leading() {
			return destination{here: true}, nil
		}
		if leader, known := n.leader(); known && leader.Name != n.options.Name {
			return destination{there: leader}, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return destination{}, fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
		case <-ctx.Done():
			return destination{}, fmt.Errorf("%w: the cluster has no leader: %w", jobs.ErrUnavailable, ctx.Err())
		}
	}
}

// patience is how long to wait for a leader: a few elections, but never so long that
// the refusal comes after the caller's deadline.
func (n *Node) patience(ctx context.Context) time.Duration {
	usual := leaderPatience * n.options.Raft.Election
	if deadline, ok := ctx.Deadline(); ok {
		return min(usual, time.Until(deadline)*4/5)
	}
	return usual
}
