package engine

import (
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// beginRevert turns the flow around: nothing more is executed, and what was
// started is to be undone. What runs is awaited and then undone too.
func (c *core) beginRevert(cause *logbook.Failure, now time.Time) {
	c.reverting, c.cause = true, cause
	c.ready.clear()
	c.due = c.due[:0]
	c.out.flow(logbook.FlowReverting, cause, now)
	c.countUndone()
	steps := c.plan.Len()
	c.failures = make(map[string]*logbook.Failure)
	for step := range steps {
		v := &c.vertices[step]
		if v.failure != nil {
			c.failures[c.plan.Step(step).Name()] = v.failure
		}
		if v.started && v.intention != logbook.IntendRevert {
			c.change(step, logbook.AtomChange{Intention: logbook.IntendRevert, RetryAt: v.retryAt}, now)
		}
	}
	// The last steps first: that is the order in which a reader expects them,
	// and in which one worker would take them. Those before them follow by
	// themselves, and must not be tried here as well.
	var last []int
	for step := steps - 1; step >= 0; step-- {
		if c.vertices[step].after == 0 {
			last = append(last, step)
		}
	}
	for _, step := range last {
		c.tryRevert(step, now)
	}
}

// countUndone fills in what each vertex has to wait for, from back to front.
func (c *core) countUndone() {
	open := make([]int, len(c.vertices))
	var order []int
	for v := range c.vertices {
		c.vertices[v].after = 0
		if open[v] = len(c.plan.Next(v)); open[v] == 0 {
			order = append(order, v)
		}
	}
	c.undone = 0
	for len(order) > 0 {
		v := order[len(order)-1]
		order = order[:len(order)-1]
		undone := c.isUndone(v)
		if undone && v < c.plan.Len() {
			c.undone++
		}
		for _, previous := range c.plan.Previous(v) {
			if !undone {
				c.vertices[previous].after++
			}
			if open[previous]--; open[previous] == 0 {
				order = append(order, int(previous))
			}
		}
	}
}

// isUndone: there is nothing of the vertex to undo, or no more. A gate is
// undone when everything behind it is.
func (c *core) isUndone(vertex int) bool {
	v := &c.vertices[vertex]
	if vertex >= c.plan.Len() {
		return v.after == 0
	}
	return !v.started || v.state == logbook.AtomReverted
}

// tryRevert makes the revert of a vertex ready, all behind which is undone,
// unless it still runs or has nothing to undo. A step without a revert is
// undone there and then, and so may be those before it.
func (c *core) tryRevert(step int, now time.Time) {
	stack := []int{step}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if c.broken || top < c.plan.Len() && !c.undoStep(top, now) {
			continue
		}
		for _, previous := range c.plan.Previous(top) {
			if c.vertices[previous].after--; c.vertices[previous].after == 0 {
				stack = append(stack, int(previous))
			}
		}
	}
}

// undoStep does what is to be done about one step whose successors are
// undone, and tells whether that has made it undone just now.
func (c *core) undoStep(step int, now time.Time) bool {
	v := &c.vertices[step]
	if v.open || c.isUndone(step) {
		return false
	}
	if _, ok := c.plan.Step(step).Reverter(); ok {
		if v.state == logbook.AtomReverting {
			c.await(step, v.failedUndo, now)
		} else {
			c.ready.push(step)
		}
		return false
	}
	if v.state != logbook.AtomReverting {
		c.change(step, logbook.AtomChange{State: logbook.AtomReverting}, now)
	}
	c.change(step, logbook.AtomChange{State: logbook.AtomReverted}, now)
	c.undone++
	return true
}

func (c *core) reverted(step int, attempt logbook.Attempt, now time.Time) {
	c.change(step, logbook.AtomChange{State: logbook.AtomReverted, Attempts: []logbook.Attempt{attempt}}, now)
	c.undone++
	for _, previous := range c.plan.Previous(step) {
		if c.vertices[previous].after--; c.vertices[previous].after == 0 {
			c.tryRevert(int(previous), now)
		}
	}
}

func (c *core) revertFailed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	attempt.Failure = fitFailure(c.limits, c.plan.Step(step), attempt.Failure)
	v.failedUndo++
	attempts := []logbook.Attempt{attempt}
	if !c.broken {
		if delay, again := c.plan.Step(step).Retry().Again(v.failedUndo); again && !attempt.Failure.Permanent {
			c.change(step, logbook.AtomChange{State: logbook.AtomReverting, RetryAt: dueAt(now, delay), Attempts: attempts}, now)
			c.postpone(step, delay, now)
			return
		}
	}
	c.change(step, logbook.AtomChange{State: logbook.AtomRevertFailure, Attempts: attempts}, now)
	if !c.broken {
		c.breakOff(step, attempt.Failure)
	}
}

// breakOff ends the flow for good. The failed revert is what a person has to
// look at first; why the flow was reverting at all stands below it. If a
// person has had it tried again before, an earlier failed revert is not kept:
// the causes would grow with every try.
func (c *core) breakOff(step int, failure *logbook.Failure) {
	cause := c.blame(step, failure)
	if original := c.cause; original != nil {
		if n := len(original.Causes); n > 0 && original.Causes[n-1].Step != "" {
			original = &original.Causes[n-1]
		}
		original = flow.FitFailure(original, c.limits) // others may have had higher ones
		cause.Causes = append(cause.Causes[:len(cause.Causes):len(cause.Causes)], *original)
	}
	c.broken, c.cause = true, cause
}
