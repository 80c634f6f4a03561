package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// localOwner is the owner of attempts in a run without a cluster.
const localOwner = "local"

// ErrSuspended: the flow was suspended, and has not ended.
var ErrSuspended = errors.New("the flow is suspended")

// RunLocal runs a flow in this process, without a cluster and with the same semantics. It is
// Local.Run with all defaults.
func RunLocal(ctx context.Context, root flow.Node, store logbook.Values) (Result, error) {
	return Local{}.Run(ctx, root, store)
}

// Local runs flows in this process. Its zero value is ready to use, also for many runs at once.
//
// A run is recorded in a logbook, like the flow of a job. With their own Logbook and the Flow's
// id, callers can continue a flow that an earlier run has left. No claim protects the flow, so
// the caller must not run one flow in two places at once.
type Local struct {
	// Logbook keeps the record. nil: one in memory, which ends with the run.
	Logbook logbook.Connection
	// Flow is the flow's id. If the Logbook has this flow, the run continues it. Zero: a
	// new id, returned in Result.
	Flow logbook.FlowID
	// Targets limit the run to these steps and the steps that they wait for. They are recorded
	// with the flow, so a later run can only repeat them. None: all steps, or the recorded
	// targets.
	Targets []string
	// Workers limits the parallel steps of a run. 0: DefaultWorkers.
	Workers int
	// Pool is Options.Pool, for runs that share one. nil: one for each run.
	Pool *Pool
	// Suspend, when closed, suspends the flow: nothing new starts, and running steps end and are
	// recorded. nil: never.
	Suspend <-chan struct{}
	// Revert, when closed, reverts the flow, as Options.Revert does: the run ends when everything
	// is undone. nil: never.
	Revert <-chan struct{}
	// Interrupt is Options.Interrupt. nil: never.
	Interrupt <-chan time.Duration
	// Signals is Options.Signals: the Logbook has each signal before the run. nil: none.
	Signals <-chan TakenSignal
	// Observe is Options.Observe: it must not block. Listeners of package listen may block. nil:
	// none.
	Observe func(Event)
	Secrets func(ctx context.Context, name string) (string, error) // Options.Secrets
	Output  func(call *flow.Call, line string)                     // Options.Output
	Limits  logbook.Limits                                         // zero fields: as in logbook.MaxLimits
	Logger  hclog.Logger                                           // nil: none
}

// Result is the state of a flow after a run.
type Result struct {
	Flow  logbook.FlowID
	State logbook.FlowState
	// Steps are the results of the steps in state success, by step.
	Steps logbook.Values
	// Values are the values that steps and retries provide, by symbol: see
	// logbook.FlowDetail.Values.
	Values logbook.Values
	// Detail is the record: every step and every attempt at it.
	Detail logbook.FlowDetail
	// Again is set if the flow continues with another iteration: see flow.Again and Next. A run ends after one
	// iteration.
	Again *Continuation
}

// Next returns the store of the next iteration, for a run with another flow id; nil if the flow does not continue.
func (r *Result) Next() logbook.Values {
	if r.Again == nil {
		return nil
	}
	store := logbook.Values{}
	maps.Copy(store, r.Detail.Store)
	maps.Copy(store, r.Again.Values)
	return store
}

// Decode is Values.Decode.
func (r *Result) Decode(symbol string, into any) error { return r.Values.Decode(symbol, into) }

// Run runs or resumes a flow until it has ended. The store holds the values that no step
// provides. It is recorded with the flow: a later run needs none, and a different one is
// logbook.ErrConflict.
//
// The error is nil if the flow succeeded. If the flow is reverted or failed, the error is a
// *logbook.EndError, which wraps the cause, a *logbook.Failure. It is a logbook.ErrReverted, or a
// logbook.ErrFailed if a revert has failed too or the flow is held, and an operator must intervene.
// After Suspend, the error is ErrSuspended.
//
// Any other error, such as the cause of ctx's end, means that the flow has not ended. Its running steps were cancelled,
// and a later run can continue it. The Result holds everything that could be read, even after an error.
func (l Local) Run(ctx context.Context, root flow.Node, store logbook.Values) (Result, error) {
	l = l.withDefaults()
	detail, plan, err := l.prepare(ctx, root, store)
	if err != nil {
		return Result{Flow: l.Flow}, err
	}
	j := openLocalJournal(ctx, l.Logbook)
	var timeUp time.Time // of this Run: the record has no start of an earlier one
	if timeout := plan.Timeout(); timeout > 0 {
		timeUp = time.Now().Add(timeout)
	}
	end, err := Run(ctx, Options{Plan: plan, TimeUp: timeUp, Detail: detail, Store: detail.Store, Owner: localOwner, Journal: j, Workers: l.Workers, Pool: l.Pool,
		Suspend: l.Suspend, Revert: l.Revert, Interrupt: l.Interrupt, Signals: l.Signals, Observe: l.Observe, Checkpoints: l.checkpoints, Secrets: l.Secrets, Output: l.Output, Limits: l.Limits, Logger: l.Logger})
	if finishErr := j.finish(ctx, end.Update); finishErr != nil {
		err = fmt.Errorf("cannot record the end of flow %s: %w", l.Flow, finishErr)
	}
	result, readErr := l.result(ctx, plan)
	result.Again = end.Again
	if err == nil {
		err = readErr
	}
	if err == nil {
		err = result.Detail.Err()
	}
	if err == nil && end.State == logbook.FlowSuspended {
		err = fmt.Errorf("flow %q has not ended: %w", plan.Name(), ErrSuspended)
	}
	return result, err
}

func (l Local) checkpoints(ctx context.Context, step string) (logbook.Values, error) {
	return l.Logbook.Checkpoints(ctx, l.Flow, step)
}

func (l Local) withDefaults() Local {
	l.Limits = Options{Limits: l.Limits}.withDefaults().Limits
	if l.Logbook == nil {
		l.Logbook = memory.New(l.Limits)
	}
	if l.Flow.IsZero() {
		l.Flow = logbook.NewFlowID()
	}
	return l
}

// prepare loads the flow from the logbook, or saves it there. A flow with faults is
// not saved.
func (l Local) prepare(ctx context.Context, root flow.Node, store logbook.Values) (logbook.FlowDetail, *flow.Plan, error) {
	detail, err := l.Logbook.FlowDetail(ctx, l.Flow)
	found := err == nil
	switch {
	case errors.Is(err, logbook.ErrNotFound):
		detail = logbook.FlowDetail{ID: l.Flow, Store: store, Targets: l.Targets}
	case err != nil:
		return detail, nil, fmt.Errorf("cannot continue flow %s: %w", l.Flow, err)
	case store != nil && !maps.EqualFunc(store, detail.Store, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }):
		return detail, nil, fmt.Errorf("cannot continue flow %s: %w: the flow started with a different store", l.Flow, logbook.ErrConflict)
	case len(l.Targets) > 0 && !slices.Equal(l.Targets, detail.Targets):
		return detail, nil, fmt.Errorf("cannot continue flow %s: %w: the flow started with different targets", l.Flow, logbook.ErrConflict)
	}
	plan, err := flow.Compilation{Limits: l.Limits, Inputs: slices.Sorted(maps.Keys(detail.Store)), Targets: detail.Targets}.Compile(root)
	if err != nil {
		return detail, nil, err
	}
	if found {
		if detail.Name != plan.Name() {
			return detail, nil, fmt.Errorf("cannot continue flow %s: %w: it is %q, not %q", l.Flow, ErrMismatch, detail.Name, plan.Name())
		}
		return detail, plan, nil
	}
	detail.Name, detail.Factory = plan.Name(), logbook.Factory{Name: plan.Name()}
	book := logbook.Book{ID: logbook.NewBookID(), Name: plan.Name(), Flows: []logbook.FlowDetail{detail}}
	if err := l.Logbook.SaveBook(ctx, book); err != nil {
		return detail, nil, fmt.Errorf("cannot start flow %q: %w", plan.Name(), err)
	}
	return detail, plan, nil
}

// result reads the record, even after ctx has ended: the result matters most for a run that was
// cut off.
func (l Local) result(ctx context.Context, plan *flow.Plan) (Result, error) {
	r := Result{Flow: l.Flow}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultGrace)
	defer cancel()
	detail, err := l.Logbook.FlowDetail(ctx, l.Flow)
	if err != nil {
		return r, fmt.Errorf("cannot read the outcome of flow %s: %w", l.Flow, err)
	}
	r.State, r.Detail = detail.State, detail
	r.Steps = make(logbook.Values)
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		if result, ok := atom.Result(); ok && atom.Kind == logbook.KindTask && atom.State == logbook.AtomSuccess {
			r.Steps[atom.Name] = result
		}
	}
	definition := plan.Definition() // also where it was too long for the record
	detail.Definition = &definition
	if r.Values, err = detail.Values(); err != nil {
		return r, fmt.Errorf("cannot read the outcome of flow %s: %w", l.Flow, err)
	}
	return r, nil
}

// localJournal writes a flow's updates to a logbook, in order and one by one,
// in a goroutine that ends with close.
type localJournal struct {
	logbook logbook.Connection
	ctx     context.Context // of the writes: it outlives the run's for a while
	cancel  context.CancelFunc
	queue   chan localUpdate
	done    chan struct{} // closed when everything is answered
	once    sync.Once     // for close
}

type localUpdate struct {
	update logbook.Update
	result chan<- error
}

func openLocalJournal(ctx context.Context, conn logbook.Connection) *localJournal {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := &localJournal{logbook: conn, ctx: ctx, cancel: cancel, queue: make(chan localUpdate, maxUnacknowledged), done: make(chan struct{})}
	go j.write()
	return j
}

// Record blocks only while the queue is full. The queue holds more updates than the engine leaves
// unacknowledged.
func (j *localJournal) Record(update logbook.Update) <-chan error {
	result := make(chan error, 1)
	j.queue <- localUpdate{update: update, result: result}
	return result
}

// write stops at the first refusal: later updates depend on the refused one.
func (j *localJournal) write() {
	defer close(j.done)
	var broken error
	for next := range j.queue {
		if broken == nil {
			results, err := j.logbook.Update(j.ctx, next.update)
			broken = errors.Join(append(results, err)...)
		}
		next.result <- broken
	}
}

// finish writes the last update, if there is one, and ends the journal.
func (j *localJournal) finish(ctx context.Context, last *logbook.Update) error {
	defer j.close()
	if last == nil {
		return nil
	}
	result := j.Record(*last)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		// The write may still succeed. Its result is then used.
		j.close()
		return <-result
	}
}

// close writes the queued updates. After DefaultGrace it gives up.
func (j *localJournal) close() {
	j.once.Do(func() { close(j.queue) })
	ctx, cancel := context.WithTimeout(j.ctx, DefaultGrace)
	defer cancel()
	stop := context.AfterFunc(ctx, j.cancel)
	<-j.done
	stop()
	j.cancel()
}
