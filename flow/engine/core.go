package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// core makes the decisions of a run. It holds the flow's state as it will be when all its updates
// are durable. One goroutine calls its methods and passes the time in, so a run can be replayed
// call by call.
//
// Readiness is counted, not searched: see order.
type core struct {
	facts
	agenda
	out      *builder
	found    found
	revision *revision // how the flow's definition has changed since the flow started
	call     flow.Call // the fields that all calls share
	owner    string

	done     int  // steps that nothing waits for: see isDone
	leaving  int  // steps that are dropped and not undone yet
	gone     int  // while reverting: steps that are undone or never started
	running  int  // open attempts that this run has started
	heldKeys int  // steps that wait with the permit of their key
	holding  bool // attempts of earlier runs have it again
	untaken  int  // of those, offered ones that no worker has

	broken     bool                  // a revert has failed permanently, or the flow is held: nothing more starts
	holds      logbook.FailurePolicy // for all steps; empty: the policies of the plan
	suspended  bool                  // nothing more starts in this run
	interrupts []execution           // that the loop must end; see takeInterrupts
	reverter   *logbook.Intervention // with which an operator has reverted the flow; nil: none

	delayed    map[string]bool // steps whose undo waits only for on_error steps: see awaitsErrors
	turnCounts []*turnCount    // by the number of the turns; nil: not counted since released vertices were withdrawn
	starts     []start         // result of next, reused by each call
	attempts   chunks[logbook.Attempt]
	calls      chunks[flow.Call]
}

// start is an attempt for the loop to make.
type start struct {
	plan   *flow.Plan // that step is a number of: the flow may grow while the step runs
	step   int
	call   *flow.Call
	permit *permit
	stored []string // arguments that the store supplies in place of skipped steps
	saved  bool     // the round may have checkpoints

	deadline time.Time     // zero: none
	spent    time.Duration // of the step's timeout, since a worker has the attempt
}

// outcome is the end of an attempt.
type outcome struct {
	step            int
	result          []byte
	sends           []logbook.Sending // with a success
	failure         *logbook.Failure
	notYet          *flow.NotYetError // instead of result and failure
	unbegun         bool              // it failed before its function or handler was called
	undecided       bool              // a decider before the step has failed: nothing ignores that
	progress        *logbook.Progress // its last report, if that is not recorded yet; else nil
	stderr          string
	stderrTruncated bool
	ended           time.Time
}

// begin makes the changes that the loaded state of the flow requires.
func (c *core) begin(now time.Time) {
	c.began = now
	switch {
	case c.reverting:
		c.beginRevert(c.cause, false, now)
		return
	case c.held:
		c.hold(c.cause, now)
		return
	}
	for s := range c.scopes {
		if c.scopes[s].restarting {
			c.undoScope(s, now)
		}
	}
	c.undoLast(now)
	outside := c.queueReady(now)
	c.settleAll(now)
	for turns := range c.plan.Turns() {
		c.takeTurns(turns, now)
	}
	c.found.interrupted = slices.DeleteFunc(c.found.interrupted, func(step int) bool { return c.vertices[step].isDropped() })
	for _, step := range c.found.interrupted {
		v := &c.vertices[step]
		v.phase = v.phase.must(onBegin)
		c.opened(v)
	}
	for _, step := range c.found.interrupted {
		failure := &logbook.Failure{Kind: logbook.FailureAtMostOnce, Permanent: true,
			Message: "the step was running when its conductor died, and must not be started twice"}
		c.finish(outcome{step: step, failure: failure, ended: now}, now)
	}
	c.settle(nil, outside, now)
	c.decide(c.found.undecided, now)
	for _, step := range c.found.unresolved {
		// The decision for an earlier step may have covered this one.
		if !c.reverting && !c.broken && c.restartingScope(step) < 0 {
			c.resolve(step, c.mayBeUndecided(step), now)
		}
	}
}

// next starts attempts at ready steps until the limit of parallel steps is reached or no
// permit is left. The slice is valid until the next call.
func (c *core) next(now time.Time, workers int, p permitSource) []start {
	c.holdKeys(p)
	c.agenda.wake(now)
	c.unblock(p)
	c.starts = c.starts[:0]
	for c.running < workers && c.ready.len() > 0 && !c.suspended && !c.broken {
		step := c.ready.first()
		granted, answer := c.admit(step, p)
		if answer == noWorker {
			return c.starts
		}
		c.ready.pop()
		if answer == noKey {
			continue
		}
		if c.plan.Step(step).IsEach() {
			c.open(step, now)
			continue
		}
		if s, ok := c.attempt(step, now); ok && s.call.Action == logbook.ActionExecute && c.plan.Step(step).Wait() != nil {
			granted.release()
			c.await(step, s.call.Arguments, now)
		} else if ok && s.call.Action == logbook.ActionExecute && c.plan.Step(step).Continues() {
			granted.release()
			c.giveValues(step, s.call.Arguments, now)
		} else if ok {
			s.permit = granted
			c.starts = append(c.starts, s)
		} else {
			granted.release()
		}
	}
	c.returnReserved(p, !c.suspended && !c.broken)
	return c.starts
}

// attempt writes the mark of an attempt and prepares its call. If the call cannot be prepared,
// the attempt fails at once.
func (c *core) attempt(step int, now time.Time) (start, bool) {
	v, s := &c.vertices[step], c.plan.Step(step)
	if s.IsRetry() {
		c.round(step, now)
		return start{}, false
	}
	c.move(now)
	repeats := c.repeats(step)
	begins, action, number, failures := onBegin, logbook.ActionExecute, &v.executions, &v.failedExecutions
	if repeats || (v.isToUndo() || v.phase == tolerated) && !c.isWithWorker(step) {
		begins, action, number, failures = onUndo, logbook.ActionRevert, &v.reverts, &v.failedUndo
		v.isUndone = true
	} else {
		v.failure = nil
		v.execute()
		if v.since.IsZero() {
			v.since = now
		}
	}
	begun := c.attempts.one(logbook.Attempt{Action: action, Number: *number, Token: c.call.Token, Owner: c.owner, StartedAt: now})
	_, begun[0].Offered = s.WorkerStep()
	continues := c.goesOn(step, action)
	if continues {
		begun[0].StartedAt, begun[0].Asked, begun[0].Wait = v.attempt.StartedAt, v.attempt.Asked, v.attempt.Wait
		begun[0].Worker, begun[0].WorkerName = v.attempt.Worker, v.attempt.WorkerName
	} else {
		*number++
		begun[0].Number = *number
	}
	v.attempt, v.retryAt = &begun[0], time.Time{}
	change := logbook.AtomChange{Attempts: begun, Intention: v.undoIntention()}
	if v.intention == logbook.IntendRetry && !repeats {
		change.Intention = logbook.IntendExecute // it was undone at a takeover
	}
	c.advance(step, begins, change, now)
	c.opened(v)

	call := &c.calls.one(c.call)[0]
	call.Action, call.Step, call.Attempt, call.Asked = action, s.Name(), *number, v.attempt.Asked
	if call.Try, call.Tries = *failures+1, s.Retry().Tries(); *failures > 0 {
		call.LastFailure = v.lastFailure
	}
	call.LastProgress = v.lastProgress(continues)
	call.Round, call.Worker, call.Only = int(v.round), v.attempt.Worker, c.onlyWorker(step)
	if action == logbook.ActionExecute && v.isToUndo() {
		c.interrupt(step) // the worker got it before the flow started to revert
	}
	if action == logbook.ActionRevert && !v.touched {
		c.finish(outcome{step: step, ended: now}, now)
		return start{}, false
	}
	arguments, failure := c.arguments(step, action)
	if failure != nil {
		c.finish(outcome{step: step, failure: failure, unbegun: true, ended: now}, now)
		return start{}, false
	}
	call.Arguments = arguments
	if call.Final = s.IsLate(); call.Final {
		call.Cause = c.lateCause(step)
	}
	if action == logbook.ActionRevert {
		call.Failure, call.FlowFailures = v.failure, c.failuresFor(step)
		call.Cause = c.causeFor(step)
		if v.failure == nil {
			call.Result = v.result
		}
		return start{plan: c.plan, step: step, call: call, stored: c.storedInstead(step, action), saved: v.saved, spent: v.spent(now)}, true
	}
	return start{plan: c.plan, step: step, call: call, stored: c.storedInstead(step, action), saved: v.saved, deadline: c.deadline(step, now), spent: v.spent(now)}, true
}

// deadline is the time at which the executions of a started step must have ended; zero: no limit. A start
// in the future comes from a clock ahead of ours. The deadline then counts from the start of this
// run.
func (f *facts) deadline(step int, now time.Time) time.Time {
	since := f.vertices[step].since
	if since.After(now) {
		since = f.began
	}
	return f.plan.Step(step).DeadlineFrom(since)
}

// move moves the flow to running or reverting. A flow stays running while a retry undoes its
// own part and starts it again.
func (c *core) move(now time.Time) {
	if c.reverting {
		c.out.flow(logbook.FlowReverting, nil, now)
	} else {
		c.out.flow(logbook.FlowRunning, nil, now)
	}
}

// executeHere starts an execution that calls no task.
func (c *core) executeHere(step int, now time.Time) {
	v := &c.vertices[step]
	c.move(now)
	v.execute()
	v.executions++
	v.failure, v.attempt = nil, &logbook.Attempt{Action: logbook.ActionExecute, Number: v.executions, Token: c.call.Token, Owner: c.owner, StartedAt: now}
	c.advance(step, onBegin, logbook.AtomChange{Attempts: []logbook.Attempt{*v.attempt}}, now)
	c.opened(v)
}

// opened counts an attempt that this run has started.
func (c *core) opened(v *vertex) {
	c.running++
	if v.isUntaken() {
		c.untaken++
	}
}

// finish applies the outcome of an attempt that next or begin has started.
func (c *core) finish(o outcome, now time.Time) {
	v := &c.vertices[o.step]
	c.running--
	if v.isUntaken() {
		c.untaken--
	}
	attempt := *v.attempt
	v.progress = o.progress
	attempt.Unbegun = o.unbegun && attempt.Action == logbook.ActionExecute && attempt.Asked == 0 && attempt.Worker == "" ||
		attempt.Action == logbook.ActionRevert && !v.touched
	if o.notYet != nil {
		v.touched = true
		if o.failure = c.refusal(o.step, &attempt, now); o.failure == nil {
			c.askLater(o.step, attempt, o.notYet, now)
			c.handleErrors(now)
			return
		}
	}
	attempt.EndedAt, attempt.Result, attempt.Failure = o.ended, o.result, o.failure
	attempt.Stderr, attempt.StderrTruncated = o.stderr, o.stderrTruncated
	v.attempt = nil
	v.touched = v.touched || attempt.Action == logbook.ActionExecute && !attempt.NeverBegan()
	switch {
	case attempt.Action == logbook.ActionExecute && o.failure == nil:
		attempt.Sends = o.sends
		c.executed(o.step, attempt, now)
	case attempt.Action == logbook.ActionExecute:
		c.executionFailed(o.step, attempt, o.undecided, now)
	case o.failure == nil:
		c.reverted(o.step, attempt, now)
	default:
		c.revertFailed(o.step, attempt, now)
	}
	c.handleErrors(now)
}

func (c *core) executed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	if failure := missingField(c.plan, step, attempt.Result); failure != nil {
		attempt.Result, attempt.Failure, attempt.Sends = nil, failure, nil
		c.executionFailed(step, attempt, false, now)
		return
	}
	v.result, v.failure, v.doneBy = attempt.Result, nil, doneBy(&attempt)
	if s, ok := c.plan.ScopeOf(step); ok {
		c.scopes[s].rounds = append(c.scopes[s].rounds, flow.Round{Value: attempt.Result})
	}
	c.advance(step, onSuccess, logbook.AtomChange{Attempts: c.attempts.one(attempt)}, now)
	if v.isToUndo() {
		c.tryRevert(step, now)
		return
	}
	if c.plan.Step(step).IsLate() && c.isBeingUndone(step) {
		c.lateEnded(step, now)
		return
	}
	if c.plan.Step(step).IsEach() {
		return // open continues when the flow has grown
	}
	c.release(step, now)
}

func (c *core) executionFailed(step int, attempt logbook.Attempt, undecided bool, now time.Time) {
	v := &c.vertices[step]
	attempt.Failure = fitFailure(c.limits, c.plan.Step(step), c.afterLoss(step, attempt.Failure))
	v.failure, v.result, v.fields = attempt.Failure, nil, nil
	attempts := []logbook.Attempt{attempt}
	delay, again := time.Duration(0), true
	if !wasInterrupted(v.failure) && !v.loses(v.failure) {
		v.failedExecutions++
		v.lastFailure = v.failure
		delay, again = c.plan.Step(step).Again(v.failedExecutions, attempt.Failure)
		end := c.deadline(step, now)
		again = again && (end.IsZero() || now.Add(delay).Before(end))
	}
	if again && !v.isToUndo() {
		if c.held && !c.plan.Step(step).IsOnError() {
			delay = 0 // the step waits for an operator
		}
		c.advance(step, onAgain, logbook.AtomChange{RetryAt: dueAt(now, delay), Attempts: attempts}, now)
		c.postpone(step, delay, now)
		return
	}
	if !again && !undecided && (c.tolerates(step) || c.toleratesElement(step) && !c.hasRetryInElement(step)) {
		c.tolerate(step, &attempt, now)
		return
	}
	c.advance(step, onFailure, logbook.AtomChange{Intention: c.intentionAfter(step), Attempts: attempts}, now)
	ignores := c.plan.Step(step).IgnoresFailure() && !undecided // its part is undone: see tolerates
	if !ignores {
		c.noteFailure(step)
	}
	switch {
	case c.broken || c.held: // nothing more is decided
	case v.isDropped() && !c.reverting:
		c.tryRevert(step, now)
	case c.reverting:
		c.addFailure(step, attempt.Failure)
		c.tryRevert(step, now)
	case !again && !ignores && c.resolve(step, undecided, now):
	default:
		// The step is undone with its scope. If it could have been tried again, it has not failed
		// permanently, so no retry decides about it.
		c.gatherFailures(c.restartingScope(step))
		c.tryRevert(step, now)
	}
}

// release counts a vertex as done in its successors, and queues the ready ones.
func (c *core) release(vertex int, now time.Time) {
	if c.held {
		return // the next run of the flow counts anew
	}
	stack := []int{vertex}
	var choices, turns, members, lacking []int
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if member, ok := c.plan.Member(top); ok && (len(members) == 0 || members[len(members)-1] != member) {
			members = append(members, member)
		}
		if place, ok := c.plan.TurnAt(top); ok {
			if !c.order[top].released {
				c.countTurn(place)
			}
			if !place.Begins {
				turns = append(turns, place.Turns)
			}
		}
		c.order[top].released = true
		for _, next := range c.plan.Next(top) {
			if c.order[next].before--; c.order[next].before > 0 {
				continue
			}
			if int(next) < c.plan.Len() && c.lacksOutside(int(next)) {
				lacking = append(lacking, int(next))
			} else if int(next) < c.plan.Len() && !c.isDone(int(next)) && !c.leaveOut(int(next), now) {
				c.enqueue(int(next))
			} else if _, choice := c.plan.ChoiceAt(int(next)); choice {
				choices = append(choices, int(next))
			} else if place, ok := c.plan.TurnAt(int(next)); ok && place.Begins {
				turns = append(turns, place.Turns)
			} else if c.passesGroup(int(next)) { // a gate, or a step that was ignored or completed by an operator
				stack = append(stack, int(next))
			}
		}
	}
	c.settle(members, lacking, now)
	// Last, because the flow reverts when a decider fails.
	c.decide(choices, now)
	for i, number := range turns {
		if i == 0 || number != turns[i-1] {
			c.takeTurns(number, now)
		}
	}
}

// isDone reports whether successors no longer wait for a step.
func (f *facts) isDone(step int) bool {
	v := &f.vertices[step]
	return v.phase == succeeded && !f.repeats(step) || v.phase == tolerated || v.phase == ignored || v.phase == undone && v.isDropped()
}

// postpone queues a step for its next attempt.
func (c *core) postpone(step int, delay time.Duration, now time.Time) {
	if delay <= 0 {
		c.enqueue(step)
		return
	}
	c.vertices[step].retryAt = dueAt(now, delay)
	c.enqueueAt(step, c.vertices[step].retryAt)
}

// enqueue makes a step ready to start. In a flow that will be held, only on_error steps start.
func (c *core) enqueue(step int) {
	if !c.held || c.plan.Step(step).IsOnError() {
		c.agenda.enqueue(step)
	}
}

// enqueueAt is enqueue at a time.
func (c *core) enqueueAt(step int, at time.Time) {
	if !c.held || c.plan.Step(step).IsOnError() {
		c.agenda.enqueueAt(step, at)
	}
}

// retryNow ends the wait of the named step; empty: of all steps.
func (c *core) retryNow(name string) {
	for _, step := range c.takeDue(name) {
		c.vertices[step].retryAt = time.Time{}
		c.enqueue(step)
	}
}

func dueAt(now time.Time, delay time.Duration) time.Time {
	if delay <= 0 {
		return time.Time{}
	}
	return now.Add(delay)
}

// nextDue is the time at which the next step is due; false if none is.
func (c *core) nextDue() (time.Time, bool) {
	if len(c.due) == 0 || c.suspended || c.broken {
		return time.Time{}, false
	}
	return c.due[0].at, true
}

// idle returns the next step that is due, and whether nothing happens before then. A flow whose time is up
// before that must continue then.
func (c *core) idle(timeUp time.Time) (dueStep, bool) {
	if c.running > 0 || c.ready.len() > 0 || c.blockedSteps > 0 || c.heldKeys > 0 || c.suspended || c.broken || len(c.due) == 0 {
		return dueStep{}, false
	}
	due := c.due[0]
	if !timeUp.IsZero() && timeUp.Before(due.at) && !c.ignoresTimeUp() {
		due.at = timeUp
	}
	return due, true
}

// end reports whether the run is over, and the flow's state then.
func (c *core) end() (logbook.FlowState, bool) {
	switch {
	case c.running > 0:
		return "", false
	case c.broken:
		return logbook.FlowFailure, true
	case c.reverting && c.isAllUndone():
		return logbook.FlowReverted, true
	case !c.reverting && c.done == c.plan.Len() && c.leaving == 0:
		return logbook.FlowSuccess, true
	case c.suspended:
		return logbook.FlowSuspended, true
	case c.ready.len() == 0 && len(c.due) == 0 && c.blockedSteps == 0:
		panic("internal error: nothing runs, nothing is ready, and the flow has not ended")
	}
	return "", false
}

// advance moves a step to the phase that follows an event, and records the change.
func (c *core) advance(step int, e event, change logbook.AtomChange, now time.Time) {
	to := c.vertices[step].phase.must(e)
	change.State = atoms[to]
	c.record(step, to, change, now)
}

// change records a change of a step that stays in its phase.
func (c *core) change(step int, change logbook.AtomChange, now time.Time) {
	c.record(step, c.vertices[step].phase, change, now)
}

// record records a change. The first one of a step adds kind, version and intention.
func (c *core) record(step int, to phase, change logbook.AtomChange, now time.Time) {
	v, s := &c.vertices[step], c.plan.Step(step)
	change.Name = s.Name()
	if v.record == unrecorded {
		change.Kind, change.Version = s.Kind(), s.Version()
		if change.Intention == "" {
			change.Intention = logbook.IntendExecute
		}
	}
	if v.record == outdated {
		change.Version = s.Version()
	}
	v.record = recorded
	was := atoms[v.phase]
	if change.State != "" && logbook.DropsCheckpoints(was, change.State) {
		v.saved, v.reported = false, nil
	}
	if c.isDone(step) {
		c.done--
	}
	if v.isLeaving() {
		c.leaving--
	}
	v.phase, v.intention = to, cmp.Or(change.Intention, v.intention)
	if c.isDone(step) {
		c.done++
	}
	if v.isLeaving() {
		c.leaving++
	}
	if change.Progress == nil {
		change.Progress = v.progress
	}
	if v.progress = nil; change.Progress != nil {
		v.reported = change.Progress
	}
	c.dropKey(step)
	c.out.change(step, change, was, now)
}

func (c *core) addFailure(step int, failure *logbook.Failure) {
	if wasInterrupted(failure) {
		return
	}
	failures := make(map[string]*logbook.Failure, len(c.failures)+1)
	maps.Copy(failures, c.failures)
	failures[c.plan.Step(step).Name()] = failure
	c.failures = failures
}

// blame returns a step's failure as a cause that names the step.
func (f *facts) blame(step int, failure *logbook.Failure) *logbook.Failure {
	cause := *failure
	cause.Step = f.plan.Step(step).Name()
	return &cause
}
