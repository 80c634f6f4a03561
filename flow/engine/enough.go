package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A group with flow.Enough is decided when enough members are complete. The other members are dropped: their
// started steps get the intention drop and are undone, as in a revert of these members alone. Their other steps
// are ignored. The gate of the group is released when the undo has ended, so no step after the group runs in
// parallel with the undo.
//
// The decision follows from the record alone: a step of a dropped member is recorded with the intention drop, or not as
// a success, before any later result. So a resumed run finds the same complete members and makes the same decision,
// even if the drop itself was lost.

// isDropped reports whether a step reverts or has reverted because enough other members have succeeded.
func (v *vertex) isDropped() bool { return v.intention == logbook.IntendDrop }

// isLeaving reports whether a dropped step is not undone yet.
func (v *vertex) isLeaving() bool { return v.isDropped() && v.phase != undone }

// isToUndo reports whether a started step reverts, and does not run again.
func (v *vertex) isToUndo() bool { return v.intention == logbook.IntendRevert || v.isDropped() }

// isAbsent reports whether a step was skipped or dropped: it has no result, and later steps get none.
func (f *facts) isAbsent(step int) bool {
	return f.vertices[step].phase == ignored || f.vertices[step].isDropped()
}

// isComplete reports whether all steps of a member are done, without a failure of the member.
func (f *facts) isComplete(member int) bool {
	bounds := &f.plan.TolerantElements()[member].Bounds
	for step := bounds.Retry; step < bounds.End; step++ {
		if !f.isDone(step) || !f.order[step].released || f.vertices[step].isDropped() {
			return false
		}
	}
	return !f.hasFailed(member)
}

// complete counts the complete members of a group.
func (f *facts) complete(group *flow.Group) (count int) {
	for member := group.First; member < group.End; member++ {
		if f.isComplete(member) {
			count++
		}
	}
	return count
}

// hasEnded reports whether every member of a group is complete, or nothing of it is left. With n members, of
// which n is enough, all are complete.
func (f *facts) hasEnded(group *flow.Group) bool {
	for member := group.First; member < group.End; member++ {
		bounds := &f.plan.TolerantElements()[member].Bounds
		for step := bounds.Retry; step < bounds.End; step++ {
			if !f.isDone(step) || f.vertices[step].isLeaving() {
				return false
			}
		}
		if f.hasFailed(member) {
			return false
		}
	}
	return true
}

// passesGroup reports whether a gate is not the end of a group with Enough, or that group has ended.
func (f *facts) passesGroup(gate int) bool {
	group, ok := f.plan.GroupAt(gate)
	return !ok || f.hasEnded(&f.plan.Groups()[group])
}

// settle decides the groups of members in which something was released, and fails the steps that lack a value.
func (c *core) settle(members, lacking []int, now time.Time) {
	for _, member := range members {
		if c.isComplete(member) {
			c.dropOthers(c.plan.TolerantElements()[member].Group, false, now)
		}
	}
	for _, step := range lacking {
		if c.vertices[step].phase == unbegun && !c.reverting && !c.broken && c.restartingScope(step) < 0 {
			c.executeHere(step, now)
			failure := argumentFailure("it requires a value of a step whose failure is ignored, and there is no default result")
			c.finish(outcome{step: step, failure: failure, unbegun: true, ended: now}, now)
		}
	}
}

// settleAll decides the groups whose decision a crash has lost, and continues to undo dropped members.
func (c *core) settleAll(now time.Time) {
	for group := range c.plan.Groups() {
		c.dropOthers(group, true, now)
	}
}

// dropOthers drops the other members of a group if enough are complete. again: also members that an earlier run
// has dropped.
func (c *core) dropOthers(number int, again bool, now time.Time) {
	group := &c.plan.Groups()[number]
	if group.Enough == 0 || group.First == group.End || c.reverting || c.broken ||
		c.restartingScope(c.plan.TolerantElements()[group.First].Bounds.Retry) >= 0 || c.complete(group) < group.Enough {
		return
	}
	var dropped []int
	for member := group.First; member < group.End; member++ {
		_, dropping := c.droppingMember(c.plan.TolerantElements()[member].Bounds.Retry)
		if !c.isComplete(member) && (again || !dropping) {
			c.drop(member, now)
			dropped = append(dropped, member)
		}
	}
	if !c.takeDropTurns(group, now) {
		for _, member := range dropped {
			c.revertLast(&c.plan.TolerantElements()[member].Bounds, now)
		}
	}
	for _, member := range dropped {
		c.releaseDropped(member, now)
	}
	c.passGroup(number, now)
}

// lacksOutside reports whether a step that has not started lacks a value of a step outside its member. Then the member
// has failed: without its steps, it must not be a success.
func (f *facts) lacksOutside(step int) bool {
	member, ok := f.plan.Member(step)
	if !ok || f.vertices[step].phase != unbegun || !f.lacksValue(step) {
		return false
	}
	bounds := &f.plan.TolerantElements()[member].Bounds
	for _, wires := range [][]flow.Wire{f.plan.Arguments(step), f.plan.RevertArguments(step)} {
		for i := range wires {
			if source := f.source(&wires[i]); source.From >= 0 && !source.Optional && source.Part != flow.PartFailure && !bounds.Holds(source.From) &&
				(f.vertices[source.From].hasNoDefault() || f.vertices[source.From].phase == ignored && f.lacksValue(source.From)) {
				return true
			}
		}
	}
	return false
}

// drop is undoScope for a member: none of its steps is executed any more, and its started steps are undone.
func (c *core) drop(member int, now time.Time) {
	bounds := &c.plan.TolerantElements()[member].Bounds
	c.forgetTurn(member)
	for s := range c.scopes {
		if bounds.Holds(c.plan.Scopes()[s].Retry) {
			c.scopes[s].restarting = false
		}
	}
	c.forget(bounds)
	c.forgetTurns(bounds)
	c.lists, c.lacking = nil, nil
	var unbegunSteps []int
	for step := bounds.Retry; step < bounds.End; step++ {
		if !c.vertices[step].phase.hasBegun() {
			unbegunSteps = append(unbegunSteps, step)
		} else if !c.vertices[step].isDropped() {
			c.dropStep(step, now)
		}
	}
	c.ignore(unbegunSteps, now)
	c.order.countUndone(c.plan, bounds, c.isUndone)
}

// dropStep gives a started step the intention drop. A failure that was ignored is an ordinary failure from now on.
func (c *core) dropStep(step int, now time.Time) {
	v := &c.vertices[step]
	c.interrupt(step)
	if c.plan.Step(step).IsRetry() {
		v.retryAt = time.Time{}
	}
	c.dropFailure(step)
	to := v.phase
	if to == tolerated {
		to = failed
	}
	c.record(step, to, logbook.AtomChange{Intention: logbook.IntendDrop, RetryAt: v.retryAt}, now)
}

// releaseDropped releases what waits for a dropped member, when nothing of it is left.
func (c *core) releaseDropped(member int, now time.Time) {
	element := &c.plan.TolerantElements()[member]
	for step := element.Bounds.Retry; step < element.Bounds.End; step++ {
		if !c.isDone(step) || c.vertices[step].isLeaving() {
			return
		}
	}
	eachVertex(&element.Bounds, func(vertex int) {
		if c.order[vertex].before == 0 && !c.order[vertex].released {
			c.release(vertex, now)
		}
	})
	c.takeDropTurns(&c.plan.Groups()[element.Group], now)
	c.passGroup(element.Group, now)
}

// passGroup releases the gate of a group that has ended.
func (c *core) passGroup(number int, now time.Time) {
	group := &c.plan.Groups()[number]
	if place := &c.order[group.Gate]; place.before == 0 && !place.released && c.hasEnded(group) {
		c.release(group.Gate, now)
	}
}

// droppingMember is the dropped member that contains a vertex, while it is undone alone. false: there is none, or
// more than the member is undone.
func (f *facts) droppingMember(vertex int) (member int, ok bool) {
	if _, selected := f.plan.Selection(vertex); !selected || f.reverting {
		return 0, false
	}
	member, _ = f.plan.ElementOf(vertex)
	bounds := &f.plan.TolerantElements()[member].Bounds
	if f.restartingScope(bounds.Retry) >= 0 {
		return 0, false
	}
	for step := bounds.Retry; step < bounds.End; step++ {
		if f.vertices[step].isDropped() {
			return member, true
		}
	}
	return 0, false
}

// undoneBefore are the vertices that revert only after a vertex has reverted.
func (f *facts) undoneBefore(vertex int) []int32 {
	previous := f.plan.Previous(vertex)
	if len(f.plan.Groups()) == 0 {
		return previous
	}
	member, ok := f.droppingMember(vertex)
	if !ok {
		return previous
	}
	bounds := &f.plan.TolerantElements()[member].Bounds
	return slices.DeleteFunc(slices.Clone(previous), func(before int32) bool { return !bounds.Holds(int(before)) })
}

// recountDropped counts what is left to undo in dropped members, after the flow has grown.
func (c *core) recountDropped() {
	for i := range c.plan.TolerantElements() {
		bounds := &c.plan.TolerantElements()[i].Bounds
		if _, dropping := c.droppingMember(bounds.Retry); dropping {
			c.order.countUndone(c.plan, bounds, c.isUndone)
		}
	}
}

// isDecided reports whether a step is in a group with Enough whose other members were dropped, or will be.
func (f *facts) isDecided(step int) bool {
	number, ok := f.plan.Selection(step)
	return ok && f.complete(&f.plan.Groups()[number]) >= f.plan.Groups()[number].Enough
}

// isSelected reports whether a step is in a group with Enough.
func (f *facts) isSelected(step int) bool {
	_, ok := f.plan.Selection(step)
	return ok
}

// enoughText is the reason why a step is dropped.
func (f *facts) enoughText(step int) string {
	number, ok := f.plan.Selection(step)
	if !ok {
		return ""
	}
	group := &f.plan.Groups()[number]
	return fmt.Sprintf("%d of the %d members of flow %q have succeeded", group.Enough, group.End-group.First, group.Name)
}

// checkEnough refuses a list with fewer elements than must succeed.
func (f *facts) checkEnough(opening, elements int) error {
	if enough := f.plan.Step(opening).Enough(); elements < enough {
		return fmt.Errorf("its list has %d elements, and %d must succeed: make the list longer, or lower enough", elements, enough)
	}
	return nil
}

// unreached adds to the failure of a step that its group cannot have enough members any more.
func (f *facts) unreached(step int, failure *logbook.Failure) *logbook.Failure {
	number, ok := f.plan.Selection(step)
	if !ok {
		return failure
	}
	group := &f.plan.Groups()[number]
	succeeded, lost := f.complete(group), 1
	own, _ := f.plan.ElementOf(step)
	for member := group.First; member < group.End; member++ {
		if member != own && f.hasFailed(member) {
			lost++
		}
	}
	told := *failure
	told.Message = fmt.Sprintf("flow %q needs %d of %d members: %d succeeded and %d failed; the last failure: %s",
		group.Name, group.Enough, group.End-group.First, succeeded, lost, failure.Message)
	return flow.FitFailure(&told, f.limits)
}
