// Package engine runs a plan of package flow. It starts the steps that are ready, records every
// outcome in the logbook, retries, reverts and suspends, and resumes a flow from any recorded
// state.
//
// It has two halves. The *core* decides: from the plan and the atom details it derives which
// steps may start, and what one outcome changes. It does no I/O, starts no goroutine and reads no
// clock. The *loop* around it starts steps, gathers outcomes and passes the core's updates to a
// Journal. A new run resumes from an empty flow detail, so new and resumed runs share the code.
//
// # Guarantees
//
//   - All consequences of an outcome are in one logbook.Update: the end of the attempt, the
//     changes of state, and the running marks of the next steps. Outcomes that arrive together
//     share an update.
//   - A step whose result was recorded is never executed again. A step whose outcome was not
//     recorded is executed again: side effects happen at least once.
//   - An attempt starts only after its mark, and the outcomes that led to it, are durable, so the
//     engine never loses an effect in a crash. A flow.Repeatable step is an exception:
//     see mayRunAhead. The first steps of a flow, and the steps after a wait that a signal has ended, can be
//     an exception: see Options.Begins. If Begun of such a flow is set, the next run first records these
//     steps as running.
//   - A checkpoint is durable when its call returns, and every later attempt of the round finds it. It is
//     refused after the end of its attempt.
//   - An at-most-once step that a resume finds running has failed with the kind
//     logbook.FailureAtMostOnce, and the flow reverts.
//   - A resume adopts a running step that was offered to workers (flow.OnWorker): the same
//     attempt continues, with the worker that has it. Without a report, it ends only
//     when Options.Offer reports that the worker is lost.
//   - A revert is called only if an execution of its round has started, or may have started. An
//     execution without a recorded end, and folded executions, count as started.
//   - Steps revert in the reverse of the order in which they had to run, each when all steps
//     that follow it are undone. The failed step reverts too.
//   - A failure reverts the flow unless a retry around the step decides to try again. Then only
//     that retry's flow is undone, in the same order, and started again.
//   - A failure that is ignored (flow.IgnoreFailure) is recorded with the steps that it makes ready. After
//     a crash the flow continues, and the failed step is not executed again.
//   - On_error steps (flow.Flow.OnError) of a flow that fails run once, before a step of the flow is undone, and before
//     the flow is held.
//   - Final steps (flow.Flow.Finally) of a flow that has started run once: after its other steps, or after their undo.
//     Their failures are ignored, and only a suspension interrupts them.
//   - With the policy flow.HoldOnFailure, a failure holds the flow instead of reverting it: see hold. The decision is
//     recorded with the failure. Only a request to revert is stronger.
//   - After a flow.PointOfNoReturn that has succeeded, runs, or has an unknown outcome, a failure or a
//     request to revert holds the flow, and no retry around that step starts another round.
//   - A retry's decision and the time of the next round are recorded with the failure, and the retry does not decide
//     again. Every started round counts, so a crash gives a retry no more rounds.
//   - While a retry's flow is undone, a later failure or a cancellation can still revert
//     everything. A revert of everything is never taken back.
//   - A decider's answer is recorded with its consequence: steps are ignored, or they run.
//   - A flow that is held, or whose revert fails, is in state failure: nothing more starts until an operator
//     intervenes. The next claim carries out interventions before anything else, all or none of
//     them, and exactly once even if the conductor dies meanwhile.
//   - A flow continues (flow.Again) only after its success: End.Again has the values of the next iteration. They are the
//     recorded result of a step, so every owner gives the same values.
//   - A flow stays writable and readable however much its steps produce, and however often they
//     are tried. A result that is too large is a failure, failures and stderr are cut, and the
//     logbook folds the oldest attempts.
//   - A run costs O(steps + edges), whatever the shape of the flow, and as much again each time that a flow.Each takes
//     its list. Lists that are taken together cost this once.
//
// # Assumptions
//
// The Journal keeps the order of updates. Plan and flow detail belong together; if they do not,
// Run refuses with ErrMismatch before it changes anything. Tasks return soon after their context
// ends.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// DefaultWorkers is the default of parallel steps in a flow. Most steps wait, for a process
	// or another system, so the number does not depend on cores.
	DefaultWorkers = 16
	// DefaultGrace is the time for which Run waits for steps whose context has ended. It is longer than handlers get
	// between SIGTERM and SIGKILL.
	DefaultGrace = 5 * time.Second
	// maxUnacknowledged bounds the updates that are not yet durable. Without a bound, a fast
	// flow could run arbitrarily far ahead of a slow cluster.
	maxUnacknowledged = 256
)

var (
	// ErrMismatch: the flow detail and the plan do not belong together, or the detail is in a
	// state that no engine produces.
	ErrMismatch = errors.New("the flow detail does not match the flow")
	// ErrPinned: the flow's definition here differs from the recorded one, and the flow is pinned
	// (logbook.ChangePin). Another conductor may have the old code.
	ErrPinned = errors.New("the flow is pinned to its recorded definition, and this program has a different definition")
	// ErrChanged: the flow's definition here differs from the recorded one, and the flow refuses
	// every change (logbook.ChangeRefuse).
	ErrChanged = errors.New("the flow refuses changes of its definition, and this program has a different definition")
	// ErrGate: the gate did not let a step start.
	ErrGate = errors.New("the gate is closed")
)

// Options configures one run.
type Options struct {
	Plan *flow.Plan
	// Detail is the flow as recorded in the logbook. Its Store is not used.
	Detail logbook.FlowDetail
	// Store holds the values that no step provides: the flow's, overlaid by
	// the job's.
	Store logbook.Values
	// Job, Token and Owner are recorded in attempts and passed to calls.
	Job   string
	Board string // the job's
	Token logbook.Token
	Owner string
	// Begins lets the flow's first steps, and the steps after a wait that the board has ended, start before their
	// marks are durable: the claim under Token replaces the marks. If this run is cut off or ends Unrecorded before
	// it has recorded anything, the caller must set Detail.Begun in the next run.
	Begins bool

	Journal Journal
	// Workers limits the parallel steps of this run. 0: DefaultWorkers.
	Workers int
	// Pool limits the parallel steps of all runs that share it, in addition to Workers. It excludes steps
	// that are offered to workers. It also holds the permits of concurrency keys. nil: a pool for this run
	// alone, with Workers workers.
	Pool *Pool
	// MaxIdle ends a run in which nothing runs and no step can start for longer than this. Its
	// job can then be released: see End.WaitUntil. 0 or less: the run waits.
	MaxIdle time.Duration
	// Suspend, when closed, suspends the flow: no step starts, and running steps end and are
	// recorded. A step whose mark was handed to the Journal still starts: the next owner would
	// find it running, and an at-most-once step would have failed without a start. nil: never.
	Suspend <-chan struct{}
	// Revert, when closed, reverts the flow as a failure does: no step is executed, running steps
	// are awaited, and everything done is undone. A flow that has not started ends reverted. The
	// revert is recorded, so the next owner continues it without Revert. It changes nothing in a
	// flow that already reverts or has ended. nil: never.
	Revert <-chan struct{}
	// Interrupt ends the running executions of a flow that is suspended or reverts by request,
	// for each value that it receives. The value is the grace of the flow.Interruption; 0 means
	// flow.DefaultGrace. Executions that were interrupted before get the new grace.
	//
	// Uninterruptible steps continue, and so do at-most-once steps if the flow is suspended. A
	// suspended flow executes the interrupted steps again later. Without Interrupt, running
	// executions finish. When a step has failed permanently, the executions that are undone
	// because of it are interrupted in any case. nil: never.
	Interrupt <-chan time.Duration
	// TimeUp is the end of the time of the run: see flow.Flow.Timeout. The flow then reverts, and its running
	// executions are interrupted. A flow that reverts, is held or has ended ignores it. Zero: never.
	TimeUp time.Time
	// RetryNow starts the waiting steps that it receives by name, before the time of their next
	// tries; empty: all. nil: never.
	RetryNow <-chan string
	// Signals are the signals that waits of the flow have taken while it runs. Optional: a signal that the run
	// does not get is in the record, and the next run takes it from there.
	Signals <-chan TakenSignal
	// RevertCause is called once after Revert was closed, and returns the cause to record. nil,
	// or a nil result: a failure of kind logbook.FailureOperator. A panic ends the run with an
	// error.
	RevertCause func() *logbook.Failure
	// Gate is called before each step starts, by the goroutine of the step, and blocks while the
	// claim is in doubt. An error or a panic ends the run. A step is usually marked running
	// before the call (exceptions: Begins, flow.Repeatable). An at-most-once step that is refused
	// here therefore counts as started. nil: open.
	Gate func(ctx context.Context) error
	// Secrets returns the secret of a name, for a reference {"secret": NAME} in an argument that
	// comes from the flow's definition or from the Store. The goroutine of the step calls it
	// before each attempt. The step gets the secret as text. The record of the attempt has
	// "[secret NAME]" in its place. nil: there are no secrets, and such a step fails.
	Secrets func(ctx context.Context, name string) (string, error)
	// Checkpoints reads the recorded checkpoints of a step. The goroutine of the step calls it before an attempt
	// whose round has checkpoints. An error fails the attempt before the step is called. nil: each attempt starts
	// without the checkpoints of earlier attempts.
	Checkpoints func(ctx context.Context, step string) (logbook.Values, error)
	// Output is called with each line that a step writes to flow.Output or flow.Logger, without
	// its end and without secrets. The goroutines of steps call it, so it must not block. nil:
	// the lines are dropped.
	Output func(call *flow.Call, line string)
	// Attempt is called when an attempt starts, by the attempt's goroutine. The task gets the returned
	// context. end is called when the attempt ends: with its failure, without secrets, or nil.
	// again reports that the step runs again later, as it requested. Neither may block. nil:
	// none.
	Attempt func(ctx context.Context, call *flow.Call) (_ context.Context, end func(failure *logbook.Failure, again bool))
	// Offer offers the steps of flow.OnWorker to workers. The goroutines of steps call it. nil:
	// such steps fail.
	Offer flow.Offer
	// Untaken is called with true when only offered attempts that no worker has taken are
	// running, and with false when that changes, unless the run ends. The loop calls it, so it
	// must not block. nil: none.
	Untaken func(only bool)
	// Observe is called with every change, in order, when the change is decided, which is before
	// it is durable. The loop calls it, so it must not block. After a panic it is not called
	// again.
	Observe func(Event)
	// Grace is the time that a run which ends early waits for its steps before it abandons them.
	// 0: DefaultGrace.
	Grace time.Duration
	// Now is the clock for recorded times and due steps. It must not go back. The flow's next
	// owner, on another machine, uses the recorded times too. nil: time.Now.
	Now    func() time.Time
	Limits logbook.Limits // zero fields: as in logbook.MaxLimits
	Logger hclog.Logger   // nil: none
	// HideFailures keeps the texts of failures out of the log, because they can contain values.
	HideFailures bool
}

// Journal takes updates in order and makes them durable.
type Journal interface {
	// Record takes the flow's next update and returns at once. The channel (buffered, one value)
	// receives nil when the update is durable, or the reason of its refusal. No update of a flow
	// is durable before an earlier one. One goroutine at a time calls Record for a flow.
	Record(update logbook.Update) <-chan error
}

// End is the end of a run.
type End struct {
	State logbook.FlowState
	// Update is the last update, not yet recorded: the caller writes it together with the job's
	// ending. nil: nothing is left to write.
	Update *logbook.Update
	// Cause is the failure that ended the flow, if it has not succeeded.
	Cause *logbook.Failure
	// WaitUntil is set if the flow has not ended and only waits (Options.MaxIdle). It is the time
	// at which its next step, WaitFor, is due. The flow's state is unchanged.
	WaitUntil time.Time
	Wait      time.Duration // from now to WaitUntil
	WaitFor   string
	Awaits    *logbook.Wait // the wait or the sleep of WaitFor; nil: it waits for its next attempt
	// Unrecorded is set with an error if steps have started unmarked (Options.Begins) and it is
	// possible that the run has recorded nothing.
	Unrecorded bool
	// Again continues the job with another iteration of the flow: see flow.Again. nil: the job ends.
	Again *Continuation
}

// Event is one change of a step; if Step is empty, of the flow. If Difference is set, the
// event is one accepted change of the flow's definition.
type Event struct {
	Time  time.Time
	Step  string
	State logbook.AtomState // of the step; empty: unchanged
	Flow  logbook.FlowState // of the flow; changed if the event has neither Step nor Difference
	// Attempt is the attempt that started or ended; nil: none.
	Attempt *logbook.Attempt
	RetryAt time.Time
	// Difference is one difference between the recorded definition of the flow and the current one.
	Difference *flow.Difference
	// Progress is the step's progress as recorded: at most once a second, and when the step ends.
	// nil: nothing new.
	Progress *logbook.Progress
}

// Run runs a flow until it has ended, is suspended, or cannot continue. Every update but the last
// is durable on return.
//
// An error means that the flow has not ended here, and that nothing more will be written. It is
// the cause of ctx's end, the Journal's error, ErrMismatch, ErrPinned, ErrChanged,
// flow.ErrMissing or ErrGate. Running steps have then been cancelled.
//
// For a flow that had ended before, Run returns that end, unless an operator has intervened
// since. Then Run carries out the intervention and the flow continues. An intervention that
// cannot be carried out changes nothing: the flow ends again as before, with a cause of kind
// logbook.FailureIntervention.
func Run(ctx context.Context, options Options) (End, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, err)
	}
	if state := options.Detail.State; state.Finished() && !options.Detail.Resumable() {
		return End{State: state, Cause: options.Detail.Cause}, nil
	}
	revision, err := revise(&options)
	if err != nil {
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, err)
	}
	if err := options.grow(); err != nil {
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, revision.explain(err))
	}
	work, refusal, err := intervene(&options, options.Now())
	switch {
	case err != nil:
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, revision.explain(err))
	case refusal != nil:
		return endRefused(&options, refusal), nil
	}
	if err := options.grow(); err != nil { // computed again: an opening may run again
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, revision.explain(err))
	}
	missing := addMissingMarks(&options, options.Now())
	c, err := newCore(&options, revision, work)
	if err != nil {
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, err)
	}
	missing.write(c.out)
	c.found.takenOver = work == nil && isTakenOver(&options)
	l := newLoop(ctx, &options, c)
	l.ahead = newAhead(&options, work != nil)
	if work == nil {
		l.unmarked = unmarkedNames(&options, revision, options.Now())
	}
	end, err := l.run()
	if err != nil {
		return End{Unrecorded: l.startedUnmarked}, fmt.Errorf("cannot continue flow %s: %w", options.Detail.ID, err)
	}
	return end, nil
}

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	o.Limits = o.Limits.WithDefaults()
	o.Limits.Value = min(o.Limits.Value, o.Limits.Command/resultShare)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Detail.State == "" {
		o.Detail.State = logbook.FlowPending
	}
	return o
}

func (o *Options) validate() error {
	var faults []error
	if o.Plan == nil {
		faults = append(faults, errors.New("the plan is missing"))
	}
	if o.Journal == nil {
		faults = append(faults, errors.New("the journal is missing"))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers is %d; it must not be negative", o.Workers))
	}
	if o.Grace < 0 {
		faults = append(faults, fmt.Errorf("grace is %s; it must not be negative", o.Grace))
	}
	return errors.Join(faults...)
}
