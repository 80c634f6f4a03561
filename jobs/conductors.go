package jobs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// MaxDrains bounds the drains of a cluster, so that a list of them fits into one answer. It
// is more than a cluster has conductors.
const MaxDrains = 1_000

// Drain keeps the conductors of a name from claiming jobs. A drain belongs to the name: a
// conductor that restarts is still drained.
type Drain struct {
	Conductor string // name
	Finish    bool   // the conductors finish their jobs; false: they hand them over
	By        string
	Reason    string
	At        time.Time
}

// DrainCommand is an operator's request to drain the conductors of a name.
type DrainCommand struct {
	Conductor string // name
	Finish    bool   // the conductors finish their jobs instead of handing them over
	Absent    bool   // accept a name without a live conductor; its conductors are drained when they start
	By        string // the operator, for display
	Reason    string // one sentence, for display
}

// Conductors drains conductors. Repeating a call is harmless.
//
// A session belongs to a conductor if it has registered an entity of kind EntityConductor.
// Conductors with the same name are drained together.
type Conductors interface {
	// DrainConductor stops all claims by the conductors of a name until UndrainConductor.
	// Their ClaimNext waits as if no job existed, and their Claim returns ErrUnclaimable. A
	// conductor learns of the drain from EventDrained, and then hands over or finishes its
	// jobs. Draining again changes nothing, not even the reason, unless Finish differs: then
	// the new drain replaces the old one. ErrNotFound if no conductor of the name is
	// registered, unless Absent is set; ErrLimit at MaxDrains.
	DrainConductor(ctx context.Context, order DrainCommand) error
	// UndrainConductor ends a drain, and wakes waiting ClaimNext calls. Without a drain it
	// changes nothing. ErrNotFound if the name has neither a drain nor a conductor.
	UndrainConductor(ctx context.Context, order DrainCommand) error
	// Drains reads all drains, sorted by name.
	Drains(ctx context.Context) ([]Drain, error)
}

// CheckDrainCommand checks a command about conductors before it is written.
func CheckDrainCommand(l logbook.Limits, o *DrainCommand) error {
	if err := l.CheckName("conductor", o.Conductor); err != nil {
		return err
	}
	return checkSaid(l, "drain", o.By, o.Reason)
}

// claimWatcher watches the events of jobs, and lists conductors and claims.
type claimWatcher interface {
	Attendant
	Watch(ctx context.Context, watch Watch) iter.Seq2[Event, error]
}

// AwaitIdle waits until the conductors of a name have no claims. It follows events and does
// not poll. It calls progress, unless nil, with the number of claims: first, and then after
// every change. Drain the conductors first, because AwaitIdle also waits for new claims.
func AwaitIdle(ctx context.Context, board claimWatcher, conductor string, progress func(held int)) error {
	for {
		err := awaitIdle(ctx, board, conductor, progress)
		switch {
		case errors.Is(err, ErrCompacted):
			continue
		case err != nil:
			return fmt.Errorf("cannot wait for conductor %q: %w", conductor, err)
		}
		return nil
	}
}

func awaitIdle(ctx context.Context, board claimWatcher, conductor string, progress func(held int)) error {
	var held map[JobID]Token
	watch := Watch{Begin: true, Kinds: []EventKind{EventAbandoned, EventExpired, EventCompleted, EventTrashed}}
	for event, err := range board.Watch(ctx, watch) {
		if err != nil {
			return err
		}
		begun := event.Kind == EventBegun
		if !begun && held[event.Job] != event.Token {
			continue
		}
		// Some events are older than the list of claims, and belong to ended claims.
		if delete(held, event.Job); len(held) == 0 {
			if held, err = heldBy(ctx, board, conductor); err != nil {
				return err
			}
		}
		if progress != nil {
			progress(len(held))
		}
		if len(held) == 0 {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: the watch has ended", ErrUnavailable)
}

// heldBy lists the claims of the conductors of a name.
func heldBy(ctx context.Context, board claimWatcher, conductor string) (map[JobID]Token, error) {
	entities, err := board.Entities(ctx, EntityConductor)
	if err != nil {
		return nil, err
	}
	held := make(map[JobID]Token)
	for _, entity := range entities {
		if entity.Name != conductor {
			continue
		}
		for claim, err := range AllClaims(ctx, board, ClaimQuery{Session: entity.Session}) {
			if err != nil {
				return nil, err
			}
			held[claim.Job] = claim.Claim.Token
		}
	}
	return held, nil
}

// Takes reports whether a conductor can claim the job: by board, kind and labels.
func (e *Entity) Takes(j *Job) bool { return e.Claims(j) && len(e.Lacks(j)) == 0 }

// Serves reports whether a conductor claims jobs from a board.
func (e *Entity) Serves(board string) bool {
	return slices.Contains(e.Boards, board) || len(e.Boards) == 0 && board == DefaultBoard
}

// Claims reports whether a conductor claims jobs of the job's kind from its board.
func (e *Entity) Claims(j *Job) bool {
	return e.Serves(j.Board) && (len(e.JobKinds) == 0 || slices.Contains(e.JobKinds, j.Kind))
}

// Lacks returns the labels of the job that the conductor does not offer.
func (e *Entity) Lacks(j *Job) []string {
	return slices.DeleteFunc(slices.Clone(j.Labels), func(label string) bool { return slices.Contains(e.Labels, label) })
}
