package conductor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
)

// Func does a job that has no flow. The job carries its details and its store. Its Token is the
// fencing token of the claim, by which outside systems distinguish an old owner from a new one.
// The returned error decides how the job ends:
//
//	nil                  the job is completed
//	Abandon(delay, err)  the job is released, and claimable after the delay; no attempt has failed
//	Trash(err)           the job is trashed: no conductor can do it
//	any other error      an attempt has failed: the job's jobs.RetryPolicy retries or parks
//	                     the job; without a policy it is completed as failed. flow.Permanent
//	                     forbids another attempt, and flow.Fail gives the failure a kind
//
// A Func returns no other result: a job with result values needs a flow, whose steps provide
// them. A panic is a failed attempt. A job may be done twice, because an owner may die at any
// moment.
//
// The context ends when the claim is lost or in doubt, when the conductor has waited
// Options.Grace for a drain, and when an operator cancels the job; context.Cause has the reason.
// Func should return soon after. Its error is then ignored: the job is released or cancelled. If
// Func does not return within 5 s (for a request: the request's grace), the job goes to the next
// owner without waiting for it.
type Func func(ctx context.Context, job jobs.Job) error

// WithDetails makes a Func from a function that takes the job's details as a Go value. A job is
// trashed if its details are not such a value, or have a field that T lacks: a misspelled or
// wrapped value must not become an empty one.
func WithDetails[T any](do func(ctx context.Context, job jobs.Job, details T) error) Func {
	return func(ctx context.Context, job jobs.Job) error {
		var details T
		if len(job.Details) == 0 {
			return Trash(errors.New("the job has no details, and its worker requires them: post the job with details"))
		}
		decoder := json.NewDecoder(bytes.NewReader(job.Details))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&details); err != nil {
			return Trash(fmt.Errorf("cannot read the details of the job as %s: %w", reflect.TypeFor[T](), err))
		}
		return do(ctx, job, details)
	}
}

// Abandon makes a Func release its job. Any owner can claim it after the delay, which is limited to
// jobs.MaxDelay. A negative delay counts as zero.
func Abandon(delay time.Duration, err error) error {
	return &endingError{verb: abandon, delay: min(max(delay, 0), jobs.MaxDelay), err: err}
}

// Trash makes a Func trash its job with the error, because no conductor can do the job.
func Trash(err error) error { return &endingError{verb: trash, err: err} }

// endingError is an error of a Func that sets how its job ends.
type endingError struct {
	verb  verb
	delay time.Duration
	err   error // can be nil
}

func (e *endingError) Error() string {
	if e.err == nil {
		return string(e.verb) + " without a reason"
	}
	return e.err.Error()
}

func (e *endingError) Unwrap() error { return e.err }

var errInterrupted = errors.New("an operator has asked to stop the job")

// call runs a job without a flow.
func (r *run) call(ctx context.Context, do Func) result {
	if err := checkDecryptedJob(&r.claimed.Job); err != nil {
		return result{err: err}
	}
	if err := r.session.admit(ctx); err != nil {
		return result{err: err}
	}
	r.notify(Notice{Moment: MomentStarted})
	over := ctx.Done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan result, 1)
	go callFunc(ctx, do, r.claimed.Job, ended) // ends with do
	got, returned := r.await(ended, stop, over)
	if !returned {
		r.logger.Warn("function ignored its cancellation", "cause", context.Cause(ctx))
	}
	switch cause := context.Cause(ctx); {
	case cause == nil, got.outcome == jobs.OutcomeSuccess:
		return got
	case errors.Is(cause, errInterrupted):
		return result{interrupted: true}
	default:
		return result{err: cause}
	}
}

// await waits for a Func, and follows the requests that stop it. It returns false if the Func has
// ignored the end of its context.
func (r *run) await(ended <-chan result, stop context.CancelCauseFunc, over <-chan struct{}) (result, bool) {
	interrupts := r.interrupts
	var late <-chan time.Time
	for {
		select {
		case got := <-ended:
			return got, true
		case <-late:
			return result{}, false
		case grace := <-interrupts:
			if grace == 0 {
				grace = flow.DefaultGrace
			}
			stop(errInterrupted)
			late = time.After(grace)
		case <-over:
			over, interrupts, late = nil, nil, time.After(engine.DefaultGrace)
		}
	}
}

// callFunc calls a Func, and reads its error inside the same recovery from panics. It also
// reports when the Func ends its goroutine.
func callFunc(ctx context.Context, do Func, job jobs.Job, ended chan<- result) {
	got, returned := result{outcome: jobs.OutcomeFailed}, false
	defer func() {
		if !returned {
			value := cmp.Or(recover(), any("the function has ended its goroutine"))
			got = result{outcome: jobs.OutcomeFailed, failure: flow.FailureOf(&flow.PanicError{Value: value, Stack: string(debug.Stack())})}
		}
		ended <- got
	}()
	if err := do(ctx, job); err == nil {
		got.outcome = jobs.OutcomeSuccess
	} else if got.failure = flow.FailureOf(err).Foreign(); errors.As(err, &got.said) {
		got.outcome = ""
	}
	returned = true
}

func checkDecryptedJob(job *jobs.Job) error {
	err := checkValue(job.Details, "its details")
	for _, name := range slices.Sorted(maps.Keys(job.Store)) {
		err = errors.Join(err, checkValue(job.Store[name], fmt.Sprintf("%q of its store", name)))
	}
	return err
}

// kinds are the kinds of jobs that the conductor can run.
func (o *Options) kinds() []string {
	return slices.Sorted(slices.Values(slices.AppendSeq(o.Registry.Kinds(), maps.Keys(o.Funcs))))
}
