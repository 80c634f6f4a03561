package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// MaxDrains bounds the drains that stand at one time, so that a list of them
// is one answer: more than a cluster has conductors.
const MaxDrains = 1_000

// Drain is the standing order that the conductors of a name claim nothing. It
// belongs to the name: a conductor that ends and comes back is still drained.
type Drain struct {
	Conductor string
	Finish    bool // what they hold is seen through; otherwise it is handed over
	By        string
	Reason    string
	At        time.Time
}

// DrainCommand is how a person drains the conductors of a name.
type DrainCommand struct {
	Conductor string // name
	Finish    bool   // let them see through what they hold, instead of handing it over at once
	Absent    bool   // also if none of that name lives: they will be drained when they come
	By        string // who, for people
	Reason    string // one sentence, for people
}

// Conductors steers the conductors. To repeat a call is harmless.
//
// A session is that of a conductor if it has registered an entity of kind
// EntityConductor; two of one name are drained together.
type Conductors interface {
	// DrainConductor keeps the board from granting claims to the conductors of a
	// name, until UndrainConductor: their ClaimNext waits as if there were nothing,
	// their Claim is refused with ErrUnclaimable. A conductor hears of it by
	// EventDrained, and hands over what it holds, or finishes that. A drain that
	// stands already stays, with its reason, unless Finish differs: then the
	// later one counts. ErrNotFound if none of that name is registered, unless
	// Absent is set; ErrLimit at MaxDrains.
	DrainConductor(ctx context.Context, order DrainCommand) error
	// UndrainConductor ends a drain, and wakes callers that wait for jobs. Nothing
	// happens to conductors that are not drained; ErrNotFound if there are none of that
	// name.
	UndrainConductor(ctx context.Context, order DrainCommand) error
	// Drains reads the drains that stand, by name.
	Drains(ctx context.Context) ([]Drain, error)
}

// CheckDrainCommand checks what a person says about conductors.
func CheckDrainCommand(l logbook.Limits, o *DrainCommand) error {
	if err := l.CheckName("conductor", o.Conductor); err != nil {
		return err
	}
	return checkSaid(l, "drain", o.By, o.Reason)
}

// AwaitIdle waits until the conductors of a name hold no job. It is told by
// events and does not poll. Progress, if it is not nil, is told how many they
// hold, at the beginning and after every change. Conductors that are not
// drained may take others all the while, and then are waited for too.
func AwaitIdle(ctx context.Context, board Board, conductor string, progress func(held int)) error {
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

func awaitIdle(ctx context.Context, board Board, conductor string, progress func(held int)) error {
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
		// Some events are of before the look, and of claims that are over.
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

// heldBy finds the claims of the conductors of a name.
func heldBy(ctx context.Context, board Board, conductor string) (map[JobID]Token, error) {
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

// Takes reports whether a conductor claims jobs of this kind from this board, and
// offers all labels that this one wants.
func (e *Entity) Takes(j *Job) bool { return e.Claims(j) && len(e.Lacks(j)) == 0 }

// Serves reports whether a conductor claims jobs from a board.
func (e *Entity) Serves(board string) bool {
	return slices.Contains(e.Boards, board) || len(e.Boards) == 0 && board == DefaultBoard
}

// Claims reports whether a conductor claims jobs of this kind from this board.
func (e *Entity) Claims(j *Job) bool {
	return e.Serves(j.Board) && (len(e.JobKinds) == 0 || slices.Contains(e.JobKinds, j.Kind))
}

// Lacks are the labels that a job wants and a conductor does not offer.
func (e *Entity) Lacks(j *Job) []string {
	return slices.DeleteFunc(slices.Clone(j.Labels), func(label string) bool { return slices.Contains(e.Labels, label) })
}
