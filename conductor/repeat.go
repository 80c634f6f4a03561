package conductor

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/conductord/conductord/logbook"
)

// pace says how the waits between tries grow.
type pace struct{ first, most time.Duration }

var (
	// boardBackoff is for calls that no claim depends on.
	boardBackoff = pace{100 * time.Millisecond, 2 * time.Second}
	// journalBackoff is for writes under a claim: steps wait for them, while the
	// session's time runs.
	journalBackoff = pace{20 * time.Millisecond, 500 * time.Millisecond}
)

// backoffs are the waits between tries, which grow until a try succeeds.
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

// repeatable reports whether the same call is made again: it did not happen, or its
// result is ambiguous, as after the end of its own time.
func repeatable(err error) bool {
	return errors.Is(err, logbook.ErrUnavailable) || errors.Is(err, logbook.ErrUncertain) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// callTime bounds one try of a call that is repeated.
const callTime = 5 * time.Second

// repeat makes a call until it is answered, and returns the cause of ctx's end if
// that comes first.
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
