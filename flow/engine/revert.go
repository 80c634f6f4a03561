package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// turnRound reverts a flow that nothing has gone wrong in. One that reverts
// already has its cause.
func (c *core) turnRound(cause *logbook.Failure, now time.Time) {
	if !c.reverting && !c.broken {
		c.beginRevert(cause, now)
	}
}

// beginRevert turns the flow around: nothing more is executed, and what was
// started is to be undone. What runs is awaited and then undone too.
func (c *core) beginRevert(cause *logbook.Failure, now time.Time) {
	c.reverting, c.cause = true, cause
	c.forget(c.whole())
	for s := range c.scopes {
		c.scopes[s].turning = false
	}
	c.out.flow(logbook.FlowReverting, cause, now)
	c.undone = c.countUndone(c.whole())
	steps := c.plan.Len()
	c.failures = make(map[string]*logbook.Failure)
	for step := range steps {
		v := &c.vertices[step]
		if v.failure != nil {
			c.failures[c.plan.Step(step).Name()] = v.failure
		}
		c.mark(step, now)
	}
	c.revertLast(c.whole(), now)
}

// mark gives a step that was started the intention to be reverted. The time
// for which a retry waits is that of a round that will not be.
func (c *core) mark(step int, now time.Time) {
	v := &c.vertices[step]
	if !v.started || v.intention == logbook.IntendRevert {
		return
	}
	if c.plan.Step(step).IsRetry() {
		v.retryAt = time.Time{}
	}
	if v.failure != nil { // it waits to be tried again, and will not be
		c.noteFailure(step)
	}
	c.change(step, logbook.AtomChange{Intention: logbook.IntendRevert, RetryAt: v.retryAt}, now)
}

// revertLast tries to revert the steps that nothing follows that is to be
// undone. The last come first: that is the order in which a reader expects
// them, and in which one worker would take them. Those before them follow by
// themselves, and must not be tried here as well.
func (c *core) revertLast(bounds *flow.Scope, now time.Time) {
	var last []int
	for step := bounds.End - 1; step >= bounds.Retry; step-- {
		if v := &c.vertices[step]; v.after == 0 && v.state != logbook.AtomIgnored {
			last = append(last, step)
		}
	}
	for _, step := range last {
		c.tryRevert(step, now)
	}
}

// countUndone fills in what each vertex of a scope has to wait for, from back
// to front, and counts the steps that are undone. Nothing behind a scope has
// begun, so only what is in it counts.
func (c *core) countUndone(bounds *flow.Scope) int {
	var order []int
	c.eachVertex(bounds, func(vertex int) {
		v := &c.vertices[vertex]
		v.after, v.behind = 0, 0
		for _, next := range c.plan.Next(vertex) {
			if bounds.Holds(int(next)) {
				v.behind++
			}
		}
		if v.behind == 0 {
			order = append(order, vertex)
		}
	})
	count := 0
	for len(order) > 0 {
		v := order[len(order)-1]
		order = order[:len(order)-1]
		undone := c.isUndone(v)
		if undone && v < c.plan.Len() {
			count++
		}
		for _, previous := range c.plan.Previous(v) {
			if !bounds.Holds(int(previous)) {
				continue
			}
			p := &c.vertices[previous]
			if !undone {
				p.after++
			}
			if p.behind--; p.behind == 0 {
				order = append(order, int(previous))
			}
		}
	}
	return count
}

// isUndone: there is nothing of the vertex to undo, or no more. A gate is
// undone when everything behind it is, and so is a step that was ignored:
// others have run behind it.
func (c *core) isUndone(vertex int) bool {
	v := &c.vertices[vertex]
	if vertex >= c.plan.Len() || v.state == logbook.AtomIgnored {
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
	if c.isTurning(step) {
		c.awaitRound(step, now)
		return false
	}
	if v.state == logbook.AtomIgnored {
		c.undone++
		return true
	}
	if v.open || c.isUndone(step) {
		return false
	}
	if _, ok := c.plan.Step(step).Reverter(); ok {
		if v.state == logbook.AtomReverting {
			c.await(step, v.failedUndo, now)
		} else {
			c.enqueue(step)
		}
		return false
	}
	if v.state != logbook.AtomReverting {
		c.change(step, logbook.AtomChange{State: logbook.AtomReverting}, now)
	}
	change := logbook.AtomChange{State: logbook.AtomReverted}
	if c.plan.Governor(step) >= 0 || c.plan.Step(step).IsRetry() {
		change.Attempts = []logbook.Attempt{c.nothingUndone(step, now)}
	}
	c.change(step, change, now)
	c.undone++
	return true
}

// nothingUndone is the attempt at a revert that does nothing. It is recorded
// where steps can run again after it: reverts are what tells their rounds apart.
func (c *core) nothingUndone(step int, now time.Time) logbook.Attempt {
	v := &c.vertices[step]
	v.reverts++
	v.undone = true
	v.attempt = nil // of a retry that died in it: it will not be ended
	attempt := logbook.Attempt{Action: logbook.ActionRevert, Number: v.reverts, Token: c.call.Token, Owner: c.owner, StartedAt: now, EndedAt: now}
	if s, ok := c.plan.ScopeOf(step); ok {
		attempt.Failures = c.roundFailures(s)
	}
	return attempt
}

func (c *core) reverted(step int, attempt logbook.Attempt, now time.Time) {
	c.change(step, logbook.AtomChange{State: logbook.AtomReverted, Attempts: c.attempts.one(attempt)}, now)
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
		if s := c.turningOver(step); c.cause == nil && s >= 0 && len(c.scopes[s].failed) > 0 {
			failed := slices.Min(c.scopes[s].failed)
			c.cause = c.blame(failed, c.vertices[failed].failure)
		}
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

// leaveStarted ends what was running when a conductor died, in a flow that has
// failed for good since: nobody knows what became of it, and a person is not
// to take it for running. What was being undone stays as it is, and goes on if
// a person has the flow undone further.
func (c *core) leaveStarted(now time.Time) {
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		if v.state != logbook.AtomRunning || v.attempt == nil {
			continue
		}
		left := *v.attempt
		left.EndedAt = now
		left.Failure = &logbook.Failure{Kind: logbook.FailureCrash, Message: "its conductor died, and the flow has failed for good: nobody knows what became of it"}
		v.attempt = nil
		c.change(step, logbook.AtomChange{State: logbook.AtomFailure, Intention: logbook.IntendRevert, Attempts: []logbook.Attempt{left}}, now)
	}
}
