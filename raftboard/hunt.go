package raftboard

import (
	"context"
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

// hunt is the search for a node that settles a call. One goroutine uses it.
type hunt struct {
	core   *core
	spread bool
	pauses *backoff.ExponentialBackOff
	tried  map[*peer]bool // in this round; nil until something has failed
	trail  []step
	doubt  bool      // some try may have happened
	since  time.Time // of the first failure
}

// step is what became of the tries at one node.
type step struct {
	peer  *peer
	tries int
	last  error
}

func (c *core) newHunt(spread bool) *hunt { return &hunt{core: c, spread: spread} }

// next gives the node to try, after a pause where all have been tried. The
// only error is that of the context.
func (h *hunt) next(ctx context.Context) (*peer, error) {
	p := h.core.peers.pick(h.tried, h.spread)
	if p == nil {
		if err := h.pause(ctx); err != nil {
			return nil, err
		}
		clear(h.tried)
		p = h.core.peers.pick(h.tried, h.spread)
	}
	return p, ctx.Err()
}

func (h *hunt) pause(ctx context.Context) error {
	if h.pauses == nil {
		h.pauses = &backoff.ExponentialBackOff{
			InitialInterval: firstPause, MaxInterval: lastPause, Multiplier: 2, RandomizationFactor: 0.5,
		}
		h.pauses.Reset()
	}
	timer := time.NewTimer(h.pauses.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed notes a try that has settled nothing. Where the context has ended,
// that says nothing about the node.
func (h *hunt) failed(ctx context.Context, p *peer, failure *tryError) {
	if ctx.Err() == nil {
		h.core.peers.failed(p, failure.unreached)
	}
	h.doubt = h.doubt || failure.doubtful
	if h.since.IsZero() {
		h.since = time.Now()
	}
	if h.tried == nil {
		h.tried = make(map[*peer]bool)
	}
	h.tried[p] = true
	h.core.log.Debug("call not settled", "node", p, "may have happened", failure.doubtful, "error", failure.err)
	for i := range h.trail {
		if h.trail[i].peer == p {
			h.trail[i].tries++
			h.trail[i].last = failure.err
			return
		}
	}
	h.trail = append(h.trail, step{peer: p, tries: 1, last: failure.err})
}

// settled forgets the failures, for the next call.
func (h *hunt) settled() {
	*h = hunt{core: h.core, spread: h.spread}
}

// tale says what was tried: one clause for each node.
func (h *hunt) tale() string {
	if len(h.trail) == 0 {
		return ""
	}
	var tale strings.Builder
	for i, s := range h.trail {
		if i > 0 {
			tale.WriteString("; ")
		}
		fmt.Fprintf(&tale, "%s: %v", s.peer, s.last)
		if s.tries > 1 {
			fmt.Fprintf(&tale, " (%d tries)", s.tries)
		}
	}
	return tale.String()
}

// giveUp makes the error of a call whose bounded context has ended.
func (h *hunt) giveUp(op operation, ctx, bounded context.Context) error {
	return giveUp(op, ctx, bounded, h.doubt, h.tale())
}

// giveUp makes the error of a call that nobody has settled.
func giveUp(op operation, ctx, bounded context.Context, doubt bool, tale string) error {
	why := ctx.Err()
	if why == nil {
		why = context.Cause(bounded)
	}
	if op.reads && tale == "" && ctx.Err() != nil {
		return fmt.Errorf("cannot %s: %w", op.name, why)
	}
	return fmt.Errorf("cannot %s: %w", op.name, unsettled(doubt && !op.reads, why, tale))
}

// unsettled says what is known of a call, why the tries ended, and what was
// tried. The errors of the tries are told and not wrapped, for the last of
// them may say less than all of them together.
func unsettled(doubt bool, why error, tale string) error {
	kind := jobs.ErrUnavailable
	if doubt {
		kind = jobs.ErrUncertain
	}
	if tale != "" {
		tale = "; tried " + tale
	}
	return fmt.Errorf("%w: %w%s", kind, why, tale)
}
