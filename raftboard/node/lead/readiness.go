package lead

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
	"github.com/conductord/conductord/raftboard/wire"
)

// catchUpPause is the time between two requests of a starting node for the leader's commit index.
const catchUpPause = 50 * time.Millisecond

// AskCommit asks another node for its term, and for its commit index if it serves as the leader.
type AskCommit func(ctx context.Context, node string) (term, commit uint64, err error)

// Readiness tracks whether this node can serve every call. Its methods may be called
// concurrently.
type Readiness struct {
	Leader  *State
	Awaited func() string // the members whose agreement is missing for the first election; empty: none
	Listed  func() bool   // reports whether this node knows any member
	Machine *fsm.Machine  // set before the log runs

	Stopping  atomic.Bool
	CaughtUp  atomic.Bool   // this node has once applied all entries that a leader had committed
	catchUpTo atomic.Uint64 // the index of these entries; 0: unknown yet
}

// CatchUp determines when this node has applied all entries that a leader had committed. A starting
// node does not know this: raft does not store the commit index, and neither a heartbeat nor the
// first received entries contain the leader's index. So CatchUp asks a leader that serves. It ends
// when the node has caught up, or with ctx.
func (r *Readiness) CatchUp(ctx context.Context, ask AskCommit) {
	for {
		changed := r.Leader.changes.wait()
		if r.CaughtUp.Load() {
			return
		}
		if commit, known := r.leadersCommit(ctx, ask); known {
			r.catchUpTo.Store(commit)
			if r.Machine.WaitApplied(ctx, commit) == nil {
				r.CaughtUp.Store(true)
			}
			return
		}
		select {
		case <-changed:
		case <-time.After(catchUpPause):
		case <-ctx.Done():
			return
		}
	}
}

// leadersCommit asks the leader for its commit index. The answer is valid only if it comes from a
// serving leader of this node's current term: such a leader has committed an entry of its term, so
// its commit index includes all earlier terms.
func (r *Readiness) leadersCommit(ctx context.Context, ask AskCommit) (commit uint64, known bool) {
	leader := r.Leader.log.Leader()
	if leader.ID == "" {
		return 0, false
	}
	term, commit, err := ask(ctx, leader.ID)
	return commit, err == nil && commit > 0 && term == r.Leader.log.Term()
}

// Committed waits until this node has applied all entries that the leader had committed before a
// call.
type Committed struct {
	Ready  *Readiness
	Reads  *Reads // while this node leads
	Peers  AskCommit
	shared sharedRounds
}

// Apply waits until this node has applied every write that the leader it knows had
// acknowledged before the call.
func (c *Committed) Apply(ctx context.Context) error {
	index, err := c.shared.join(ctx, c.ask)
	if err != nil {
		return err
	}
	return c.Ready.Machine.WaitApplied(ctx, index)
}

func (c *Committed) ask() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), guard.ApplyPatience)
	defer cancel()
	if c.Ready.Leader.Serves() {
		return c.Reads.Confirm(ctx)
	}
	if index, known := c.Ready.leadersCommit(ctx, c.Peers); known {
		return index, nil
	}
	return 0, fmt.Errorf("%w: the leader does not answer", jobs.ErrUnavailable)
}

// Close waits for the question in progress. No caller may wait then.
func (c *Committed) Close() { c.shared.close() }

// Check returns nil when the node can serve every call: it knows a leader, and has applied all
// entries that the leader had committed. Otherwise, the error names what is missing.
func (r *Readiness) Check() error {
	if r.Stopping.Load() {
		return fmt.Errorf("%w: the node is stopping", jobs.ErrUnavailable)
	}
	awaits := r.Awaited()
	leader, known := r.Leader.Known()
	switch {
	case awaits != "":
		return fmt.Errorf("%w: waits for %s: before the first election, every member must answer with the same list of members", jobs.ErrUnavailable, awaits)
	case !known && !r.Listed():
		return fmt.Errorf("%w: this node joins the cluster, and no leader has contacted it yet", jobs.ErrUnavailable)
	case !known:
		return fmt.Errorf("%w: the cluster has no leader", jobs.ErrUnavailable)
	case leader.Name == r.Leader.node && !r.Leader.Serves():
		return fmt.Errorf("%w: this node is about to lead", jobs.ErrUnavailable)
	case !r.CaughtUp.Load():
		return fmt.Errorf("%w: this node is catching up: %d of %d entries", jobs.ErrUnavailable, r.Machine.AppliedIndex(), r.catchUpTo.Load())
	}
	return nil
}

// Wait waits until the node is ready. When ctx ends, the error names what is missing.
func (r *Readiness) Wait(ctx context.Context) error {
	const look = 5 * time.Millisecond // readiness has no single event; only a start waits for it
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		err := r.Check()
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

// BehindPatience limits the wait of a call until this node has applied the entries that the caller
// has seen. After that, the caller tries another node.
const BehindPatience = 5 * time.Second

// AwaitMinIndex waits until this node's state includes the entries that the caller has seen. It
// also waits until the node has once caught up with a leader, because the state is old after a
// restart.
func (r *Readiness) AwaitMinIndex(ctx context.Context, header http.Header) error {
	ctx, cancel := context.WithTimeout(ctx, BehindPatience)
	defer cancel()
	if !r.CaughtUp.Load() {
		if err := r.Wait(ctx); err != nil {
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
	if err := r.Machine.WaitApplied(ctx, index); err != nil {
		return fmt.Errorf("%w: this node has not applied entry %d yet: %w", jobs.ErrUnavailable, index, err)
	}
	return nil
}
