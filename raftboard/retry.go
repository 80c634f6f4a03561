package raftboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/jobs"
)

// Pauses between rounds. In a round every known node is tried once, without a
// pause.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// retry selects the nodes that a call is tried at, one after another, and keeps
// what came of it. One goroutine uses it.
type retry struct {
	core      *core
	spread    bool // over all nodes, rather than the leader first
	pauses    *backoff.ExponentialBackOff
	tried     map[*peer]bool // in this round; nil until something has failed
	failures  []attempts
	ambiguous bool      // an attempt may have happened
	crowded   bool      // the last attempt met an overloaded node
	since     time.Time // of the first failure
}

// attempts are the failed ones at one node.
type attempts struct {
	peer  *peer
	count int
	last  error
}

func (c *core) newRetry(spread bool) *retry { return &retry{core: c, spread: spread} }

// next selects the node to try, after a pause when all have been tried, or when the last
// one was overloaded: another node would only ask the same leader. The only error is that
// of the context.
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

// failed records an attempt that settled nothing. If the context has ended, the
// failure says nothing about the node.
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
	r.core.log.Debug("call not settled", "node", p, "may have happened", failure.ambiguous, "error", failure.err)
	for i := range r.failures {
		if r.failures[i].peer == p {
			r.failures[i].count++
			r.failures[i].last = failure.err
			return
		}
	}
	r.failures = append(r.failures, attempts{peer: p, count: 1, last: failure.err})
}

// settled forgets the failures, for the next call.
func (r *retry) settled() {
	*r = retry{core: r.core, spread: r.spread}
}

// attempts says what was tried: one clause for each node.
func (r *retry) attempts() string {
	var text strings.Builder
	for i, a := range r.failures {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%s: %v", a.peer, a.last)
		if a.count > 1 {
			fmt.Fprintf(&text, " (%d tries)", a.count)
		}
	}
	return text.String()
}

// giveUp makes the error of a call whose bounded context has ended.
func (r *retry) giveUp(op operation, ctx, bounded context.Context) error {
	return giveUp(op, ctx, bounded, r.ambiguous, r.attempts())
}

// giveUp makes the error of a call that no node has settled.
func giveUp(op operation, ctx, bounded context.Context, ambiguous bool, attempts string) error {
	why := ctx.Err()
	if why == nil {
		why = context.Cause(bounded)
	}
	if op.reads && attempts == "" && ctx.Err() != nil {
		return fmt.Errorf("cannot %s: %w", op.name, why)
	}
	return fmt.Errorf("cannot %s: %w", op.name, unsettled(ambiguous && !op.reads, why, attempts))
}

// unsettled says whether a call may have happened, why the attempts ended, and
// what was tried. It does not wrap the errors of the attempts: the last of them
// may say that nothing happened when an earlier one is ambiguous.
func unsettled(ambiguous bool, why error, attempts string) error {
	kind := jobs.ErrUnavailable
	if ambiguous {
		kind = jobs.ErrUncertain
	}
	if attempts != "" {
		attempts = "; tried " + attempts
	}
	return fmt.Errorf("%w: %w%s", kind, why, attempts)
}
