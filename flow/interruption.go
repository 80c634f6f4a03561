package flow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultGrace is the time that an interrupted step has to end, unless an operator sets another.
const DefaultGrace = 10 * time.Second

// Interruption is the cause of an execution's context when the context ends but the claim on the
// job continues: the flow is reverted or suspended. InterruptionOf finds it. The conductor waits
// for the step. It kills a handler that still runs after the grace. A Go function cannot be
// killed, and should return soon.
//
// An error that the interrupted step returns is not its own failure: it is recorded with the kind
// logbook.FailureInterrupted, and retry policies do not count it.
type Interruption struct {
	Reason string

	claim context.Context

	mu       sync.Mutex
	deadline time.Time     // the end of the grace; under mu
	changed  chan struct{} // closed when the deadline changes; under mu
}

// Interrupt makes an Interruption. The context is the claim's.
func Interrupt(claim context.Context, reason string, grace time.Duration) *Interruption {
	return &Interruption{Reason: reason, claim: claim, deadline: time.Now().Add(grace), changed: make(chan struct{})}
}

func (i *Interruption) Error() string { return i.Reason }

// Deadline returns the end of the grace, and a channel that is closed when the end changes: an
// operator can set another grace.
func (i *Interruption) Deadline() (time.Time, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.deadline, i.changed
}

// SetGrace starts another grace now.
func (i *Interruption) SetGrace(grace time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.deadline = time.Now().Add(grace)
	close(i.changed)
	i.changed = make(chan struct{})
}

// ClaimEnded is closed when the claim ends too. Another conductor can then run the step soon, so
// the grace no longer applies.
func (i *Interruption) ClaimEnded() <-chan struct{} { return i.claim.Done() }

// InterruptionOf is the Interruption of a step's context; nil: the context has not ended, or has
// ended for another reason.
func InterruptionOf(ctx context.Context) *Interruption {
	var i *Interruption
	errors.As(context.Cause(ctx), &i)
	return i
}
