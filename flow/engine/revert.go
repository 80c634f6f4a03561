package engine

import (
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// requestRevert reverts a flow for a reason from outside. One that reverts already
// keeps its cause. Running executions end by themselves, unless interruptRunning follows.
func (c *core) requestRevert(cause *logbook.Failure, now time.Time) {
	if !c.reverting && !c.broken {
		c.patient = true
		c.beginRevert(cause, now)
		c.patient = false
	}
}

// beginRevert reverts the flow: no step is executed any more, and started ones are
// undone. Running ones are interrupted, and awaited first.
func (c *core) beginRevert(cause *logbook.Failure, now time.Time) {
	c.reverting, c.cause = true, cause
	c.forget(c.whole())
	for s := range c.scopes {
		c.scopes[s].restarting = false
	}
	c.out.flow(logbook.FlowReverting, cause, now)
	c.undone = c.countUndone(c.whole())
	steps := c.plan.Len()
	c.failures = make(map[string]*logbook.Failure)
	for step := range steps {
		v := &c.vertices[step]
		if v.failure != nil && !wasInterrupted(v.failure) {
			c.failures[c.plan.Step(step).Name()] = v.failure
		}
		c.mark(step, now)
	}
	c.revertLast(c.whole(), now)
}

// mark gives a started step the intention revert. A retry's next round will not
// begin, so its time is cleared. A running execution is interrupted.
func (c *core) mark(step int, now time.Time) {
	v := &c.vertices[step]
	if !v.started || v.intention == logbook.IntendRevert {
		return
	}
	if !c.patient {
		c.interrupt(step)
	}
	if c.plan.Step(step).IsRetry() {
		v.retryAt = time.Time{}
	}
	if v.failure != nil { // it was waiting for another try
		c.noteFailure(step)
	}
	c.change(step, logbook.AtomChange{Intention: logbook.IntendRevert, RetryAt: v.retryAt}, now)
}

// revertLast tries to revert the steps behind which nothing has to be undone, from
// last to first: the order in which one worker takes them. The steps before them
// follow when these are undone.
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

// countUndone sets vertex.after for the vertices of a scope, from back to front, and
// returns how many steps are undone. Nothing behind the scope has begun, so only its
// own vertices count.
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

// isUndone reports whether nothing of a vertex is left to undo. A gate is undone when
// everything behind it is. So is an ignored step, because steps behind it may have run.
func (c *core) isUndone(vertex int) bool {
	v := &c.vertices[vertex]
	if vertex >= c.plan.Len() || v.state == logbook.AtomIgnored {
		return v.after == 0
	}
	return !v.started || v.state == logbook.AtomReverted
}

// tryRevert makes the revert of a vertex ready, unless it still runs or has nothing
// to undo. Everything behind it must be undone. A step without a revert is undone at
// once, and then perhaps its predecessors.
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

// undoStep begins to undo a step whose successors are undone. It reports whether the
// step is undone now and was not before.
func (c *core) undoStep(step int, now time.Time) bool {
	v := &c.vertices[step]
	if c.isRestarting(step) {
		c.queueRound(step, now)
		return false
	}
	if v.state == logbook.AtomIgnored {
		c.undone++
		return true
	}
	if v.open || c.isUndone(step) {
		return false
	}
	if _, ok := c.plan.Step(step).Reverter(); ok || c.isWithWorker(step) {
		if v.state == logbook.AtomReverting {
			c.queueWhenDue(step, v.failedUndo, now)
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

// nothingUndone is the attempt of a step without a revert. It is recorded for steps
// that may run again, because reverts separate their rounds.
func (c *core) nothingUndone(step int, now time.Time) logbook.Attempt {
	v := &c.vertices[step]
	v.reverts++
	v.undone = true
	v.attempt = nil // an open one of a retry whose conductor died: it never ends
	attempt := logbook.Attempt{Action: logbook.ActionRevert, Number: v.reverts, Token: c.call.Token, Owner: c.owner, StartedAt: now, EndedAt: now}
	if s, ok := c.plan.ScopeOf(step); ok {
		attempt.Failures = c.roundFailures(s)
	}
	return attempt
}

func (c *core) reverted(step int, attempt logbook.Attempt, now time.Time) {
	again := c.vertices[step].undoing
	c.change(step, logbook.AtomChange{State: logbook.AtomReverted, Attempts: c.attempts.one(attempt)}, now)
	if again {
		c.executeAgain(step, now)
		c.enqueue(step)
		return
	}
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
	delay, again := time.Duration(0), v.loses(attempt.Failure)
	if !again {
		v.failedUndo++
		delay, again = c.plan.Step(step).Again(v.failedUndo)
	}
	attempts := []logbook.Attempt{attempt}
	if !c.broken {
		if again && !attempt.Failure.Permanent {
			c.change(step, logbook.AtomChange{State: logbook.AtomReverting, RetryAt: dueAt(now, delay), Attempts: attempts}, now)
			c.postpone(step, delay, now)
			return
		}
	}
	change := logbook.AtomChange{State: logbook.AtomRevertFailure, Attempts: attempts}
	if v.undoing {
		change.Intention = logbook.IntendRevert
	}
	c.change(step, change, now)
	if !c.broken {
		if s := c.restartingScope(step); c.cause == nil && s >= 0 && len(c.scopes[s].failed) > 0 {
			failed := slices.Min(c.scopes[s].failed)
			c.cause = c.blame(failed, c.vertices[failed].failure)
		}
		c.breakOff(step, attempt.Failure)
	}
}

// breakOff ends the flow permanently. The failed revert becomes its cause, because an operator
// must look at that first; the earlier cause of the revert is below it. An earlier failed revert
// is dropped, because the causes would otherwise grow with every try.
func (c *core) breakOff(step int, failure *logbook.Failure) {
	cause := c.blame(step, failure)
	if original := c.cause; original != nil {
		if n := len(original.Causes); n > 0 && original.Causes[n-1].Step != "" {
			original = &original.Causes[n-1]
		}
		original = flow.FitFailure(original, c.limits) // it may come from a conductor with higher limits
		cause.Causes = append(cause.Causes[:len(cause.Causes):len(cause.Causes)], *original)
	}
	c.broken, c.cause = true, cause
}

// failInterrupted fails the steps that were running when a conductor died, in a flow that has
// failed permanently since. Their outcome is unknown, and an operator must not take them for
// running. Steps that were being reverted keep their state; the revert continues if an operator
// retries it.
func (c *core) failInterrupted(now time.Time) {
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
