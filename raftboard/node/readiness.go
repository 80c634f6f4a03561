package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/transport"
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
		changed := n.leaderChanges.wait()
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
		if peer.Address != raft.ServerAddress(leader.Raft) {
			continue
		}
		answers := make(chan transport.Standing, 1)
		peer.Ask(func(stands transport.Standing, err error) { answers <- stands }) // zero with an error
		select {
		case stands := <-answers:
			return stands.Commit, stands.Commit > 0 && stands.Term == n.stands().Term
		case <-ctx.Done():
		}
	}
	return 0, false
}

// stands is this node's answer to other nodes' questions: only its wall clock while
// it starts. Only a leader that serves gives its commit index.
func (n *Node) stands() transport.Standing {
	now := transport.Standing{Wall: n.options.WallClock().UnixNano()}
	if !n.running.Load() {
		return now
	}
	now.Term = n.raft.CurrentTerm()
	n.mu.Lock()
	now.Crowded = n.crowded[n.options.Name]
	n.mu.Unlock()
	if n.Leading() {
		now.Commit = n.raft.CommitIndex()
	}
	return now
}
