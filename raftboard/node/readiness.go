package node

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/wire"
)

// catchUpPause is how long a node that starts waits before it asks for the leader's
// commit index again.
const catchUpPause = 50 * time.Millisecond

// readiness is whether this node can serve every call. Its methods may be called
// concurrently.
type readiness struct {
	leader  *leaderState
	members *membership.Members
	machine *fsm.Machine // set before raft runs

	stopping  atomic.Bool
	caughtUp  atomic.Bool   // this node has once applied all that a leader had committed
	catchUpTo atomic.Uint64 // the index of that; 0: not known yet
}

// catchUp finds out when this node has applied what a leader had committed. A
// node that starts does not know: raft keeps no commit index over a restart,
// and neither a heartbeat nor the first entries that arrive tell the leader's.
// So it asks a leader that serves. It ends when the node has caught up, or
// with ctx.
func (r *readiness) catchUp(ctx context.Context, peers *membership.Askers) {
	for {
		changed := r.leader.changes.wait()
		if r.caughtUp.Load() {
			return
		}
		if commit, known := r.leadersCommit(ctx, peers); known {
			r.catchUpTo.Store(commit)
			if r.machine.WaitApplied(ctx, commit) == nil {
				r.caughtUp.Store(true)
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
func (r *readiness) leadersCommit(ctx context.Context, peers *membership.Askers) (commit uint64, known bool) {
	leader := r.leader.log.Leader()
	if leader.ID == "" {
		return 0, false
	}
	stands, err := peers.Ask(ctx, leader.ID)
	return stands.Commit, err == nil && stands.Commit > 0 && stands.Term == r.leader.log.Term()
}

// committed makes this node catch up with what the leader had committed before a call.
type committed struct {
	ready  *readiness
	reads  *readRounds // while this node leads
	peers  *membership.Askers
	shared sharedRounds
}

// apply waits until this node has applied every write that the leader it knows had
// acknowledged before the call.
func (c *committed) apply(ctx context.Context) error {
	index, err := c.shared.join(ctx, c.ask)
	if err != nil {
		return err
	}
	return c.ready.machine.WaitApplied(ctx, index)
}

func (c *committed) ask() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), guard.ApplyPatience)
	defer cancel()
	if c.ready.leader.serves() {
		return c.reads.confirm(ctx)
	}
	if index, known := c.ready.leadersCommit(ctx, c.peers); known {
		return index, nil
	}
	return 0, fmt.Errorf("%w: the leader does not answer", jobs.ErrUnavailable)
}

// close ends the questions. No caller may wait then.
func (c *committed) close() {
	c.peers.Close()
	c.shared.close()
}

// check is nil when the node can serve every call: it knows a leader, and has
// applied what the leader had committed. Otherwise it says what is missing.
func (r *readiness) check() error {
	if r.stopping.Load() {
		return fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)
	}
	awaits := r.members.Awaited()
	leader, known := r.leader.known()
	switch {
	case awaits != "":
		return fmt.Errorf("%w: waits for %s: before the first election every member must answer with the same list of members", jobs.ErrUnavailable, awaits)
	case !known && len(r.members.Servers()) == 0:
		return fmt.Errorf("%w: this node joins the cluster, and no leader has called it yet", jobs.ErrUnavailable)
	case !known:
		return fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
	case leader.Name == r.leader.node && !r.leader.serves():
		return fmt.Errorf("%w: this node is about to lead", jobs.ErrUnavailable)
	case !r.caughtUp.Load():
		return fmt.Errorf("%w: this node is catching up: %d of %d entries", jobs.ErrUnavailable, r.machine.AppliedIndex(), r.catchUpTo.Load())
	}
	return nil
}

// wait waits until the node is ready, or says what is missing when ctx ends.
func (r *readiness) wait(ctx context.Context) error {
	const look = 5 * time.Millisecond // readiness has no single event; nothing but a start waits for it
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := r.check()
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

// behindPatience is how long a call waits until this node has applied what the caller
// has seen. Then the caller tries another node.
const behindPatience = 5 * time.Second

// awaitMinIndex waits until this node's state includes what the caller has seen, and
// until it has once caught up with a leader: after a restart its state is old.
func (r *readiness) awaitMinIndex(ctx context.Context, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, behindPatience)
	defer cancel()
	if !r.caughtUp.Load() {
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	text := header.Get(wire.HeaderMinIndex)
	if text == "" {
		return nil
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return &logbook.InvalidError{Field: wire.HeaderMinIndex, Reason: fmt.Sprintf("%.64q is not a log index", text)}
	}
	if err := r.machine.WaitApplied(ctx, index); err != nil {
		return fmt.Errorf("%w: this node has not applied entry %d yet: %w", jobs.ErrUnavailable, index, err)
	}
	return nil
}
