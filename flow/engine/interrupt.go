package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// wasInterrupted reports whether the failure of an execution is that it was interrupted.
func wasInterrupted(failure *logbook.Failure) bool {
	return failure != nil && failure.Kind == logbook.FailureInterrupted
}

// interrupt has the loop end the running execution of a step. It does nothing where none
// runs, or must not be interrupted.
func (c *core) interrupt(step int) {
	if s := c.plan.Step(step); c.isExecuting(step) && !s.Uninterruptible() {
		c.interrupts = append(c.interrupts, s.Name())
	}
}

// isExecuting reports whether this run has begun an execution of a step, and not ended it.
func (c *core) isExecuting(step int) bool {
	v := &c.vertices[step]
	return v.open && v.attempt.Action == logbook.ActionExecute
}

// interruptRunning interrupts the executions of a flow that reverts or is suspended, when
// Options.Interrupt asks for it. In a suspended flow it spares at-most-once steps, which could
// not be executed again.
func (c *core) interruptRunning() {
	for step := range c.plan.Len() {
		if c.vertices[step].intention == logbook.IntendRevert || c.suspended && !c.plan.Step(step).AtMostOnce() {
			c.interrupt(step)
		}
	}
}

// takeInterrupts returns the steps whose executions must end, by name: the flow may have
// grown meanwhile, and then numbers change. Executions may have ended meanwhile, too.
func (c *core) takeInterrupts() []string {
	taken := slices.DeleteFunc(c.interrupts, func(name string) bool {
		step, found := c.plan.Find(name)
		return !found || !c.isExecuting(step)
	})
	c.interrupts = nil
	return taken
}

// ready returns the context of an attempt. That of an execution can be ended by
// interruptSteps from now on.
func (l *loop) ready(s start) context.Context {
	if s.call.Action != logbook.ActionExecute || s.plan.Step(s.step).Uninterruptible() {
		return l.steps
	}
	ctx, cancel := context.WithCancelCause(l.steps)
	l.attempts[s.call.Step] = cancel
	return ctx
}

// forgetAttempt frees the context of an attempt that has ended.
func (l *loop) forgetAttempt(step string) {
	if end, found := l.attempts[step]; found {
		end(nil)
		delete(l.attempts, step)
	}
}

// interruptSteps ends the executions that the core wants ended.
func (l *loop) interruptSteps() {
	for _, step := range l.core.takeInterrupts() {
		reason := "the flow is undone"
		if l.core.suspended && !l.core.reverting {
			reason = "the flow was suspended"
		}
		if end, found := l.attempts[step]; found {
			end(flow.Interrupt(l.steps, reason, l.grace))
		}
	}
}

// interrupted is the failure of an execution that was interrupted, with what the task
// returned as its cause.
func interrupted(i *flow.Interruption, err error) *logbook.Failure {
	failure := &logbook.Failure{Kind: logbook.FailureInterrupted, Message: fmt.Sprintf("it was interrupted: %s", i.Reason)}
	if caused := flow.FailureOf(err); caused != nil {
		failure.Causes = []logbook.Failure{*caused}
	}
	return failure
}
