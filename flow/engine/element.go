package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A member of a flow.Group, such as an element of an each with flow.MaxFailures, fails with a step that is tolerated
// and has no flow.IgnoreFailure. Retries around that step do not decide about failures of other steps after that,
// because the steps after the failed step are already skipped.

// toleratesElement reports whether the element of a step may fail. In a flow that is undone, or in a part
// that a retry undoes, it may not.
func (c *core) toleratesElement(step int) bool {
	element, ok := c.plan.ElementOf(step)
	if !ok || c.reverting || c.vertices[step].isDropped() || c.vertices[step].intention == logbook.IntendRevert && c.vertices[step].phase != failed || c.restartingScope(step) >= 0 {
		return false
	}
	group := c.plan.TolerantElements()[element].Group
	return c.hasFailed(element) || len(c.failedElements(group)) < c.plan.Groups()[group].Most
}

// hasRetryInElement reports whether a retry inside the element of a step decides about its failure first.
func (c *core) hasRetryInElement(step int) bool {
	for s := c.plan.Governor(step); c.isInElement(s, step); s = c.plan.Scopes()[s].Parent {
		if c.failedStep(&c.plan.Scopes()[s]) < 0 {
			return true
		}
	}
	return false
}

// isInElement reports whether a scope is inside the element of a step.
func (f *facts) isInElement(scope, step int) bool {
	element, ok := f.plan.ElementOf(step)
	return ok && scope >= 0 && f.plan.TolerantElements()[element].Bounds.Holds(f.plan.Scopes()[scope].Retry)
}

// failedStep is the first step in the bounds of an element, or in a part of it, with which the element has
// failed; -1: there is none.
func (f *facts) failedStep(bounds *flow.Scope) int {
	for step := bounds.Retry; step < bounds.End; step++ {
		if f.vertices[step].phase == tolerated && !f.plan.Step(step).IgnoresFailure() {
			return step
		}
	}
	return -1
}

func (f *facts) hasFailed(element int) bool {
	return f.failedStep(&f.plan.TolerantElements()[element].Bounds) >= 0
}

// failedElements are the failed members of a group.
func (f *facts) failedElements(group int) (failed []int) {
	for i := f.plan.Groups()[group].First; i < f.plan.Groups()[group].End; i++ {
		if f.hasFailed(i) {
			failed = append(failed, i)
		}
	}
	return failed
}

// leaveOutBehind leaves out the steps of a failed element that follow the failed step.
func (c *core) leaveOutBehind(step int, now time.Time) {
	element, ok := c.plan.ElementOf(step)
	if !ok || c.plan.Step(step).IgnoresFailure() {
		return
	}
	bounds := &c.plan.TolerantElements()[element].Bounds
	behind, seen := []int(nil), map[int32]bool{}
	for stack := []int{step}; len(stack) > 0; {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range c.plan.Next(top) {
			if seen[next] || !bounds.Holds(int(next)) {
				continue
			}
			seen[next] = true
			if stack = append(stack, int(next)); int(next) < c.plan.Len() && !c.plan.Step(int(next)).IsLate() {
				behind = append(behind, int(next))
			}
		}
	}
	slices.Sort(behind)
	c.ignore(behind, now)
}

// failElements again leaves out the steps that follow failures, because a crash can have lost this change.
func (c *core) failElements(now time.Time) {
	for step := range c.plan.Len() {
		if c.vertices[step].phase == tolerated && c.restartingScope(step) < 0 {
			c.leaveOutBehind(step, now)
		}
	}
}

// failuresOf is the list of the failures of an each.
func (f *facts) failuresOf(g *flow.Gathered) (json.RawMessage, bool) {
	type failure struct {
		Index int    `json:"index"`
		Step  string `json:"step"`
		toldFailure
	}
	list := []failure{}
	group := slices.IndexFunc(f.plan.Groups(), func(group flow.Group) bool { return group.Opening == g.Each })
	for _, element := range f.failedElements(group) {
		step := f.failedStep(&f.plan.TolerantElements()[element].Bounds)
		list = append(list, failure{f.plan.TolerantElements()[element].Index, f.plan.Step(step).Name(), toldOf(f.vertices[step].failure)})
	}
	value, err := json.Marshal(list)
	return value, err == nil && len(value) <= maxGathered
}
