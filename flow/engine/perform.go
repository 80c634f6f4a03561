package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// timeUp is the cause when a context ends at the step's timeout or deadline.
type timeUp string

func (t timeUp) Error() string { return string(t) }

// perform makes one attempt and reports it, in a goroutine that ends with it.
func (l *loop) perform(ctx context.Context, s start) {
	r := report{outcome: outcome{step: s.step}, plan: s.plan, permit: s.permit}
	returned := false
	var end func(*logbook.Failure, bool)
	defer func() {
		if !returned {
			// The task has called runtime.Goexit, which ends the goroutine
			// without a panic.
			r.failure = flow.FailureOf(&flow.PanicError{Value: "the task has ended its goroutine", Stack: string(debug.Stack())})
		}
		if end != nil {
			end(r.failure, r.notYet != nil)
		}
		r.ended, r.progress = l.options.Now(), l.progress.final(s.call)
		l.reports <- r
		if l.abandoned.Load() {
			s.permit.release()
		}
	}()
	if l.options.Gate != nil {
		r.refused = errors.New("the gate ended the goroutine of the step") // unless it returns
		if r.refused = l.pass(); r.refused != nil {
			returned = true
			return
		}
	}
	if l.options.Attempt != nil {
		ctx, end = l.options.Attempt(ctx, s.call)
	}
	step := s.plan.Step(s.step)
	ctx, cancel := l.bound(ctx, s, false)
	defer cancel()
	hidden, err := l.resolveSecrets(ctx, s)
	s.call.ReportTo(hidden.reporter(l.progress))
	if output := newOutput(l.options, s.call, hidden); output != nil {
		defer output.close()
		ctx = flow.WithOutput(ctx, output)
	}
	if _, offered := step.WorkerStep(); offered && l.options.Offer != nil {
		s.permit.releaseWorker()
		ctx = flow.WithOffer(ctx, l.options.Offer)
		stop := cancel
		defer func() { stop() }()
		s.call.TakenBy(func(ctx context.Context, worker flow.WorkerID) error {
			return l.marks.record(ctx, l.steps, s.call, func(c *core, step int, now time.Time) { c.assign(step, worker, now) })
		}, func() context.Context {
			ctx, stop = l.bound(ctx, s, true)
			return ctx
		})
	}
	if s.call.Worker == "" && (isTimeUp(ctx) || flow.InterruptionOf(ctx) != nil) {
		err = context.Cause(ctx) // not started; a worker that has started must get a stop request
	}
	if err == nil {
		err = l.checkpoints(ctx, s, hidden)
	}
	if r.unbegun = err != nil; err == nil {
		r.result, r.sends, err = l.act(ctx, step, s.call, hidden)
		r.unbegun = s.call.Unbegun()
	}
	if err != nil {
		r.result, r.sends = nil, nil
		if r.notYet, err = notYet(ctx, &l.options.Limits, err); r.notYet == nil {
			_, offered := step.WorkerStep()
			r.failure = failureOf(ctx, err, offered)
		}
	}
	l.keepOutput(&r, step, s.call, hidden)
	returned = true
}

// keepOutput keeps the end of what a call wrote to stderr, and hides secrets in the outcome.
func (l *loop) keepOutput(r *report, step *flow.Step, call *flow.Call, hidden *hidden) {
	r.stderr, r.stderrTruncated = call.Stderr()
	hidden.report(r, &l.options.Limits)
	limit := stderrLimit(l.options.Limits, step)
	if wasInterrupted(r.failure) {
		limit = min(limit, maxInterrupted)
	}
	r.stderr, r.stderrTruncated = keepEnd(r.stderr, r.stderrTruncated, limit)
}

// bound ends the context of an attempt at the step's timeout, minus the time already spent, or at its
// deadline. For a worker's attempt, the timeout counts from the moment when a worker takes it.
func (l *loop) bound(ctx context.Context, s start, taken bool) (context.Context, context.CancelFunc) {
	step := s.plan.Step(s.step)
	most := step.Timeout()
	if _, offered := step.WorkerStep(); offered && !taken {
		most = 0
	}
	if !s.deadline.IsZero() {
		if left := s.deadline.Sub(l.options.Now()); most == 0 || left < most-s.spent {
			return context.WithTimeoutCause(ctx, left, timeUp("its deadline has passed: "+step.DeadlineText()))
		}
	}
	if most == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, most-s.spent, timeUp(fmt.Sprintf("it took longer than %s", most)))
}

func isTimeUp(ctx context.Context) bool {
	_, up := context.Cause(ctx).(timeUp)
	return up
}

// pass waits for the gate. A panic in the gate is an error.
func (l *loop) pass() (err error) {
	defer flow.CatchPanic(&err)
	return l.options.Gate(l.steps)
}

// act calls the task, encodes its result and collects its signals. A panic is an error.
func (l *loop) act(ctx context.Context, step *flow.Step, call *flow.Call, h *hidden) (result json.RawMessage, sends []logbook.Sending, err error) {
	defer flow.CatchPanic(&err)
	ctx = flow.WithCall(ctx, call)
	if call.Action == logbook.ActionRevert {
		reverter, _ := step.Reverter()
		return nil, nil, reverter.Revert(ctx, call)
	}
	value, err := step.Task().Execute(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	if result, err = encode(value, &l.options.Limits); err == nil {
		sends, err = l.sends(step, call, h)
	}
	return result, sends, err
}

// sends returns the signals of a successful execution, without secrets.
func (l *loop) sends(step *flow.Step, call *flow.Call, h *hidden) ([]logbook.Sending, error) {
	sends, err := step.TakeSends(call)
	if err != nil {
		return nil, flow.Fail(logbook.FailureArgument, err)
	}
	for i := range sends {
		if sends[i].Signal.Data, err = h.value(sends[i].Signal.Data); err != nil {
			return nil, flow.Fail(logbook.FailureResult, fmt.Errorf("cannot hide secrets in a signal: %w", err))
		}
	}
	if err := l.options.Limits.CheckSends(sends); err != nil {
		return nil, flow.Fail(logbook.FailureResult, fmt.Errorf("cannot send its signals: %w", err))
	}
	return sends, nil
}

// encode makes a result storable. A result that cannot be stored is not a permanent failure:
// the next attempt may return another result.
func encode(value any, limits *logbook.Limits) (json.RawMessage, error) {
	if value == nil {
		return null, nil // the encoder's result, without the larger stack that it needs
	}
	result, raw := value.(json.RawMessage)
	if !raw {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, flow.Fail(logbook.FailureResult, fmt.Errorf("cannot encode the result: %w", err))
		}
		result = encoded
	}
	if len(result) == 0 {
		return null, nil
	}
	if err := limits.CheckValue("result", result); err != nil {
		return nil, flow.Fail(logbook.FailureResult, err)
	}
	return result, nil
}

// notYet returns the NotYet in an error. It is an ordinary failure if the step's time was up, if
// the step was interrupted, or if the details are too large for this logbook.
func notYet(ctx context.Context, limits *logbook.Limits, err error) (*flow.NotYetError, error) {
	said, ok := flow.AsNotYet(err)
	if !ok || isTimeUp(ctx) || flow.InterruptionOf(ctx) != nil {
		return nil, err
	}
	details := logbook.Limits{Value: detailsLimit(limits)}
	if err := details.CheckValue("details of \"not yet\"", said.Details); err != nil {
		return nil, flow.Fail(logbook.FailureResult, err)
	}
	return said, nil
}

// failureOf makes a failure from an error. After a timeout or an interruption, the failure
// names that as its cause.
func failureOf(ctx context.Context, err error, offered bool) *logbook.Failure {
	if i := flow.InterruptionOf(ctx); i != nil {
		return interrupted(i, err)
	}
	if up, ok := context.Cause(ctx).(timeUp); ok {
		if err != error(up) {
			err = fmt.Errorf("%s: %w", up, err)
		}
		err = flow.Fail(logbook.FailureTimeout, err)
	}
	failure := flow.FailureOf(err)
	if !offered { // the conductor has done that with the report of a worker
		failure = failure.Foreign()
	}
	return failure
}

// keepEnd cuts a handler's stderr to its last bytes, at most limit.
func keepEnd(stderr string, truncated bool, limit int) (string, bool) {
	// Replacing invalid UTF-8 can make a text longer, so cut the text afterwards.
	stderr = strings.ToValidUTF8(stderr, "\uFFFD")
	if len(stderr) <= limit {
		return stderr, truncated
	}
	return strings.ToValidUTF8(stderr[len(stderr)-limit:], ""), true
}
