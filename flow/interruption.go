package flow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultGrace is how long an interrupted step may go on, unless a person says otherwise.
const DefaultGrace = 10 * time.Second

// Interruption is why the context of an execution ends although the claim on its job goes
// on: the flow is undone, or suspended. InterruptionOf finds it. The conductor waits for the
// step. A handler that still runs after the grace is killed; a Go function cannot be, and
// should return soon.
//
// What the step returns then is no failure of its own. If it returns an error, the attempt
// is recorded with logbook.FailureInterrupted, and counts for no retry policy.
type Interruption struct {
	Reason string

	claim context.Context

	mu       sync.Mutex
	deadline time.Time     // the end of the grace; under mu
	changed  chan struct{} // closed when the deadline changes; under mu
}

// Interrupt makes an Interruption. The context is that of the claim.
func Interrupt(claim context.Context, reason string, grace time.Duration) *Interruption {
	return &Interruption{Reason: reason, claim: claim, deadline: time.Now().Add(grace), changed: make(chan struct{})}
}

func (i *Interruption) Error() string { return i.Reason }

// Deadline is when the grace ends, and a channel that is closed when that changes: a person
// may ask for another grace.
func (i *Interruption) Deadline() (time.Time, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.deadline, i.changed
}

// SetGrace begins another grace now.
func (i *Interruption) SetGrace(grace time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deadline = time.Now().Add(grace)
	close(i.changed)
	i.changed = make(chan struct{})
}

// ClaimEnded is closed when the claim ends, too. Another conductor may run the step soon, so
// the grace does not count any more.
func (i *Interruption) ClaimEnded() <-chan struct{} { return i.claim.Done() }

// InterruptionOf is the Interruption of a step's context; nil: it goes on, or has ended for
// another reason.
func InterruptionOf(ctx context.Context) *Interruption {
	var i *Interruption
	errors.As(context.Cause(ctx), &i)
	return i
}
