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

// maxCalls bounds what a stub remembers: its first calls.
const maxCalls = 10_000

var errTold = errors.New("the stub was told to fail")

// Stub is a task that does what it was told, and remembers what it was asked.
// Make one with Succeed, FailTimes or Fail, and a step of it with
// flow.NewStep. It has a revert, which succeeds. It may be used by several
// steps and runs, and changed until the first of them.
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

// Succeed is a task that returns a value, at once.
func Succeed(value any) *Stub { return &Stub{value: value} }

// FailTimes is a task whose first n attempts fail, and which then succeeds,
// with no result unless Then gives one; without an error, with one that says
// so. It counts attempts as the record does
// and not its own calls, so that it does the same after a crash.
func FailTimes(n int, err error) *Stub { return &Stub{failures: n, err: cmp.Or(err, errTold)} }

// Fail is a task that always fails.
func Fail(err error) *Stub { return FailTimes(math.MaxInt, err) }

// Then sets what the task returns when it succeeds.
func (s *Stub) Then(value any) *Stub {
	s.value = value
	return s
}

// Takes sets how long each execution and each revert takes. One that is
// told to stop before returns the context's error.
func (s *Stub) Takes(d time.Duration) *Stub {
	s.takes = d
	return s
}

// UndoFails makes the first n attempts to revert fail.
func (s *Stub) UndoFails(n int, err error) *Stub {
	s.undoFailures, s.undoErr = n, cmp.Or(err, errTold)
	return s
}

// Calls are the executions and reverts that were begun, in order.
func (s *Stub) Calls() []flow.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Execute does what Succeed, FailTimes or Fail has said.
func (s *Stub) Execute(ctx context.Context, call *flow.Call) (any, error) {
	if err := s.begin(ctx, call); err != nil {
		return nil, err
	}
	if call.Attempt <= s.failures {
		return nil, s.err
	}
	return s.value, nil
}

// Revert does what UndoFails has said.
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
