package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// The on_error steps of a flow (flow.OnError) run in order when the flow fails. They run before an undo passes
// the gate after the body of the flow, or before the flow is held. In forward execution, they are skipped when
// the body has ended. Exception: if an element that may fail (flow.MaxFailures) has failed, its on_error steps
// run in forward execution.
//
// They wait for the running steps of the body. The record then alone decides: they run if a step or a retry of the body
// has failed. If the time of the flow is over, they also run if a step of the body has started. No step of the body
// starts or fails after that.
//
// When several flows fail, an outer flow runs the on_error steps of the failed flows in its body first.

// fails reports whether the on_error steps of a flow run, if they have not run yet.
func (f *facts) fails(final int) bool {
	if f.reverting || f.held {
		origin := f.cause.Origin()
		switch kind := logbook.CauseOf(origin).Kind; {
		case kind == logbook.CauseCancel:
			return false
		case origin != nil && origin.Step == "" && f.hasStarted(final): // its time is over
			return true
		}
	}
	part := &f.plan.Finals()[final]
	for step := part.Body.First; step < part.Body.End; step++ {
		v := &f.vertices[step]
		if v.phase == failed && !wasInterrupted(v.failure) && !f.wasTolerated(step) || f.failsElement(step, part.Errors.First) {
			return true
		}
	}
	return false
}

// failsElement reports whether a step has failed with its element, and a vertex is in the same element.
func (f *facts) failsElement(step, vertex int) bool {
	if f.vertices[step].phase != tolerated || f.plan.Step(step).IgnoresFailure() {
		return false
	}
	element, ok := f.plan.ElementOf(step)
	return ok && f.plan.TolerantElements()[element].Bounds.Holds(vertex)
}

// isErrorPending reports whether an on_error step is to run before its flow is undone or held.
func (f *facts) isErrorPending(step int) bool {
	final, _ := f.plan.FinalOf(step)
	phase := f.vertices[step].phase
	return phase.isUnderWay() || phase == unbegun && f.fails(final)
}

// hasHandled reports whether an undo may pass the on_error steps of a flow: no step of the body runs, and no
// on_error step must run.
func (f *facts) hasHandled(final int) bool {
	part := &f.plan.Finals()[final]
	for step := part.Body.First; step < part.Body.End; step++ {
		if f.vertices[step].phase == executing {
			return false
		}
	}
	for step := part.Errors.First; step < part.Errors.End; step++ {
		if f.isErrorPending(step) {
			return false
		}
	}
	return true
}

// awaitsErrors reports whether an undo that has not started waits for the on_error steps of a flow around the step.
// The order alone does not hold the step: a retry inside the flow, or a takeover, can have undone the steps after
// it.
func (f *facts) awaitsErrors(step int) bool {
	for _, final := range f.plan.Finals() {
		errors := final.Errors
		if errors.First < errors.End && final.Body.First <= step && step < final.Body.End && !f.order[errors.First].undone && f.isBeingUndone(errors.First) {
			return true
		}
	}
	return false
}

// isAtErrors reports whether an undo has come to the on_error steps of a flow.
func (f *facts) isAtErrors(final int) bool {
	errors := f.plan.Finals()[final].Errors
	if errors.First == errors.End {
		return false
	}
	place := &f.order[errors.End-1]
	return place.after == 0 && !place.undone && f.isBeingUndone(errors.First)
}

// handleErrors continues the on_error steps of flows that are undone, or of a flow that will be held, when a step has
// ended.
func (c *core) handleErrors(now time.Time) {
	if c.held {
		c.handleHeld(now)
		return
	}
	for final := range c.plan.Finals() {
		if c.isAtErrors(final) {
			c.takeErrors(final, now)
		}
	}
}

// takeErrors starts the next on_error step of a flow, or of a failed flow in its body. When all have ended, the undo
// continues with the body.
func (c *core) takeErrors(final int, now time.Time) {
	part := &c.plan.Finals()[final]
	if c.broken || slices.ContainsFunc(c.vertices[part.Body.First:part.Body.End], func(v vertex) bool { return v.phase == executing }) {
		return // it continues at the end of the running steps
	}
	for inner := range final + 1 {
		errors := c.plan.Finals()[inner].Errors
		if (inner == final || part.Body.First <= errors.First && errors.First < part.Body.End) && c.takeErrorsOf(inner, now) {
			return
		}
	}
	c.tryRevert(part.Errors.End-1, now)
	if start := &c.order[part.Start]; start.after == 0 && !start.undone && c.order[part.Errors.First].undone {
		c.takeFinals(final, now) // a retry inside the flow has undone the body before
	}
}

// passErrors returns the steps of a flow whose undo has waited for the on_error steps, when an undo passes the first of
// these.
func (c *core) passErrors(vertex int) (delayed []int) {
	final, ok := c.plan.FinalOf(vertex)
	if !ok || len(c.delayed) == 0 || vertex != c.plan.Finals()[final].Errors.First {
		return nil
	}
	body := c.plan.Finals()[final].Body
	for step := body.First; step < body.End; step++ {
		if name := c.plan.Step(step).Name(); c.delayed[name] {
			delete(c.delayed, name)
			delayed = append(delayed, step)
		}
	}
	return delayed
}

// takeErrorsOf starts the next on_error step of one flow. It reports whether such a step is queued or runs.
func (c *core) takeErrorsOf(final int, now time.Time) bool {
	errors := c.plan.Finals()[final].Errors
	for step := errors.First; step < errors.End; step++ {
		if c.isErrorPending(step) {
			return c.takeNext(flow.Steps{First: step, End: errors.End}, now)
		}
	}
	return false
}

// handleHeld starts the next on_error step of a flow that will be held. The flow is held when all have ended.
func (c *core) handleHeld(now time.Time) {
	if c.broken || c.running > 0 && slices.ContainsFunc(c.plan.Finals(), func(f flow.Final) bool { return f.Errors.First < f.Errors.End }) {
		return
	}
	for final := range c.plan.Finals() {
		if c.takeErrorsOf(final, now) {
			return
		}
	}
	c.broken = true
}
