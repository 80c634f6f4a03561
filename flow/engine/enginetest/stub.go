package enginetest

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/conductord/conductord/flow"
)

// maxCalls bounds the remembered calls of a stub: the first ones.
const maxCalls = 10_000

var errStub = errors.New("the stub fails on purpose")

// Stub is a task with configured behaviour that records its calls. Make one with Succeed,
// FailTimes or Fail, and make a step of it with flow.NewStep. Its revert succeeds. Several steps
// and runs can use it; change it only before the first run.
type Stub struct {
	value        any
	failures     int // executions that fail, by their attempt
	err          error
	undoFailures int
	undoErr      error
	takes        time.Duration

	mu    sync.Mutex
	calls []flow.Call
}

// Succeed returns a task that returns the value at once.
func Succeed(value any) *Stub { return &Stub{value: value} }

// FailTimes returns a task whose first n attempts fail with err, or with a default error if err
// is nil. Later attempts succeed, without a result unless Then sets one. It counts the attempts
// in the record, not its own calls, so a crash does not change its behaviour.
func FailTimes(n int, err error) *Stub { return &Stub{failures: n, err: cmp.Or(err, errStub)} }

// Fail returns a task that always fails.
func Fail(err error) *Stub { return FailTimes(math.MaxInt, err) }

// Then sets what the task returns when it succeeds.
func (s *Stub) Then(value any) *Stub {
	s.value = value
	return s
}

// Takes sets the duration of each execution and each revert. If the context ends earlier, the
// call returns the context's error.
func (s *Stub) Takes(d time.Duration) *Stub {
	s.takes = d
	return s
}

// UndoFails makes the first n attempts to revert fail.
func (s *Stub) UndoFails(n int, err error) *Stub {
	s.undoFailures, s.undoErr = n, cmp.Or(err, errStub)
	return s
}

// Calls are the started executions and reverts, in order.
func (s *Stub) Calls() []flow.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Execute does what Succeed, FailTimes or Fail has set.
func (s *Stub) Execute(ctx context.Context, call *flow.Call) (any, error) {
	if err := s.begin(ctx, call); err != nil {
		return nil, err
	}
	if call.Attempt <= s.failures {
		return nil, s.err
	}
	return s.value, nil
}

// Revert does what UndoFails has set.
func (s *Stub) Revert(ctx context.Context, call *flow.Call) error {
	if err := s.begin(ctx, call); err != nil {
		return err
	}
	if call.Attempt <= s.undoFailures {
		return s.undoErr
	}
	return nil
}

func (s *Stub) begin(ctx context.Context, call *flow.Call) error {
	s.mu.Lock()
	if len(s.calls) < maxCalls {
		s.calls = append(s.calls, *call)
	}
	s.mu.Unlock()
	if s.takes <= 0 {
		return nil
	}
	timer := time.NewTimer(s.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
