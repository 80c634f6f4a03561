package raftboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/jobs"
)

// Pauses between rounds. In a round every known node is tried once, without a pause.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// retry selects the nodes at which a call is tried, one after another, and keeps the results. One
// goroutine uses it.
type retry struct {
	core      *core
	spread    bool // over all nodes, instead of the leader first
	pauses    *backoff.ExponentialBackOff
	tried     map[*peer]bool // in this round; nil until the first failure
	failures  []NodeFailure
	ambiguous bool      // an attempt may have taken effect
	crowded   bool      // the node of the last attempt was overloaded
	since     time.Time // time of the first failure
}

func (c *core) newRetry(spread bool) *retry { return &retry{core: c, spread: spread} }

// next selects the next node. It pauses first if all nodes have been tried, or if the last one was
// overloaded: another node would only call the same leader. The only error is the context's.
func (r *retry) next(ctx context.Context) (*peer, error) {
	p := r.core.peers.pick(r.tried, r.spread)
	if p == nil || r.crowded {
		if err := r.pause(ctx); err != nil {
			return nil, err
		}
		clear(r.tried)
		p = r.core.peers.pick(r.tried, r.spread)
	}
	return p, ctx.Err()
}

func (r *retry) pause(ctx context.Context) error {
	if r.pauses == nil {
		r.pauses = &backoff.ExponentialBackOff{
			InitialInterval: firstPause, MaxInterval: lastPause, Multiplier: 2, RandomizationFactor: 0.5,
		}
		r.pauses.Reset()
	}
	timer := time.NewTimer(r.pauses.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed records an attempt that settled nothing. If the context has ended, the failure says
// nothing about the node.
func (r *retry) failed(ctx context.Context, p *peer, failure *tryError) {
	if ctx.Err() == nil {
		r.core.peers.failed(p, failure.unreached)
	}
	r.ambiguous = r.ambiguous || failure.ambiguous
	r.crowded = errors.Is(failure.err, jobs.ErrOverloaded)
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if r.tried == nil {
		r.tried = make(map[*peer]bool)
	}
	r.tried[p] = true
	r.core.log.Debug("attempt failed", "node", p, "ambiguous", failure.ambiguous, "error", failure.err)
	last := NodeFailure{Node: p.String(), Reached: !failure.unreached, Err: failure.err}
	if i := slices.IndexFunc(r.failures, func(f NodeFailure) bool { return f.Node == last.Node }); i >= 0 {
		r.failures[i] = last
		return
	}
	r.failures = append(r.failures, last)
}

// settled clears the failures for the next call.
func (r *retry) settled() {
	*r = retry{core: r.core, spread: r.spread}
}

// giveUp makes the error of a call whose bounded context has ended.
func (r *retry) giveUp(op operation, ctx, bounded context.Context) error {
	return giveUp(op, ctx, context.Cause(bounded), r.ambiguous, slices.Clone(r.failures))
}

// giveUp makes the error of a call that no node has settled. If the caller's context has ended,
// its error is the reason.
func giveUp(op operation, ctx context.Context, why error, ambiguous bool, failures []NodeFailure) error {
	if ended := ctx.Err(); ended != nil {
		why = ended
		if op.reads && len(failures) == 0 {
			return fmt.Errorf("cannot %s: %w", op.name, why)
		}
	}
	return fmt.Errorf("cannot %s: %w", op.name, unsettled(ambiguous && !op.reads, why, failures))
}

// unsettled makes the error of an unsettled call: whether the call may have taken effect, and the
// answer of each node.
func unsettled(ambiguous bool, why error, failures []NodeFailure) error {
	kind := jobs.ErrUnavailable
	if ambiguous {
		kind = jobs.ErrUncertain
	}
	return &UnsettledError{Kind: kind, Why: why, Nodes: failures}
}
