package engine

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// The final steps of a flow (flow.Finally) run once for each run of the flow. Forwards, they are steps behind a gate
// that waits for the other steps of the flow, the *body*. Their failures are ignored.
//
// An undo goes through a flow in this order:
//
//  1. A final step that has begun ends.
//  2. The body is undone.
//  3. The final steps that have not ended are executed, in order, if a step of the body has run.
//  4. The undo passes the gate in front of the flow.
//
// Final steps are not undone. In a flow that reverts, they keep the state success or failure. When a retry around the
// flow begins another round, their end is recorded as an undo of nothing, as for a step without a revert.
//
// The record alone decides: a final step runs in an undo if the body is undone and the step has not ended.

// hasStarted reports whether a step of the body of a flow has run since the flow began.
func (f *facts) hasStarted(final int) bool {
	body := f.plan.Finals()[final].Body
	for step := body.First; step < body.End; step++ {
		v, s := &f.vertices[step], f.plan.Step(step)
		if scope, ok := f.plan.ScopeOf(step); ok && (f.scopes[scope].restarting || len(f.scopes[scope].rounds) > 1) {
			return true // a round ends with the failure of a step
		}
		if s.Kind() == logbook.KindTask && !s.IsFinal() && (v.phase.hasBegun() || v.intention == logbook.IntendRetry) {
			return true
		}
	}
	return false
}

// isUnderWay reports whether an execution of a final step has begun, and the step has not ended.
func (p phase) isUnderWay() bool { return p == executing || p == left || p == waiting }

// isFinalPending reports whether a final step is to run before the undo of its flow is over.
func (f *facts) isFinalPending(step int) bool {
	final, _ := f.plan.FinalOf(step)
	phase := f.vertices[step].phase
	return phase.isUnderWay() || phase == unbegun && f.hasStarted(final)
}

// hasFinished reports whether no final step of a flow is still to run.
func (f *facts) hasFinished(final int) bool {
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

// lateFinals prepares the final steps of a scope for its undo: those under way are queued again. It returns the flows
// whose body is undone already, as after a crash.
func (c *core) lateFinals(bounds *flow.Scope, now time.Time) (late []int) {
	for i := range c.plan.Finals() {
		final := &c.plan.Finals()[i]
		if !bounds.Holds(final.Start) {
			continue
		}
		for step := final.First; step < final.End; step++ {
			switch v := &c.vertices[step]; v.phase {
			case waiting, left:
				c.queueWhenDue(step, v.failedExecutions, now)
			case toUndo: // a crash has cut off its reset
				c.advance(step, onSuccess, logbook.AtomChange{Attempts: []logbook.Attempt{c.nothingUndone(step, now)}}, now)
			}
		}
		if place := &c.order[final.Start]; place.after == 0 && !place.undone {
			late = append(late, i)
		}
	}
	return late
}

// takeFinals starts the next final step of a flow whose body is undone. When all have ended, the undo continues in
// front of the flow.
func (c *core) takeFinals(final int, now time.Time) {
	steps := &c.plan.Finals()[final]
	if c.broken {
		return
	}
	for step := steps.First; step < steps.End; step++ {
		switch v := &c.vertices[step]; {
		case v.phase.isUnderWay():
			return // it is queued, or runs
		case v.phase == unbegun && c.lacksValue(step):
			c.ignore([]int{step}, now)
		case v.phase == unbegun:
			c.enqueue(step)
			return
		}
	}
	c.tryRevert(steps.Start, now)
}

// finalEnded continues an undo when a final step has ended in it.
func (c *core) finalEnded(step int, now time.Time) {
	final, _ := c.plan.FinalOf(step)
	reached := c.order[c.plan.Finals()[final].Start].after == 0
	if !c.order[step].undone {
		c.tryRevert(step, now) // it began before the undo, which waits for its end
	}
	if reached {
		c.takeFinals(final, now)
	}
	for number := range c.plan.Turns() {
		if turns := c.plan.Turns()[number].Elements; len(turns) > 0 && turns[0].Steps.First <= step && step < turns[len(turns)-1].Steps.End {
			c.takeUndoTurns(number, now)
		}
	}
}

// passFinal counts a final step as undone, and reports whether it did.
func (c *core) passFinal(step int) bool {
	if c.vertices[step].phase.isUnderWay() || c.order[step].undone {
		return false
	}
	c.gone++
	return true
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

// endRun records the end of a final step as an undo of nothing, so that the step can begin again.
func (c *core) endRun(step int, now time.Time) {
	v := &c.vertices[step]
	if v.phase == succeeded || v.phase == tolerated {
		c.advance(step, onRevert, logbook.AtomChange{Intention: v.undoIntention()}, now)
	}
	if v.phase == toUndo {
		c.advance(step, onSuccess, logbook.AtomChange{Attempts: []logbook.Attempt{c.nothingUndone(step, now)}}, now)
	}
}

// finalCause is why the flow of a final step has not succeeded; zero: it has.
func (c *core) finalCause(step int) logbook.RevertCause {
	if c.isBeingUndone(step) {
		return c.causeFor(step)
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

// lateFailure is the failure of a step as a final step gets it, also if the step was undone; null: there is none.
// Without a result, another value is absent.
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
