package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// requestRevert reverts a flow, even a held flow, for a reason from outside. A flow that already reverts
// keeps its cause. Running executions end by themselves, unless interruptRunning follows. A flow after a
// point of no return is held.
func (c *core) requestRevert(cause *logbook.Failure, now time.Time) {
	if !c.reverting && c.passed(c.whole()) >= 0 {
		if !c.broken && !c.held {
			c.hold(cause, now)
		}
		return
	}
	if c.held {
		c.held, c.broken = false, false
	}
	if !c.reverting && !c.broken {
		c.beginRevert(cause, true, now)
	}
}

// beginRevert reverts the flow: no further step is executed, and started steps are undone.
// Running steps end first; they are interrupted, unless the flow is patient.
func (c *core) beginRevert(cause *logbook.Failure, patient bool, now time.Time) {
	c.reverting, c.cause = true, cause
	c.forget(c.whole())
	for s := range c.scopes {
		c.scopes[s].restarting = false
	}
	c.undoTurns = nil
	c.out.flow(logbook.FlowReverting, cause, now)
	c.gone = c.order.countUndone(c.plan, c.whole(), c.isUndone)
	steps := c.plan.Len()
	c.failures = make(map[string]*logbook.Failure)
	for step := range steps {
		v := &c.vertices[step]
		if v.failure != nil && !wasInterrupted(v.failure) {
			c.failures[c.plan.Step(step).Name()] = v.failure
		}
		c.mark(step, patient, now)
	}
	c.revertLast(c.whole(), now)
}

// mark gives a started step the intention revert. The time of a retry's next round is cleared, because the
// round will not start. A running execution is interrupted, unless the flow is patient. A step whose failure
// is ignored keeps its intention until its revert starts, so that the record shows why later steps have run.
func (c *core) mark(step int, patient bool, now time.Time) {
	v := &c.vertices[step]
	if !v.phase.hasBegun() || v.isToUndo() || v.phase == tolerated || c.plan.Step(step).IsLate() {
		return
	}
	if !patient {
		c.interrupt(step)
	}
	if c.plan.Step(step).IsRetry() {
		v.retryAt = time.Time{}
	}
	if v.failure != nil { // it was waiting for another attempt
		c.noteFailure(step)
	}
	c.change(step, logbook.AtomChange{Intention: logbook.IntendRevert, RetryAt: v.retryAt}, now)
}

// revertLast tries to revert the steps with nothing left to undo after them, from last to
// first, the order in which one worker takes them. Earlier steps follow when these are undone.
func (c *core) revertLast(bounds *flow.Scope, now time.Time) {
	late := c.lateFlows(bounds, now)
	var last []int
	for step := bounds.End - 1; step >= bounds.Retry; step-- {
		delete(c.delayed, c.plan.Step(step).Name())
		if c.order[step].after == 0 && c.vertices[step].phase.hasBegun() && !c.plan.Step(step).IsLate() {
			last = append(last, step)
		}
	}
	for _, step := range last {
		c.tryRevert(step, now)
	}
	for number := range c.plan.Turns() {
		if bounds.Holds(c.plan.Turns()[number].Opening) {
			c.takeUndoTurns(number, now)
		}
	}
	for _, final := range late {
		c.takeLate(final, now)
	}
}

// isUndone reports whether a vertex has nothing left to undo. A gate is undone when everything
// after it is undone. The same applies to a step that was ignored or has not started, because
// steps after it may have run.
func (f *facts) isUndone(vertex int) bool {
	if vertex >= f.plan.Len() {
		return f.order[vertex].after == 0 && f.mayUndo(vertex)
	}
	if f.plan.Step(vertex).IsLate() {
		return f.order[vertex].after == 0 && f.hasPassed(vertex)
	}
	if !f.vertices[vertex].phase.hasBegun() {
		return f.order[vertex].after == 0
	}
	return f.vertices[vertex].phase == undone
}

// tryRevert makes the revert of a vertex ready, unless the vertex still runs or has nothing to
// undo. Everything after it must be undone. A step without a revert is undone at once, and
// its predecessors may follow.
func (c *core) tryRevert(step int, now time.Time) {
	stack := []int{step}
	var turns, late []int
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if place, ok := c.plan.TurnAt(top); ok && (len(turns) == 0 || turns[len(turns)-1] != place.Turns) {
			turns = append(turns, place.Turns) // one may be undone now, or another has been
		}
		if c.broken || c.held || c.order[top].undone || c.order[top].after > 0 || top < c.plan.Len() && !c.undoStep(top, now) || top >= c.plan.Len() && !c.mayUndo(top) {
			if final, ok := c.plan.FinalOf(top); ok && c.order[top].after == 0 && !c.hasPassed(top) {
				late = append(late, final)
			}
			continue
		}
		c.order[top].undone = true
		stack = append(stack, c.passErrors(top)...)
		for _, previous := range c.undoneBefore(top) {
			if c.order[previous].after--; c.order[previous].after == 0 {
				stack = append(stack, int(previous))
			}
		}
	}
	for _, number := range turns {
		c.takeUndoTurns(number, now)
	}
	if member, ok := c.droppingMember(step); ok {
		c.releaseDropped(member, now)
	}
	for _, final := range late {
		c.takeLate(final, now)
	}
}

// undoStep starts the undo of a step whose successors are undone. It reports whether this call
// has completed the undo.
func (c *core) undoStep(step int, now time.Time) bool {
	v := &c.vertices[step]
	if c.isRestarting(step) {
		c.queueRound(step, now)
		return false
	}
	if c.plan.Step(step).IsLate() {
		return c.passLate(step)
	}
	if !v.phase.hasBegun() {
		c.gone++
		return true
	}
	if v.phase.isOpen() || c.isUndone(step) {
		return false
	}
	if v.phase != toUndo && c.awaitsErrors(step) {
		if c.delayed == nil {
			c.delayed = make(map[string]bool)
		}
		c.delayed[c.plan.Step(step).Name()] = true
		return false
	}
	if _, ok := c.plan.Step(step).Reverter(); ok || c.isWithWorker(step) {
		switch {
		case v.phase != toUndo:
			c.enqueue(step)
		case !c.isQueued(step): // a retry or a takeover may have started the undo
			c.queueWhenDue(step, v.failedUndo, now)
		}
		return false
	}
	v.retryAt = time.Time{} // of a step that waited for its next attempt
	if v.phase != toUndo {
		c.advance(step, onRevert, logbook.AtomChange{Intention: v.undoIntention()}, now)
	}
	change := logbook.AtomChange{}
	if c.plan.Governor(step) >= 0 || c.plan.Step(step).IsRetry() {
		change.Attempts = []logbook.Attempt{c.nothingUndone(step, now)}
	}
	c.advance(step, onSuccess, change, now)
	c.gone++
	return true
}

// nothingUndone is the revert attempt of a step without a revert. It is recorded for steps
// that may run again, because recorded reverts separate the rounds of a step.
func (c *core) nothingUndone(step int, now time.Time) logbook.Attempt {
	v := &c.vertices[step]
	v.reverts++
	v.isUndone = true
	v.attempt = nil // an open one of a retry whose conductor died: it never ends
	attempt := logbook.Attempt{Action: logbook.ActionRevert, Number: v.reverts, Token: c.call.Token, Owner: c.owner, StartedAt: now, EndedAt: now, Unbegun: true}
	if s, ok := c.plan.ScopeOf(step); ok {
		attempt.Failures = c.roundFailures(s)
	}
	return attempt
}

func (c *core) reverted(step int, attempt logbook.Attempt, now time.Time) {
	again := c.repeats(step)
	c.advance(step, onSuccess, logbook.AtomChange{Attempts: c.attempts.one(attempt)}, now)
	if again {
		c.executeAgain(step, now)
		c.enqueue(step)
		return
	}
	c.gone++
	for _, previous := range c.undoneBefore(step) {
		if c.order[previous].after--; c.order[previous].after == 0 {
			c.tryRevert(int(previous), now)
		}
	}
	if member, ok := c.droppingMember(step); ok {
		c.releaseDropped(member, now)
	}
}

func (c *core) revertFailed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	attempt.Failure = fitFailure(c.limits, c.plan.Step(step), attempt.Failure)
	delay, again := time.Duration(0), v.loses(attempt.Failure)
	if !again {
		v.failedUndo++
		v.lastFailure = attempt.Failure
		delay, again = c.plan.Step(step).Again(v.failedUndo, attempt.Failure)
	}
	attempts := []logbook.Attempt{attempt}
	ends := !c.broken || c.held // a held flow whose revert fails is not held any more
	if ends && again {
		c.advance(step, onAgain, logbook.AtomChange{RetryAt: dueAt(now, delay), Attempts: attempts}, now)
		c.postpone(step, delay, now)
		return
	}
	change := logbook.AtomChange{Attempts: attempts}
	if c.repeats(step) {
		change.Intention = logbook.IntendRevert
	}
	c.advance(step, onFailure, change, now)
	if ends {
		c.held = false
		if s := c.restartingScope(step); c.cause == nil && s >= 0 {
			if failed := c.scopes[s].failed; len(failed) > 0 {
				c.cause = c.blame(slices.Min(failed), c.vertices[slices.Min(failed)].failure)
			}
		}
		c.breakOff(step, attempt.Failure)
	}
}

// breakOff ends the flow permanently. The failed revert becomes its cause, because an operator
// must look at that first; the earlier cause of the revert is below it. An earlier failed revert
// is dropped, because the causes would otherwise grow with every try.
func (c *core) breakOff(step int, failure *logbook.Failure) {
	cause := c.blame(step, failure)
	if original := c.cause; original != nil {
		if n := len(original.Causes); n > 0 && original.Causes[n-1].Step != "" {
			original = &original.Causes[n-1]
		}
		original = flow.FitFailure(original, c.limits) // it may come from a conductor with higher limits
		cause.Causes = append(cause.Causes[:len(cause.Causes):len(cause.Causes)], *original)
	}
	c.broken, c.cause = true, cause
}

// failInterrupted fails the steps that were running when a conductor died, in a flow that has
// failed permanently since. Their outcome is unknown, and an operator must not take them for
// running. Steps that were being reverted keep their state; the revert continues if an operator
// retries it.
func (c *core) failInterrupted(now time.Time) {
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		if v.phase != left || v.attempt == nil {
			continue
		}
		lost := *v.attempt
		lost.EndedAt = now
		lost.Failure = &logbook.Failure{Kind: logbook.FailureCrash, Message: "its conductor died, and the flow had already failed: the outcome of the step is unknown"}
		v.attempt = nil
		if c.plan.Step(step).IsLate() { // it runs when an operator continues the flow
			c.advance(step, onAgain, logbook.AtomChange{Attempts: []logbook.Attempt{lost}}, now)
			continue
		}
		c.advance(step, onFailure, logbook.AtomChange{Intention: c.intentionAfter(step), Attempts: []logbook.Attempt{lost}}, now)
	}
}
