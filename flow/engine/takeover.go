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
// counts as started, so the steps before it are never chosen: an undo does not go back further with
// each death of a conductor. Steps that finished meanwhile, or were cut off in their next
// execution, are chosen as at any takeover.

// isTakenOver reports whether an earlier claim has left the flow running, perhaps before it could
// record anything. A run without claims, such as Local's, takes nothing over.
func isTakenOver(o *Options) bool {
	left := !o.Detail.Begun.IsZero() || o.Detail.Fence != o.Token && !o.Detail.Fence.IsZero()
	return o.Plan.UndoesAnyLast() && o.Detail.State == logbook.FlowRunning && left
}

// repeats reports whether a step is undone because of a takeover, and executed again.
func (f *facts) repeats(step int) bool {
	v := &f.vertices[step]
	return v.intention == logbook.IntendRetry && v.phase != unbegun && v.phase != waiting && !f.plan.Step(step).IsRetry()
}

// undoLast chooses the steps that a takeover undoes, and starts or continues their undo.
func (c *core) undoLast(now time.Time) {
	if c.found.takenOver && c.wasCutOff() {
		for _, step := range c.lastSteps(c.found.intervened.spared) {
			c.order.withdraw(c.plan, step)
			c.turnCounts = nil
			c.change(step, logbook.AtomChange{Intention: logbook.IntendRetry}, now)
		}
		c.found.undecided = slices.DeleteFunc(c.found.undecided, func(gate int) bool { return c.order[gate].before > 0 })
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
func (f *facts) wasCutOff() bool {
	waits := false
	for step := range f.plan.Len() {
		v := &f.vertices[step]
		switch {
		case !v.retryAt.IsZero(), v.phase == waiting && v.isAsked(logbook.ActionExecute):
			waits = true // without a time if a signal, a decision or an operator has ended the wait
		case v.phase == left, v.phase == toUndo,
			(v.phase == unbegun || v.phase == waiting) && f.order[step].before == 0 && f.restartingScope(step) < 0:
			return true
		}
	}
	return !waits
}

// lastSteps are the steps that a takeover undoes, without the spared ones. An execution that continues was not cut off:
// it may still run elsewhere, and ends with a result.
func (f *facts) lastSteps(spared map[int]bool) (steps []int) {
	behind := make([]bool, len(f.order)) // by gate: a step after it has started
	kept := f.keptTurns()
	for vertex := len(f.order) - 1; vertex >= f.plan.Len(); vertex-- {
		behind[vertex] = kept[vertex] || f.hasBegunBehind(vertex, behind)
	}
	for step := range f.plan.Len() {
		v, s := &f.vertices[step], f.plan.Step(step)
		_, reverts := s.Reverter()
		cutOff := v.phase == left && !f.goesOn(step, logbook.ActionExecute)
		// If a condition skips steps after a step that was cut off, they do not depend on its result.
		last := cutOff || v.phase == succeeded && !f.hasBegunBehind(step, behind)
		if last && v.intention == logbook.IntendExecute && s.Kind() == logbook.KindTask && f.plan.UndoesLast(step) &&
			reverts && !s.AtMostOnce() && !s.PointOfNoReturn() && !spared[step] && !f.isDecided(step) && f.order[step].before == 0 && f.restartingScope(step) < 0 {
			steps = append(steps, step)
		}
	}
	return steps
}

// hasBegunBehind reports whether a step that waits for a vertex has started, or was ignored because of
// it. behind caches the answers for gates, whose numbers are in topological order.
func (f *facts) hasBegunBehind(vertex int, behind []bool) bool {
	for _, next := range f.plan.Next(vertex) {
		if behind[next] || int(next) < f.plan.Len() && (f.vertices[next].phase != unbegun || f.vertices[next].intention == logbook.IntendRetry) {
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
