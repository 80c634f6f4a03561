// Package engine runs a plan of package flow: it starts the steps that are
// ready, records every outcome in the logbook, retries, reverts, suspends,
// and resumes a flow wherever its atom details stand.
//
// It has two halves. The *core* decides: from the plan and the atom details
// it knows which steps may start, and what one outcome changes; it does no
// I/O, starts no goroutine and reads no clock. The *loop* around it starts
// steps, gathers outcomes and hands the core's updates to a Journal. A fresh
// run is a resume from an empty flow detail, so there is one way to begin.
//
// # Guarantees
//
//   - Everything that follows from an outcome is one logbook.Update: the
//     attempt's end, the changes of state, and the RUNNING marks of what
//     starts next. Outcomes that arrive together share one.
//   - A step whose result was recorded is never executed again. A step whose
//     outcome was not recorded is: side effects happen at least once.
//   - An attempt begins only after its mark, and the outcomes that led to it,
//     are durable: whatever a crash makes the engine forget has had no effect.
//     The steps with which a flow begins may be an exception: see
//     Options.Begins. Of a flow that has Begun, and of which nothing is
//     recorded, they are recorded as RUNNING before anything else is.
//   - A step that is at most once and is found RUNNING on a resume has failed
//     with the kind logbook.FailureAtMostOnce, and the flow reverts.
//   - Steps revert in the reverse of the order in which they had to run, each
//     when all that follow it are undone, the failed step included.
//   - Only a failure that every retry around the step leaves to the next, or
//     that one wants everything reverted for, reverts the flow. One that a
//     retry answers by trying again undoes the flow of that retry in the same
//     order, and begins it again; what stands before it is not touched. The
//     answer, and the time until which it waits, are recorded with the failure
//     and not asked for again; a round that has begun is never forgotten, so
//     a retry has as many as it was given, however often its conductors die.
//     While it undoes, a later failure or a cancellation may still revert
//     everything; nothing turns that back.
//   - What a decider says is recorded with what follows from it: that steps
//     are ignored, or that they run.
//   - A flow whose revert fails is FAILURE and stays so: nothing more starts,
//     until a person intervenes. What persons want done is carried out as a
//     whole, before anything else, under the next claim; a conductor that dies
//     amidst is no reason for doing it twice, or by half.
//   - However much a step leaves behind, and however often it is tried, its
//     flow can be written and read: a result that is too large is a failure,
//     failures and stderr are cut, and the logbook folds the oldest attempts.
//   - A whole run costs O(steps + edges), whatever the shape of the flow; and
//     as much again for each time that a flow.Each takes its list, where those
//     that do so together count once.
//
// # Assumptions
//
// The Journal keeps the order of updates. Plan and flow detail belong
// together; where they do not, Run refuses with ErrMismatch before it changes
// anything. Tasks return soon after their context ends.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// DefaultWorkers is how many steps of a flow run at once. Steps mostly
	// wait, for a process or another system, so it is not a number of cores.
	DefaultWorkers = 16
	// DefaultGrace is how long Run waits for steps whose context has ended.
	// It is longer than handlers get between SIGTERM and SIGKILL.
	DefaultGrace = 5 * time.Second
	// maxUnacknowledged bounds the updates that are not yet durable: with
	// more, a slow cluster would let a fast flow run ahead without end.
	maxUnacknowledged = 256
)

var (
	// ErrMismatch: the flow detail and the plan do not belong together, or
	// the detail is in a state that no engine leaves behind.
	ErrMismatch = errors.New("the flow detail does not match the flow")
	// ErrPinned: the flow was begun as it is not built here, and is pinned to
	// how it was (logbook.ChangePin). Somebody else may have that code.
	ErrPinned = errors.New("the flow is pinned to how it was begun, and is built otherwise here")
	// ErrChanged: the flow was begun as it is not built here, and goes on in
	// no other way (logbook.ChangeRefuse).
	ErrChanged = errors.New("the flow is built otherwise than it was begun, which it refuses")
	// ErrGate: the gate refused to let a step start.
	ErrGate = errors.New("the gate is closed")
)

// Options is one run.
type Options struct {
	Plan *flow.Plan
	// Detail is the flow as the logbook has it; its Store is not used.
	Detail logbook.FlowDetail
	// Store holds the values that no step provides: the flow's, overlaid by
	// the job's.
	Store logbook.Values
	// Job, Token and Owner go into attempts and calls.
	Job   string
	Token logbook.Token
	Owner string
	// Begins says that the claim under Token stands for the marks of the steps
	// with which the flow begins, so that they are not waited for. Whoever sets
	// it sees to it that Detail has Begun in the next run, if this one is cut off
	// or ends Unrecorded, and nothing of the flow is recorded.
	Begins bool

	Journal Journal
	// Workers bounds the steps that run at once. 0: DefaultWorkers.
	Workers int
	// Pool bounds the steps that run at once in all runs that share it, besides
	// Workers, and holds what runs under their concurrency keys. nil: one for
	// this run alone, of as many as Workers.
	Pool *Pool
	// Park ends a run in which nothing runs and nothing can start for longer
	// than this: see End.WaitUntil. 0 or less: it waits in place.
	Park time.Duration
	// Suspend, when closed, stops the flow where it is: nothing new starts,
	// what runs ends and is recorded. A step whose mark is already on its way
	// to the logbook counts as running and still starts: held back, it would
	// be RUNNING for its next owner, and one that is at most once would have
	// failed without having begun. nil: never.
	Suspend <-chan struct{}
	// Revert, when closed, turns the flow round: nothing more is executed,
	// what runs is awaited, and everything that was done is undone, as after
	// a failure; a flow that has not begun ends REVERTED without running
	// anything. It is durable like every failure, so that whoever takes the
	// flow up later goes on reverting, told or not. To a flow that reverts
	// already or has ended it means nothing. nil: never.
	Revert <-chan struct{}
	// RevertCause is asked, once, why Revert was closed. nil, or an answer of
	// nil: a failure of kind logbook.FailureOperator. A panic ends the run with
	// an error.
	RevertCause func() *logbook.Failure
	// Gate is called before each step starts, by the goroutine of the step,
	// and blocks while the claim is in doubt. An error, or a panic, ends the run. The step
	// is marked RUNNING by then, or else its flow counts as begun (see Begins),
	// so one that is at most once and is refused here counts as begun. nil: open.
	Gate func(ctx context.Context) error
	// Observe is told every change, in order, when it is decided, which is
	// before it is durable. It is called by the loop and must not block. One
	// that panics is told nothing more.
	Observe func(Event)
	// Grace is how long a run that ends early waits for its steps; one that
	// takes longer is left behind. 0: DefaultGrace.
	Grace time.Duration
	// Now reads the time that is recorded, and by which steps are due; it must not
	// go back. Times are recorded for the flow's next owner too, on another
	// machine. nil: time.Now.
	Now    func() time.Time
	Limits logbook.Limits // fields that are zero: those of logbook.MaxLimits
	Logger hclog.Logger   // nil: none
}

// Journal takes updates in order and makes them durable.
type Journal interface {
	// Record hands over the flow's next update and returns at once; the
	// channel (buffered, one value) gives the outcome when it is durable or
	// refused. Later updates of one flow are never durable before earlier
	// ones. It is called by one goroutine at a time for one flow.
	Record(update logbook.Update) <-chan error
}

// End is how a run ended.
type End struct {
	State logbook.FlowState
	// Update is the last update, not yet recorded: the caller writes it
	// together with the job's ending. nil if nothing is left to write.
	Update *logbook.Update
	// Cause is why the flow has not succeeded, if it has not.
	Cause *logbook.Failure
	// WaitUntil is set where the flow has not ended and only waits, to try the
	// step WaitFor then or to ask it again: its state is as it was.
	WaitUntil time.Time
	Wait      time.Duration // how long it is until then
	WaitFor   string
	// Unrecorded is set beside an error: the flow has begun, as Options.Begins
	// allows, and perhaps nothing of that is recorded.
	Unrecorded bool
}

// Event is one change of a step, or of the flow if Step is empty. Where the
// flow is built otherwise than it was begun, it is one difference that has
// been accepted, and nothing else.
type Event struct {
	Time  time.Time
	Step  string
	State logbook.AtomState // of the step; empty: unchanged
	Flow  logbook.FlowState // of the flow
	// Attempt is the attempt that began or ended; nil: none did.
	Attempt *logbook.Attempt
	RetryAt time.Time
	// Difference is one between how the flow was begun and how it is built
	// now; nil: this is about something else.
	Difference *flow.Difference
	// Progress is what the step has said of itself, where that is recorded:
	// at most once a second, and when it ends. nil: nothing new.
	Progress *logbook.Progress
}

// Run runs a flow until it has ended, is suspended, or cannot go on. Every
// update but the last is durable on return.
//
// An error means that the flow has not ended here and that nothing more will
// be written: the cause of ctx's end, the Journal's error, or ErrMismatch,
// ErrPinned, ErrChanged, flow.ErrMissing and ErrGate for what their texts say. Steps that ran have
// been cancelled then. A flow that had ended already gives its end at once,
// unless somebody has intervened since: then that is carried out, and the flow
// goes on from there. What cannot be carried out changes nothing, and the flow
// ends again as it had, with a cause of kind logbook.FailureIntervention.
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
		return refused(&options, refusal), nil
	}
	if err := options.grow(); err != nil { // anew: an opening may be run again
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, revision.explain(err))
	}
	made := makeUp(&options, options.Now())
	c, err := newCore(&options, revision, work)
	if err != nil {
		return End{}, fmt.Errorf("cannot run flow %s: %w", options.Detail.ID, err)
	}
	made.write(c.out)
	l := newLoop(ctx, &options, c)
	end, err := l.run()
	if err != nil {
		return End{Unrecorded: l.hasBegun}, fmt.Errorf("cannot go on with flow %s: %w", options.Detail.ID, err)
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
	o.Limits.Name = cmp.Or(o.Limits.Name, logbook.MaxLimits.Name)
	o.Limits.Value = cmp.Or(o.Limits.Value, logbook.MaxLimits.Value)
	o.Limits.Command = cmp.Or(o.Limits.Command, logbook.MaxLimits.Command)
	o.Limits.Steps = cmp.Or(o.Limits.Steps, logbook.MaxLimits.Steps)
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
		faults = append(faults, errors.New("no plan is given"))
	}
	if o.Journal == nil {
		faults = append(faults, errors.New("no journal is given"))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers must not be negative, as %d is", o.Workers))
	}
	if o.Grace < 0 {
		faults = append(faults, fmt.Errorf("grace must not be negative, as %s is", o.Grace))
	}
	return errors.Join(faults...)
}
