package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/admission"
)

// HoldPoll is Hold for a long poll. A call that does not wait is not counted, and a call that
// replaces a waiting call needs no room.
func (g *Guard) HoldPoll(ctx context.Context, wait time.Duration, replaces bool) (release func(), err error) {
	if wait == 0 {
		return func() {}, nil
	}
	return g.Hold(ctx, !replaces, &g.Watchers.Polls)
}

// Hold counts a watch for the caller and in all, until release is called. If limited is true, Hold
// returns an error when the quota of the caller's principal is used up.
func (g *Guard) Hold(ctx context.Context, limited bool, all *admission.Budget) (release func(), err error) {
	who := admission.CallerOf(ctx)
	if who == nil || who.Trusted() {
		return func() {}, nil
	}
	limit := uint64(0)
	if limited {
		list, err := g.current()
		if err != nil {
			return nil, err
		}
		limit = list.watches[who.Name]
	}
	release, over := g.Watchers.Admit(who.Name, limit, all)
	switch {
	case release != nil:
		return release, nil
	case limit == 0 || over <= limit:
		return nil, fmt.Errorf("%w: %d watches and long polls of %s are open at node %s, and the node is at its limit: close some, or use another node", jobs.ErrOverloaded, over-1, access.Subject{Principal: who.Name}, g.Node)
	}
	return nil, &logbook.LimitError{
		Field: fmt.Sprintf("quota of %s: watches", access.Subject{Principal: who.Name}), Limit: int64(limit), Size: int64(over),
		Unit: "watches and long polls at node " + g.Node,
	}
}
