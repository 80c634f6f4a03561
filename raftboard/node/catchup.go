package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// catchUpPause is how long a node that is behind waits before it asks again
// for how far it has to go.
const catchUpPause = 50 * time.Millisecond

// catchUp finds out when this node has applied what a leader had committed. A
// node that starts does not know: raft keeps no commit index over a restart,
// and neither a heartbeat nor the first entries that arrive tell the leader's.
// So it asks a leader that serves. It ends when the node has caught up, or
// with ctx.
func (n *Node) catchUp(ctx context.Context) {
	for {
		changed := n.leadership.wait()
		if n.caughtUp.Load() {
			return
		}
		if commit, known := n.leadersCommit(ctx); known {
			n.catchUpTo.Store(commit)
			if n.machine.WaitApplied(ctx, commit) == nil {
				n.caughtUp.Store(true)
			}
			return
		}
		pause := time.NewTimer(catchUpPause)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		pause.Stop()
	}
}

// leadersCommit asks the leader what is committed. The answer counts if it
// comes from the leader of the term that this node is in, while it serves: by
// then it has committed an entry of its own, and knows what was before it.
func (n *Node) leadersCommit(ctx context.Context) (commit uint64, known bool) {
	leader, known := n.leader()
	if !known {
		return 0, false
	}
	for _, peer := range n.reads.peers {
		if peer.address != raft.ServerAddress(leader.Raft) {
			continue
		}
		answers := make(chan standing, 1)
		peer.ask(func(stands standing, err error) { answers <- stands }) // zero with an error
		select {
		case stands := <-answers:
			return stands.commit, stands.commit > 0 && stands.term == n.stands().term
		case <-ctx.Done():
		}
	}
	return 0, false
}

// stands is what this node tells others about where it stands: its wall clock
// alone while it starts. The commit index is told by a leader that serves, and
// by no other.
func (n *Node) stands() standing {
	now := standing{wall: n.options.WallClock().UnixNano()}
	if !n.running.Load() {
		return now
	}
	now.term = n.raft.CurrentTerm()
	n.mu.Lock()
	now.crowded = n.crowded[n.options.Name]
	n.mu.Unlock()
	if n.Leading() {
		now.commit = n.raft.CommitIndex()
	}
	return now
}
