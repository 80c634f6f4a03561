package node

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/jobs"
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
		changed := n.leader.changes.wait()
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
	leader, known := n.leader.known()
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
	if n.leader.raft.Load() == nil {
		return now
	}
	now.Term = n.raft.CurrentTerm()
	now.Crowded = n.disk.isCrowded()
	if n.leader.serves() {
		now.Commit = n.raft.CommitIndex()
	}
	return now
}

// Ready is nil when the node can serve every call: it knows a leader, and has
// applied what the leader had committed. Otherwise it says what is missing.
func (n *Node) Ready() error {
	if n.stopping.Load() {
		return fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)
	}
	awaits := n.members.awaited()
	leader, known := n.leader.known()
	switch {
	case awaits != "":
		return fmt.Errorf("%w: before the first election this node waits for %s: every member must answer with the same list of members", jobs.ErrUnavailable, awaits)
	case !known:
		return fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
	case leader.Name == n.options.Name && !n.leader.serves():
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
