package engine

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// The final steps of a flow (flow.Finally) run once for each run of the flow. In forward execution, they are steps
// after a gate that waits for the other steps of the flow, the *body*. Their failures are ignored.
//
// An undo goes through a flow in this order:
//
//  1. A started final step ends. If the flow has failed, its on_error steps are executed: see onerror.go.
//  2. The body is undone.
//  3. The final steps that have not ended are executed, in order, if a step of the body has run.
//  4. The undo passes the gate before the flow.
//
// Final steps are not undone. In a flow that reverts, they keep the state success or failure. When a retry around the
// flow starts another round, final steps are recorded as reverted without a run, like steps without a revert.
//
// The record alone decides: a final step runs in an undo if the body is undone and the step has not ended.

// hasStarted reports whether a step of the body of a flow has run since the flow started.
func (f *facts) hasStarted(final int) bool {
	body := f.plan.Finals()[final].Body
	for step := body.First; step < body.End; step++ {
		v, s := &f.vertices[step], f.plan.Step(step)
		if scope, ok := f.plan.ScopeOf(step); ok && (f.scopes[scope].restarting || len(f.scopes[scope].rounds) > 1) {
			return true // a round ends with the failure of a step
		}
		if s.Kind() == logbook.KindTask && !s.IsLate() && (v.phase.hasBegun() || v.intention == logbook.IntendRetry) {
			return true
		}
	}
	return false
}

// isUnderWay reports whether an execution of a final step has started, and the step has not ended.
func (p phase) isUnderWay() bool { return p == executing || p == left || p == waiting }

// isFinalPending reports whether a final step must run before the undo of its flow ends.
func (f *facts) isFinalPending(step int) bool {
	final, _ := f.plan.FinalOf(step)
	phase := f.vertices[step].phase
	return phase.isUnderWay() || phase == unbegun && f.hasStarted(final)
}

// hasFinished reports whether no on_error or final step of a flow is still to run.
func (f *facts) hasFinished(final int) bool {
	if errors := f.plan.Finals()[final].Errors; errors.First < errors.End && !f.hasHandled(final) {
		return false
	}
	steps := f.plan.Finals()[final].Steps
	started := f.hasStarted(final)
	for step := steps.First; step < steps.End; step++ {
		if phase := f.vertices[step].phase; phase.isUnderWay() || started && phase == unbegun {
			return false
		}
	}
	return true
}

// isBeingUndone reports whether the flow of a step, or a retry around it, is undone.
func (f *facts) isBeingUndone(step int) bool { return f.reverting || f.restartingScope(step) >= 0 }

// isLatePending reports whether an on_error or final step must run before the undo of its flow ends.
func (f *facts) isLatePending(step int) bool {
	if f.plan.Step(step).IsOnError() {
		return f.isErrorPending(step)
	}
	return f.isFinalPending(step)
}

// lateFlows prepares the on_error and final steps of a scope for its undo. It returns the flows whose on_error or
// final steps are next, because everything after these steps is undone.
func (c *core) lateFlows(bounds *flow.Scope, now time.Time) (late []int) {
	c.queueLate(bounds, now)
	for i := range c.plan.Finals() {
		final := &c.plan.Finals()[i]
		if place := &c.order[final.Start]; bounds.Holds(final.Start) && (place.after == 0 && !place.undone || c.isAtErrors(i)) {
			late = append(late, i)
		}
	}
	return late
}

// queueLate queues the on_error and final steps under way in a scope.
func (c *core) queueLate(bounds *flow.Scope, now time.Time) {
	for i := range c.plan.Finals() {
		final := &c.plan.Finals()[i]
		if !bounds.Holds(final.Start) {
			continue
		}
		for step := final.Errors.First; step < final.End; step++ {
			switch v := &c.vertices[step]; v.phase {
			case waiting, left:
				c.queueWhenDue(step, v.failedExecutions, now)
			case toUndo: // a crash has cut off its reset
				c.advance(step, onSuccess, logbook.AtomChange{Attempts: []logbook.Attempt{c.nothingUndone(step, now)}}, now)
			}
		}
	}
}

// takeLate starts the next on_error or final step of a flow, when the undo has reached these steps.
func (c *core) takeLate(final int, now time.Time) {
	if c.isAtErrors(final) {
		c.takeErrors(final, now)
		return
	}
	c.takeFinals(final, now)
}

// takeFinals starts the next final step of a flow whose body is undone. When all have ended, the undo continues with
// the steps before the flow.
func (c *core) takeFinals(final int, now time.Time) {
	steps := &c.plan.Finals()[final]
	if c.broken || steps.Errors.First < steps.Errors.End && !c.hasHandled(final) {
		return // the on_error steps come first
	}
	if !c.takeNext(steps.Steps, now) {
		c.tryRevert(steps.Start, now)
	}
}

// takeNext queues the first late step that has not started. It reports whether a late step is queued or runs. Steps
// that lack a value are skipped.
func (c *core) takeNext(steps flow.Steps, now time.Time) bool {
	for step := steps.First; step < steps.End; step++ {
		switch v := &c.vertices[step]; {
		case v.phase.isUnderWay():
			return true // it is queued, or runs
		case v.phase == unbegun && c.lacksValue(step):
			c.ignore([]int{step}, now)
		case v.phase == unbegun:
			if !c.isQueued(step) {
				c.enqueue(step)
			}
			return true
		}
	}
	return false
}

// lateEnded continues an undo when an on_error or final step has ended in it.
func (c *core) lateEnded(step int, now time.Time) {
	final, _ := c.plan.FinalOf(step)
	reached := c.order[c.plan.Finals()[final].Start].after == 0
	if !c.order[step].undone {
		c.tryRevert(step, now) // the undo waits for its end
	}
	if reached {
		c.takeLate(final, now)
	}
	for number := range c.plan.Turns() {
		turns, opening := c.plan.Turns()[number].Elements, c.plan.Turns()[number].Opening
		if len(turns) > 0 && turns[0].Steps.First <= step && step < turns[len(turns)-1].Steps.End && c.isBeingUndone(opening) {
			c.takeUndoTurns(number, now)
		}
	}
}

// passLate counts an on_error or final step as undone, and reports whether it did.
func (c *core) passLate(step int) bool {
	if c.order[step].undone || !c.hasPassed(step) {
		return false
	}
	c.gone++
	return true
}

// hasPassed reports whether an undo may pass an on_error step, a final step, or the gate before their flow.
func (f *facts) hasPassed(vertex int) bool {
	final, _ := f.plan.FinalOf(vertex)
	switch {
	case vertex >= f.plan.Len():
		return f.hasFinished(final)
	case f.plan.Step(vertex).IsOnError():
		return f.hasHandled(final)
	}
	return !f.vertices[vertex].phase.isUnderWay()
}

// isAllUndone reports whether a flow that reverts has ended.
func (c *core) isAllUndone() bool {
	if c.gone < c.plan.Len() {
		return false
	}
	for i := range c.plan.Finals() {
		if !c.order[c.plan.Finals()[i].Start].undone {
			return false
		}
	}
	return true
}

// endRun records an on_error or final step as reverted without calling a revert, so that the step can start again.
func (c *core) endRun(step int, now time.Time) {
	v := &c.vertices[step]
	if v.phase == succeeded || v.phase == tolerated {
		c.advance(step, onRevert, logbook.AtomChange{Intention: v.undoIntention()}, now)
	}
	if v.phase == toUndo {
		c.advance(step, onSuccess, logbook.AtomChange{Attempts: []logbook.Attempt{c.nothingUndone(step, now)}}, now)
	}
}

// lateCause is the reason why the flow of an on_error or final step has not succeeded; zero: it has.
func (c *core) lateCause(step int) logbook.RevertCause {
	switch {
	case c.isBeingUndone(step):
		return c.causeFor(step)
	case c.held:
		return logbook.CauseOf(c.cause)
	}
	if element, ok := c.plan.ElementOf(step); ok {
		final, _ := c.plan.FinalOf(step)
		body := c.plan.Finals()[final].Body
		if failed := c.failedStep(&c.plan.TolerantElements()[element].Bounds); body.First <= failed && failed < body.End {
			return logbook.RevertCause{Kind: logbook.CauseFailure, Reason: c.blame(failed, c.vertices[failed].failure).Error()}
		}
	}
	return logbook.RevertCause{}
}

// lateFailure is the failure of a step as an on_error or final step gets it, even if the step was undone; null: there
// is none. Without a result, another value is absent.
func (f *facts) lateFailure(wire *flow.Wire) (json.RawMessage, bool) {
	failure := f.vertices[wire.From].failure
	switch {
	case wire.Part != flow.PartFailure:
		return nil, false
	case failure == nil:
		return null, true
	}
	return toldValue(failure), true
}
