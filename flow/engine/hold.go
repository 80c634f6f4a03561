package engine

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// A flow with the policy logbook.HoldOnFailure, or after a point of no return, is held when a step has failed
// permanently: no other step starts, running steps finish, on_error steps run, and nothing is undone. Then the flow
// ends in the state failure, and waits for an operator, as after a failed revert.
//
// The cause of a held flow is recorded with the failure, while the flow is still running. So a flow that is running
// with a cause is held: the next owner calls no retry again, and starts nothing.

// holdsAt reports whether the failure of a step holds the flow.
func (c *core) holdsAt(step int) bool {
	if c.passed(c.whole()) >= 0 {
		return true
	}
	if c.holds != "" {
		return c.holds == logbook.HoldOnFailure
	}
	return c.plan.Holds(step)
}

// intentionAfter is the intention for a step that has failed permanently.
func (c *core) intentionAfter(step int) logbook.Intention {
	if c.vertices[step].isDropped() {
		return logbook.IntendDrop
	}
	if c.held || !c.reverting && !c.broken && c.plan.Governor(step) < 0 && c.holdsAt(step) {
		return logbook.IntendExecute
	}
	return logbook.IntendRevert
}

// hold lets the flow end where it is. Offers that no worker has taken are withdrawn.
func (c *core) hold(cause *logbook.Failure, now time.Time) {
	c.held, c.cause = true, cause
	c.forget(c.whole())
	c.out.flow(logbook.FlowRunning, cause, now)
	for step := range c.vertices {
		v := &c.vertices[step]
		if v.phase == failed && v.intention == logbook.IntendRevert && c.restartingScope(step) < 0 {
			c.change(step, logbook.AtomChange{Intention: logbook.IntendExecute}, now) // its retry has not run it again
		}
		if v.isUntaken() {
			c.interrupt(step)
		}
	}
	c.queueLate(c.whole(), now)
	c.handleErrors(now)
}
