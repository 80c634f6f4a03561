package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// errPanicked is the cause of cancellation for steps whose engine has panicked.
var errPanicked = errors.New("the engine has panicked")

// loop drives a core: it starts the attempts that the core returns, passes their
// outcomes to it, and records its updates. Only run's goroutine touches the loop;
// the goroutine of an attempt only sends its report.
type loop struct {
	options *Options // of this run: Suspend and Revert are nil once they were closed
	core    *core
	outer   context.Context // of the run
	steps   context.Context // of the steps; ends with the run's, or by abort
	cancel  context.CancelCauseFunc
	inPool  *poolRun  // nil: the run is in no pool yet
	now     time.Time // of the last event: the clock is read once for all its consequences

	marks       *marks
	onlyUntaken bool // the last value passed to Options.Untaken
	progress    *progressReports
	progressDue time.Time // when to look at progress; zero: when it wakes the loop

	// reports has room for every attempt, so that an abandoned one can always
	// end. No step has two attempts at once.
	reports         chan report
	inFlight        int
	attempts        map[string]*interruptible // of those in flight and held, by step
	interrupting    bool                      // Options.Interrupt has requested it
	grace           time.Duration             // of interrupted executions
	unmarked        map[string]bool           // first steps that may start before their marks are durable
	startedUnmarked bool                      // one of them has started
	abandoned       atomic.Bool               // the attempts in flight are not waited for any more

	unacknowledged queue[pendingUpdate] // oldest first
	acknowledged   uint64               // updates before those
	recorded       uint64
	ahead          ahead
	held           queue[heldStart] // in the order of their updates
	notYet         *permit          // of the last report of NotYet
}

// report is the outcome of an attempt, or the gate's refusal to let it start.
type report struct {
	outcome
	permit  *permit
	plan    *flow.Plan // from the start
	refused error
}

// heldStart is an attempt whose mark, or an update before that, is not durable yet.
type heldStart struct {
	start
	ctx   context.Context
	after uint64 // it may start when this number of updates is acknowledged
}

func newLoop(ctx context.Context, o *Options, c *core) *loop {
	steps, cancel := context.WithCancelCause(ctx)
	most := min(o.Workers, o.Limits.Steps)
	if !o.Plan.Grows() {
		most = min(most, o.Plan.Len())
	}
	l := &loop{options: o, core: c, outer: ctx, steps: steps, cancel: cancel,
		marks: newMarks(), progress: newProgressReports(&o.Limits, o.Now), reports: make(chan report, most),
		attempts: make(map[string]*interruptible), grace: flow.DefaultGrace}
	if o.Pool != nil {
		l.inPool = o.Pool.join()
	}
	return l
}

func (l *loop) run() (end End, err error) {
	defer l.cancel(nil)
	defer l.leavePool()
	panics := true
	defer func() {
		if panics {
			l.abortOnPanic()
		}
	}()
	end, err = l.drive()
	panics = false
	return end, err
}

// drive repeats one round until the run is over: take requests from outside, start
// what is ready, record what changed, and wait for the next event.
func (l *loop) drive() (End, error) {
	l.now = l.options.Now()
	l.core.adopt(l.options, l.now)
	l.core.begin(l.now)
	for {
		if err := l.poll(); err != nil {
			return End{}, l.abort(err)
		}
		starts := l.core.next(l.now, l.options.Workers, l)
		if state, over := l.core.end(); over {
			return l.finish(state, l.now)
		}
		if due, idle := l.core.idle(l.options.TimeUp); idle && l.mayLeave(due.at) {
			waits, wait := l.core.awaited()
			if wait == nil {
				wait = l.core.sleep(due.step)
			}
			end, err := l.conclude(End{State: l.core.out.state, Cause: l.core.cause, WaitUntil: due.at, WaitFor: cmp.Or(waits, l.core.plan.Step(due.step).Name()), Awaits: wait})
			end.Wait = max(0, due.at.Sub(l.options.Now()))
			return end, err
		}
		l.takeProgress()
		starts, ended, err := l.startEarly(starts)
		if err == nil && !ended && !l.lingers(starts) {
			l.record(l.core.out.take())
		}
		if err == nil {
			err = l.acknowledgeReady()
		}
		if err != nil {
			for _, s := range starts {
				s.permit.release()
			}
			return End{}, l.abort(err)
		}
		if ended {
			continue
		}
		for _, s := range starts {
			l.launch(s)
		}
		l.interruptSteps()
		l.tellUntaken()
		if err := l.wait(); err != nil {
			return End{}, l.abort(err)
		}
	}
}

// mayLeave reports whether a run that is idle until a time ends, so that its job is released. A signal can come at
// any moment, and the board takes it, so a flow that waits for one does not keep its job.
func (l *loop) mayLeave(until time.Time) bool {
	_, wait := l.core.awaited()
	return l.options.MaxIdle > 0 && (wait != nil || until.Sub(l.now) > l.options.MaxIdle)
}

// poll takes requests to revert, suspend or interrupt, and finds the end of the context.
func (l *loop) poll() error {
	// First: the caller asks for the revert or the suspension before the interruption.
	select {
	case grace := <-l.options.Interrupt:
		l.requestInterrupt(grace)
	default:
	}
	select {
	case <-l.options.Revert:
		l.options.Revert = nil
		cause, err := l.revertCause()
		if err != nil {
			return err
		}
		l.core.requestRevert(cause, l.now)
	default:
	}
	select {
	case step := <-l.options.RetryNow:
		l.core.retryNow(step)
	case taken := <-l.options.Signals:
		l.core.takeSignal(&taken)
	default:
	}
	select {
	case <-l.options.Suspend:
		l.options.Suspend, l.core.suspended = nil, true
	default:
	}
	if l.core.isTimeUp(l.options.TimeUp, l.now) {
		l.core.requestRevert(overtime(l.options.Plan.Timeout()), l.now)
		l.interrupting = true
	}
	if l.interrupting {
		l.interrupting = false
		l.core.interruptRunning()
	}
	if l.outer.Err() != nil {
		return context.Cause(l.outer)
	}
	return nil
}

// revertCause asks Options.RevertCause. A panic becomes an error, since steps are
// running.
func (l *loop) revertCause() (cause *logbook.Failure, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("cannot get the cause of the revert: %w", &flow.PanicError{Value: value, Stack: string(debug.Stack())})
		}
	}()
	if l.options.RevertCause != nil {
		cause = l.options.RevertCause()
	}
	if cause == nil {
		cause = &logbook.Failure{Kind: logbook.FailureOperator, Message: "the flow was cancelled"}
	}
	return flow.FitFailure(cause, l.options.Limits), nil
}

func (l *loop) record(updates []logbook.Update) {
	since := l.ahead.since
	if since.IsZero() {
		since = l.now
	}
	l.ahead.since, l.ahead.until = time.Time{}, time.Time{}
	for i := range updates {
		u := pendingUpdate{durable: l.options.Journal.Record(updates[i]), since: since, bytes: UpdateSize(&updates[i])}
		l.unacknowledged.push(u)
		l.ahead.bytes += u.bytes
		l.recorded++
	}
	if l.ahead.waiting && len(updates) > 0 {
		l.ahead.waiting, l.ahead.after = false, l.recorded
	}
}

// launch starts an attempt, or holds it until all updates up to its own mark are durable; only
// startEarly makes exceptions. An effect without a mark would never be undone. If a revert started
// before its cause, a failure, is durable, a crash could lose the failure: the flow would then
// succeed with work undone.
func (l *loop) launch(s start) {
	ctx := l.ready(s)
	if l.acknowledged < l.recorded {
		l.held.push(heldStart{start: s, ctx: ctx, after: l.recorded})
		return
	}
	l.inFlight++
	go l.perform(ctx, s)
}

// wait waits for the next event, and takes all reports that have arrived with it.
func (l *loop) wait() error {
	reports := l.reports
	var acknowledgement <-chan error
	if l.unacknowledged.len() > 0 {
		acknowledgement = l.unacknowledged.first().durable
	}
	marks := l.marks.asked
	if l.unacknowledged.len() >= maxUnacknowledged {
		reports, marks = nil, nil
	}
	var wakeup <-chan struct{}
	if l.inPool != nil {
		wakeup = l.inPool.wakeup
	}
	var due <-chan time.Time
	if at, ok := l.nextDue(); ok {
		timer := time.NewTimer(at.Sub(l.options.Now()))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case r := <-reports:
		l.now = l.options.Now()
		return l.takeReports(r)
	case err := <-acknowledgement:
		l.now = l.options.Now()
		return l.acknowledge(err)
	case m := <-marks:
		l.now = l.options.Now()
		l.mark(m)
		return nil
	case <-due:
	case <-l.progress.wakeup:
	case <-wakeup:
	case <-l.options.Suspend:
	case <-l.options.Revert:
	case grace := <-l.options.Interrupt:
		l.requestInterrupt(grace)
	case step := <-l.options.RetryNow:
		l.core.retryNow(step)
	case taken := <-l.options.Signals:
		l.core.takeSignal(&taken)
	case <-l.outer.Done():
	}
	l.now = l.options.Now()
	return nil
}

func (l *loop) requestInterrupt(grace time.Duration) {
	l.interrupting = true
	if l.grace = grace; grace <= 0 {
		l.grace = flow.DefaultGrace
	}
}

// takeProgress records progress that is due, unless too many updates are unacknowledged.
func (l *loop) takeProgress() {
	l.progressDue = time.Time{}
	if l.unacknowledged.len() >= maxUnacknowledged {
		return
	}
	var record []progressRecord
	record, l.progressDue = l.progress.due(l.now)
	for i := range record {
		l.core.progressed(&record[i], l.now)
	}
}

// nextDue is the time at which the loop must wake without an event; false: never.
func (l *loop) nextDue() (time.Time, bool) {
	at, ok := l.core.nextDue()
	timeUp := l.options.TimeUp
	if l.core.ignoresTimeUp() {
		timeUp = time.Time{}
	}
	for _, due := range [...]time.Time{l.progressDue, l.ahead.until, timeUp} {
		if !due.IsZero() && (!ok || due.Before(at)) {
			at, ok = due, true
		}
	}
	return at, ok
}

// takeReports takes a report and all reports queued after it. Their changes share one update.
func (l *loop) takeReports(r report) error {
	for {
		l.inFlight--
		if r.notYet == nil || r.refused != nil {
			r.permit.release()
		} else {
			r.permit.releaseWorker()
			l.notYet = r.permit
		}
		if r.refused != nil {
			return fmt.Errorf("%w: %w", ErrGate, r.refused)
		}
		l.forgetAttempt(r.plan.Step(r.step).Name())
		r.step = l.core.numberOf(r.plan, r.step)
		l.log(&r.outcome)
		l.core.finish(r.outcome, l.now)
		if r.notYet != nil {
			l.core.keep(r.step, r.permit)
			l.notYet = nil
		}
		select {
		case r = <-l.reports:
		default:
			return nil
		}
	}
}

// acknowledgeReady takes the acknowledgements that have arrived already. With a journal as
// fast as memory this saves one round of the loop per step.
func (l *loop) acknowledgeReady() error {
	for l.unacknowledged.len() > 0 {
		select {
		case err := <-l.unacknowledged.first().durable:
			if err := l.acknowledge(err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// acknowledge takes the journal's result for the oldest update, and starts the steps
// that were held for it.
func (l *loop) acknowledge(err error) error {
	if err != nil {
		return fmt.Errorf("cannot record: %w", err)
	}
	durable, _ := l.unacknowledged.pop()
	l.ahead.bytes -= durable.bytes
	l.acknowledged++
	l.marks.acknowledge(l.acknowledged)
	for l.held.len() > 0 && l.held.first().after <= l.acknowledged {
		held, _ := l.held.pop()
		l.inFlight++
		go l.perform(held.ctx, held.start)
	}
	return nil
}

// finish moves the flow to its state at the end of the run, and concludes the run.
func (l *loop) finish(state logbook.FlowState, now time.Time) (End, error) {
	var cause *logbook.Failure
	if state == logbook.FlowFailure || state == logbook.FlowReverted {
		cause = l.core.cause
	}
	if state == logbook.FlowFailure {
		l.core.failInterrupted(now)
	}
	l.core.out.flow(state, cause, now)
	end := End{State: state, Cause: l.core.cause}
	if state == logbook.FlowSuccess {
		end.Again = l.core.continuation(now)
	}
	return l.conclude(end)
}

// conclude waits until all updates are durable except the last, which is returned
// with the end.
func (l *loop) conclude(end End) (End, error) {
	updates := l.core.out.take()
	if len(updates) > 0 {
		end.Update = &updates[len(updates)-1]
		l.record(updates[:len(updates)-1])
	}
	for l.unacknowledged.len() > 0 {
		select {
		case err := <-l.unacknowledged.first().durable:
			if err := l.acknowledge(err); err != nil {
				return End{}, err
			}
		case <-l.outer.Done():
			return End{}, context.Cause(l.outer)
		}
	}
	return end, nil
}

// leavePool returns the run's own permits to the pool. Running steps return their permits when
// they end.
func (l *loop) leavePool() {
	if l.inPool == nil {
		return
	}
	for l.held.len() > 0 {
		held, _ := l.held.pop()
		held.permit.release()
	}
	for step := range l.core.vertices {
		l.core.vertices[step].key.release()
	}
	l.notYet.release() // after a panic; otherwise it is nil
	l.inPool.leave()
}

// abandonSteps makes the steps in flight release their own permits when they end. It releases the
// permits of steps that have already reported.
func (l *loop) abandonSteps() {
	l.abandoned.Store(true)
	for {
		select {
		case r := <-l.reports:
			r.permit.release()
		default:
			return
		}
	}
}

// abort cancels the running steps and waits for them for Options.Grace. Their
// outcomes are dropped: the next owner of the claim finds them running.
func (l *loop) abort(cause error) error {
	l.cancel(cause)
	l.leavePool()
	grace := time.NewTimer(l.options.Grace)
	defer grace.Stop()
	for l.inFlight > 0 {
		select {
		case r := <-l.reports:
			l.inFlight--
			r.permit.release()
		case <-grace.C:
			l.abandonSteps()
			l.options.Logger.Warn("abandoned steps that ignored cancellation", "flow", l.options.Detail.ID.String(), "steps", l.inFlight)
			return cause
		}
	}
	return cause
}

// abortOnPanic stops the steps when a panic leaves the run: a caller that recovers
// may give the flow to another owner.
func (l *loop) abortOnPanic() {
	_ = l.abort(errPanicked)
	for _, s := range l.core.starts { // including attempts that were not launched
		s.permit.release()
	}
}

func (l *loop) log(o *outcome) {
	if o.failure == nil {
		return
	}
	attempt := l.core.vertices[o.step].attempt
	facts := []any{"flow", l.options.Detail.ID.String(), "step", l.core.plan.Step(o.step).Name(),
		"action", string(attempt.Action), "attempt", attempt.Number}
	if wasInterrupted(o.failure) {
		l.options.Logger.Info("step interrupted", facts...)
		return
	}
	facts = append(facts, "kind", o.failure.Kind)
	if !l.options.HideFailures {
		facts = append(facts, "error", o.failure.Message)
	}
	l.options.Logger.Warn("step failed", facts...)
}
