package conductor

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/logbook"
)

// pace sets the first and the longest wait between two attempts.
type pace struct{ first, most time.Duration }

var (
	// boardBackoff is for calls on which no claim depends.
	boardBackoff = pace{100 * time.Millisecond, 2 * time.Second}
	// journalBackoff is for writes under a claim, because steps wait for them while the session's
	// TTL runs.
	journalBackoff = pace{20 * time.Millisecond, 500 * time.Millisecond}
)

// backoffs are the waits between attempts, which grow until an attempt succeeds.
type backoffs interface {
	Reset()
	NextBackOff() time.Duration
}

func newBackoff(p pace) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = p.first, p.most
	b.Reset()
	return b
}

// sleep waits, or returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// repeatable reports whether a call can be repeated: it had no effect, or its result is ambiguous,
// as after its own timeout.
func repeatable(err error) bool {
	return errors.Is(err, logbook.ErrUnavailable) || errors.Is(err, logbook.ErrUncertain) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// callTime limits one attempt of a repeated call.
const callTime = 5 * time.Second

// repeat makes a call until it is answered. If ctx ends first, it returns the cause.
func repeat(ctx context.Context, call func(context.Context) error) error {
	wait := newBackoff(journalBackoff)
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, callTime)
		err := call(callCtx)
		cancel()
		if !repeatable(err) {
			return err
		}
		sleep(ctx, wait.NextBackOff())
	}
	return context.Cause(ctx)
}
