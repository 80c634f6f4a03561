package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// watchers counts the watches and long polls of each principal that this node answers. It
// is not in the state: they begin and end many times a second, and none outlives its node.
type watchers struct {
	polls, watches budget // of all principals

	mu    sync.Mutex
	count map[string]uint64 // by principal; under mu
}

func (w *watchers) of(principal string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[principal]
}

// Bounds of the long polls and of the watches of all principals at a node. Each costs some tens of
// kilobytes, and each event wakes all watches. No principal has more than are left for others.
const (
	maxPolls   = 16_384
	maxWatches = 1_024
)

// admit counts one more until release. If that exceeds the limit, or the principal's part of all, it
// reports the number instead. A limit of 0 is none.
func (w *watchers) admit(principal string, limit uint64, all *budget) (release func(), over uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.count[principal]; limit > 0 && n >= limit || !all.take(principal, 1, 0) {
		return nil, n + 1
	}
	w.count[principal]++
	return func() { w.release(principal); all.give(principal, 1) }, 0
}

func (w *watchers) release(principal string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[principal]--; w.count[principal] == 0 {
		delete(w.count, principal)
	}
}

// holdPoll is hold for a long poll. A call that does not wait is not counted, and one
// that takes the place of a waiting call needs no room.
func (g *guard) holdPoll(ctx context.Context, wait time.Duration, replaces bool) (release func(), err error) {
	if wait == 0 {
		return func() {}, nil
	}
	return g.hold(ctx, !replaces, &g.watchers.polls)
}

// hold counts a watch of the caller, as one of all, until release is called. If it is limited, it returns an
// error if the quota of the caller's principal has no room for it.
func (g *guard) hold(ctx context.Context, limited bool, all *budget) (release func(), err error) {
	who := callerOf(ctx)
	if who == nil || who.trusted() {
		return func() {}, nil
	}
	limit := uint64(0)
	if limited {
		list, err := g.current()
		if err != nil {
			return nil, err
		}
		limit = list.watches[who.name]
	}
	release, over := g.watchers.admit(who.name, limit, all)
	switch {
	case release != nil:
		return release, nil
	case limit == 0 || over <= limit:
		return nil, fmt.Errorf("%w: %d watches and long polls of %s wait at node %s, and others need room", jobs.ErrOverloaded, over-1, access.Subject{Principal: who.name}, g.node)
	}
	return nil, &logbook.LimitError{
		Field: fmt.Sprintf("quota of %s: watches", access.Subject{Principal: who.name}), Limit: int64(limit), Size: int64(over),
		Unit: "watches and long polls at node " + g.node,
	}
}
