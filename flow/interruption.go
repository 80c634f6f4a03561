package flow

import (
	"context"
	"errors"
	"time"
)

// DefaultGrace is how long an interrupted step may go on, unless a person says otherwise.
const DefaultGrace = 10 * time.Second

// Interruption is why the context of an execution ends although the claim on its job goes
// on: the flow is undone, or suspended. InterruptionOf finds it. The conductor waits for the
// step. A handler that still runs after Grace is killed; a Go function cannot be, and should
// return soon.
//
// What the step returns then is no failure of its own. If it returns an error, the attempt
// is recorded with logbook.FailureInterrupted, and counts for no retry policy.
type Interruption struct {
	Reason string
	Grace  time.Duration

	claim context.Context
}

// Interrupt makes an Interruption. The context is that of the claim.
func Interrupt(claim context.Context, reason string, grace time.Duration) *Interruption {
	return &Interruption{Reason: reason, Grace: grace, claim: claim}
}

func (i *Interruption) Error() string { return i.Reason }

// ClaimEnded is closed when the claim ends, too. Another conductor may run the step soon, so
// Grace does not count any more.
func (i *Interruption) ClaimEnded() <-chan struct{} { return i.claim.Done() }

// InterruptionOf is the Interruption of a step's context; nil: it goes on, or has ended for
// another reason.
func InterruptionOf(ctx context.Context) *Interruption {
	var i *Interruption
	errors.As(context.Cause(ctx), &i)
	return i
}
