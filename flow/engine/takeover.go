package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A takeover undoes the last steps (flow.UndoLast): the steps that were cut off, and the last
// finished ones.
//
// The first update of the claim gives each of these steps the intention retry. The intention stays
// until the step is executed again, so the record identifies every state in between:
//
//	running              to be reverted, without a result
//	success              to be reverted, with the recorded result
//	reverting            the same: its last execution shows which
//	reverted, pending    to be executed again
//
// If the owner dies meanwhile, the next owner continues from there. A step with this intention
// counts as begun, so the steps before it are never chosen: an undo does not go back further with
// each death of a conductor. Steps that finished meanwhile, or were cut off in their next
// execution, are chosen as at any takeover.

// isTakenOver reports whether an earlier claim has left the flow running, perhaps before it could
// record anything. A run without claims, such as Local's, takes nothing over.
func isTakenOver(o *Options) bool {
	left := !o.Detail.Begun.IsZero() || o.Detail.Fence != o.Token && !o.Detail.Fence.IsZero()
	return o.Plan.UndoesAnyLast() && o.Detail.State == logbook.FlowRunning && left
}

// derive sets what follows from state and intention.
func (v *vertex) derive(s *flow.Step) {
	v.undoing = v.intention == logbook.IntendRetry && v.state != logbook.AtomPending && s.Kind() == logbook.KindTask
}

// undoLast chooses the steps that a takeover undoes, and begins or continues to undo them.
func (c *core) undoLast(now time.Time) {
	if c.takenOver && c.wasCutOff() {
		for _, step := range c.lastSteps() {
			c.withdraw(step)
			c.change(step, logbook.AtomChange{Intention: logbook.IntendRetry}, now)
		}
		c.undecided = slices.DeleteFunc(c.undecided, func(gate int) bool { return c.vertices[gate].before > 0 })
	}
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		switch {
		case !v.undoing || c.restartingScope(step) >= 0:
		case v.state == logbook.AtomReverted:
			c.executeAgain(step, now)
		default:
			c.queueWhenDue(step, v.failedUndo, now)
		}
	}
}

// wasCutOff reports whether the last owner had something to do: a step ran, could start, or was the
// last. Otherwise the flow only waited, and its job was released until a step was due.
func (c *core) wasCutOff() bool {
	waits := false
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		switch {
		case !v.retryAt.IsZero():
			waits = true
		case v.state == logbook.AtomRunning, v.state == logbook.AtomReverting,
			v.state == logbook.AtomPending && v.before == 0 && c.restartingScope(step) < 0:
			return true
		}
	}
	return !waits
}

// lastSteps are the steps that a takeover undoes. An execution that continues was not cut off: it
// may still run elsewhere, and ends with a result.
func (c *core) lastSteps() (steps []int) {
	behind := make([]bool, len(c.vertices)) // by gate: a step behind it has begun
	for vertex := len(c.vertices) - 1; vertex >= c.plan.Len(); vertex-- {
		behind[vertex] = c.hasBegunBehind(vertex, behind)
	}
	for step := range c.plan.Len() {
		v, s := &c.vertices[step], c.plan.Step(step)
		_, reverts := s.Reverter()
		cutOff := v.state == logbook.AtomRunning && !c.goesOn(step, logbook.ActionExecute)
		// What a condition leaves out behind a step that was cut off has nothing to do with its result.
		last := cutOff || v.state == logbook.AtomSuccess && !c.hasBegunBehind(step, behind)
		if last && v.intention == logbook.IntendExecute && s.Kind() == logbook.KindTask && c.plan.UndoesLast(step) &&
			reverts && !s.AtMostOnce() && !v.spared && v.before == 0 && c.restartingScope(step) < 0 {
			steps = append(steps, step)
		}
	}
	return steps
}

// hasBegunBehind reports whether a step that waits for a vertex has begun, or was ignored because of
// it. For gates, whose numbers are in topological order, behind has the answers.
func (c *core) hasBegunBehind(vertex int, behind []bool) bool {
	for _, next := range c.plan.Next(vertex) {
		v := &c.vertices[next]
		if behind[next] || int(next) < c.plan.Len() && (v.started || v.state == logbook.AtomIgnored || v.intention == logbook.IntendRetry) {
			return true
		}
	}
	return false
}

// withdraw makes all that waits for a step wait for it again. None of it has begun.
func (c *core) withdraw(step int) {
	stack := []int{step}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !c.vertices[top].released {
			continue
		}
		c.vertices[top].released = false
		for _, next := range c.plan.Next(top) {
			c.vertices[next].before++
			stack = append(stack, int(next))
		}
	}
}

// executeAgain returns a step that is undone to pending. It keeps the intention until it is executed.
func (c *core) executeAgain(step int, now time.Time) {
	c.change(step, logbook.AtomChange{State: logbook.AtomPending}, now)
	c.vertices[step].forgetRound()
}
