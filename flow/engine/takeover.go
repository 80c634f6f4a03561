package engine

import (
	"slices"
	"time"

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

// repeats reports whether a step is undone because of a takeover, and executed again.
func (c *core) repeats(step int) bool {
	v := &c.vertices[step]
	return v.intention == logbook.IntendRetry && v.phase != unbegun && v.phase != waiting && !c.plan.Step(step).IsRetry()
}

func (c *core) noteSpared(step int) {
	if c.spared == nil {
		c.spared = make(map[int]bool)
	}
	c.spared[step] = true
}

// undoLast chooses the steps that a takeover undoes, and begins or continues to undo them.
func (c *core) undoLast(now time.Time) {
	if c.takenOver && c.wasCutOff() {
		for _, step := range c.lastSteps() {
			c.order.withdraw(c.plan, step)
			c.change(step, logbook.AtomChange{Intention: logbook.IntendRetry}, now)
		}
		c.undecided = slices.DeleteFunc(c.undecided, func(gate int) bool { return c.order[gate].before > 0 })
	}
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		switch {
		case !c.repeats(step) || c.restartingScope(step) >= 0:
		case v.phase == undone:
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
		case v.phase == left, v.phase == toUndo,
			(v.phase == unbegun || v.phase == waiting) && c.order[step].before == 0 && c.restartingScope(step) < 0:
			return true
		}
	}
	return !waits
}

// lastSteps are the steps that a takeover undoes. An execution that continues was not cut off: it
// may still run elsewhere, and ends with a result.
func (c *core) lastSteps() (steps []int) {
	behind := make([]bool, len(c.order)) // by gate: a step behind it has begun
	for vertex := len(c.order) - 1; vertex >= c.plan.Len(); vertex-- {
		behind[vertex] = c.hasBegunBehind(vertex, behind)
	}
	for step := range c.plan.Len() {
		v, s := &c.vertices[step], c.plan.Step(step)
		_, reverts := s.Reverter()
		cutOff := v.phase == left && !c.goesOn(step, logbook.ActionExecute)
		// What a condition leaves out behind a step that was cut off has nothing to do with its result.
		last := cutOff || v.phase == succeeded && !c.hasBegunBehind(step, behind)
		if last && v.intention == logbook.IntendExecute && s.Kind() == logbook.KindTask && c.plan.UndoesLast(step) &&
			reverts && !s.AtMostOnce() && !c.spared[step] && c.order[step].before == 0 && c.restartingScope(step) < 0 {
			steps = append(steps, step)
		}
	}
	return steps
}

// hasBegunBehind reports whether a step that waits for a vertex has begun, or was ignored because of
// it. For gates, whose numbers are in topological order, behind has the answers.
func (c *core) hasBegunBehind(vertex int, behind []bool) bool {
	for _, next := range c.plan.Next(vertex) {
		if behind[next] || int(next) < c.plan.Len() && (c.vertices[next].phase != unbegun || c.vertices[next].intention == logbook.IntendRetry) {
			return true
		}
	}
	return false
}

// executeAgain returns a step that is undone to pending. It keeps the intention until it is executed.
func (c *core) executeAgain(step int, now time.Time) {
	c.advance(step, onReset, logbook.AtomChange{}, now)
	c.vertices[step].forgetRound()
}
