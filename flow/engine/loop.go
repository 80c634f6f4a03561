package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// errBroken is why steps are told to stop whose engine has panicked.
var errBroken = errors.New("the engine has broken down")

// loop drives a core: it starts what the core says, tells it how that ended,
// and records what follows. Only run's goroutine touches it; the goroutines
// of steps, one for each attempt, only send their report.
type loop struct {
	options *Options
	core    *core
	outer   context.Context // of the run
	steps   context.Context // of the steps; ends with the run's, or by abort
	cancel  context.CancelCauseFunc
	suspend <-chan struct{} // nil once it was closed
	revert  <-chan struct{} // the same
	seat    *seat           // in the pool; nil: there is none yet
	desk    *desk           // where steps say how far they are
	now     time.Time       // when the last thing happened: the clock is read once for all that follows

	// reports has room for every attempt, so that one that is left behind
	// can always end. No step has two at once.
	reports  chan report
	inFlight int
	unmarked map[string]bool // steps that need not wait for their marks, if they start first
	hasBegun bool            // one of them has
	left     atomic.Bool     // those in flight are left behind

	// unacknowledged updates, oldest first, and how many there were before.
	unacknowledged queue[<-chan error]
	acknowledged   uint64
	recorded       uint64
	speak          time.Time        // when the desk is to be looked at; zero: when it is stirred
	held           queue[heldStart] // in the order of their updates
}

// report is the outcome of an attempt, or why it could not be made.
type report struct {
	outcome
	grant   *grant
	plan    *flow.Plan // that of the start
	refused error
}

// heldStart is an attempt whose mark, and what led to it, is not durable yet.
type heldStart struct {
	start
	after uint64 // the number of acknowledged updates that it needs
}

func newLoop(ctx context.Context, o *Options, c *core) *loop {
	steps, cancel := context.WithCancelCause(ctx)
	most := min(o.Workers, o.Limits.Steps)
	if !o.Plan.Grows() {
		most = min(most, o.Plan.Len())
	}
	l := &loop{options: o, core: c, outer: ctx, steps: steps, cancel: cancel, suspend: o.Suspend, revert: o.Revert,
		desk: newDesk(&o.Limits, o.Now), reports: make(chan report, most), unmarked: beginsUnmarked(o)}
	if o.Pool != nil {
		l.seat = o.Pool.join()
	}
	return l
}

func (l *loop) run() (end End, err error) {
	defer l.cancel(nil)
	defer l.leave()
	panics := true
	defer func() {
		if panics {
			l.breakDown()
		}
	}()
	end, err = l.turn()
	panics = false
	return end, err
}

// turn goes round until the run is over.
func (l *loop) turn() (End, error) {
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
		if due, idle := l.core.idle(); idle && l.options.Park > 0 && due.at.Sub(l.now) > l.options.Park {
			end, err := l.conclude(End{State: l.core.out.state, Cause: l.core.cause, WaitUntil: due.at, WaitFor: l.core.plan.Step(due.step).Name()})
			end.Wait = max(0, due.at.Sub(l.options.Now()))
			return end, err
		}
		l.takeProgress()
		starts, begun, err := l.begin(starts)
		if err != nil {
			return End{}, l.abort(err)
		}
		if begun {
			continue
		}
		l.record(l.core.out.take())
		if err := l.acknowledgeReady(); err != nil {
			for _, s := range starts {
				s.grant.release()
			}
			return End{}, l.abort(err)
		}
		for _, s := range starts {
			l.launch(s)
		}
		if err := l.wait(); err != nil {
			return End{}, l.abort(err)
		}
	}
}

// poll looks at what must be known before anything is started.
func (l *loop) poll() error {
	select {
	case <-l.revert:
		l.revert = nil
		cause, err := l.revertCause()
		if err != nil {
			return err
		}
		l.core.turnRound(cause, l.now)
	default:
	}
	select {
	case <-l.suspend:
		l.suspend, l.core.suspended = nil, true
	default:
	}
	if l.outer.Err() != nil {
		return context.Cause(l.outer)
	}
	return nil
}

// revertCause asks why the flow is to be reverted. A panic must not pass, since
// steps are running.
func (l *loop) revertCause() (cause *logbook.Failure, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("cannot learn why it is to be reverted: %w", &flow.PanicError{Value: value, Stack: string(debug.Stack())})
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
	for _, update := range updates {
		l.unacknowledged.push(l.options.Journal.Record(update))
		l.recorded++
	}
}

// launch lets an attempt go as soon as everything before it is durable, its own
// mark included. Only begin makes exceptions. An
// effect that the record does not know of would never be undone; and a revert
// that began on a failure which a crash then forgets would undo the work of a
// flow that goes on to succeed.
func (l *loop) launch(s start) {
	if l.acknowledged < l.recorded {
		l.held.push(heldStart{start: s, after: l.recorded})
		return
	}
	l.inFlight++
	go l.perform(s)
}

// wait waits for the first thing to happen, and takes what has happened besides.
func (l *loop) wait() error {
	reports := l.reports
	var acknowledgement <-chan error
	if l.unacknowledged.len() > 0 {
		acknowledgement = l.unacknowledged.first()
	}
	if l.unacknowledged.len() >= maxUnacknowledged {
		reports = nil
	}
	var stirred <-chan struct{}
	if l.seat != nil {
		stirred = l.seat.stirred
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
	case <-due:
	case <-l.desk.stirred:
	case <-stirred:
	case <-l.suspend:
	case <-l.revert:
	case <-l.outer.Done():
	}
	l.now = l.options.Now()
	return nil
}

// takeProgress records what steps have said, unless the logbook is behind.
func (l *loop) takeProgress() {
	l.speak = time.Time{}
	if l.unacknowledged.len() >= maxUnacknowledged {
		return
	}
	var record []told
	record, l.speak = l.desk.due(l.now)
	for i := range record {
		l.core.progressed(&record[i], l.now)
	}
}

// nextDue is when there is something to do even if nothing happens.
func (l *loop) nextDue() (time.Time, bool) {
	at, ok := l.core.nextDue()
	if !l.speak.IsZero() && (!ok || l.speak.Before(at)) {
		return l.speak, true
	}
	return at, ok
}

// takeReports takes a report and those that wait behind it: what they change
// goes into one update.
func (l *loop) takeReports(r report) error {
	for {
		l.inFlight--
		r.grant.release()
		if r.refused != nil {
			return fmt.Errorf("%w: %w", ErrGate, r.refused)
		}
		r.step = l.core.numberOf(r.plan, r.step)
		l.log(&r.outcome)
		l.core.finish(r.outcome, l.now)
		select {
		case r = <-l.reports:
		default:
			return nil
		}
	}
}

// acknowledgeReady takes what is acknowledged already, which saves a journal
// that is as fast as memory one turn of the loop for every step.
func (l *loop) acknowledgeReady() error {
	for l.unacknowledged.len() > 0 {
		select {
		case err := <-l.unacknowledged.first():
			if err := l.acknowledge(err); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// acknowledge takes what the journal says of the oldest update, and lets the
// steps go that have waited for it.
func (l *loop) acknowledge(err error) error {
	if err != nil {
		return fmt.Errorf("cannot record: %w", err)
	}
	l.unacknowledged.pop()
	l.acknowledged++
	for l.held.len() > 0 && l.held.first().after <= l.acknowledged {
		held, _ := l.held.pop()
		l.inFlight++
		go l.perform(held.start)
	}
	return nil
}

// finish moves the flow to the state in which the run ends.
func (l *loop) finish(state logbook.FlowState, now time.Time) (End, error) {
	var cause *logbook.Failure
	if state == logbook.FlowFailure || state == logbook.FlowReverted {
		cause = l.core.cause
	}
	if state == logbook.FlowFailure {
		l.core.leaveStarted(now)
	}
	l.core.out.flow(state, cause, now)
	return l.conclude(End{State: state, Cause: l.core.cause})
}

// conclude ends the run: all updates but the last, which goes with the end,
// are durable then.
func (l *loop) conclude(end End) (End, error) {
	updates := l.core.out.take()
	if len(updates) > 0 {
		end.Update = &updates[len(updates)-1]
		l.record(updates[:len(updates)-1])
	}
	for l.unacknowledged.len() > 0 {
		select {
		case err := <-l.unacknowledged.first():
			if err := l.acknowledge(err); err != nil {
				return End{}, err
			}
		case <-l.outer.Done():
			return End{}, context.Cause(l.outer)
		}
	}
	return end, nil
}

// leave gives back what the run has in its pool. Steps that run give their own
// back when they end.
func (l *loop) leave() {
	if l.seat == nil {
		return
	}
	for l.held.len() > 0 {
		held, _ := l.held.pop()
		held.grant.release()
	}
	l.seat.leave()
}

// leaveBehind has the steps in flight give back by themselves what they have.
// One that has reported before it could know so is seen to here.
func (l *loop) leaveBehind() {
	l.left.Store(true)
	for {
		select {
		case r := <-l.reports:
			r.grant.release()
		default:
			return
		}
	}
}

// abort cancels the steps that run and waits for them for a while. Their
// outcomes are dropped: whoever holds the claim now will find them RUNNING.
func (l *loop) abort(cause error) error {
	l.cancel(cause)
	l.leave()
	grace := time.NewTimer(l.options.Grace)
	defer grace.Stop()
	for l.inFlight > 0 {
		select {
		case r := <-l.reports:
			l.inFlight--
			r.grant.release()
		case <-grace.C:
			l.leaveBehind()
			l.options.Logger.Warn("left steps behind that do not end", "flow", l.options.Detail.ID.String(), "steps", l.inFlight)
			return cause
		}
	}
	return cause
}

// breakDown has nothing of the run go on when a panic leaves it: whoever
// recovers from that gives the flow to another.
func (l *loop) breakDown() {
	_ = l.abort(errBroken)
	for _, s := range l.core.starts { // those that were not launched, too
		s.grant.release()
	}
}

func (l *loop) log(o *outcome) {
	if o.failure == nil {
		return
	}
	attempt := l.core.vertices[o.step].attempt
	l.options.Logger.Warn("step failed", "flow", l.options.Detail.ID.String(), "step", l.core.plan.Step(o.step).Name(),
		"action", string(attempt.Action), "attempt", attempt.Number, "kind", o.failure.Kind, "error", o.failure.Message)
}
