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

// execution is one execution of a step. It has the step's name, because steps are numbered
// anew when a flow grows.
type execution struct {
	step   string
	number int
}

// interrupt makes the loop end the running execution of a step. It does nothing if no
// execution runs, or if the execution must not be interrupted.
func (c *core) interrupt(step int) {
	if s := c.plan.Step(step); c.isExecuting(step) && !s.Uninterruptible() {
		c.interrupts = append(c.interrupts, execution{s.Name(), c.vertices[step].attempt.Number})
	}
}

// isExecuting reports whether an execution that this run has started is still open.
func (f *facts) isExecuting(step int) bool {
	return f.vertices[step].phase == executing
}

// interruptRunning interrupts the executions of a flow that reverts or is suspended, when
// Options.Interrupt asks for it. In a suspended flow it spares at-most-once steps, which could
// not be executed again.
func (c *core) interruptRunning() {
	for step := range c.plan.Len() {
		goesOn := c.suspended || c.broken || c.held // in a later run
		if c.vertices[step].isToUndo() || goesOn && !c.plan.Step(step).AtMostOnce() {
			c.interrupt(step)
		}
	}
}

// takeInterrupts returns the executions that must end. It drops executions that have ended
// meanwhile: their steps may already run again, in the next round of a retry.
func (c *core) takeInterrupts() []execution {
	taken := slices.DeleteFunc(c.interrupts, func(e execution) bool {
		step, found := c.plan.Find(e.step)
		return !found || !c.isExecuting(step) || c.vertices[step].attempt.Number != e.number
	})
	c.interrupts = nil
	return taken
}

// interruptible is an execution that can be interrupted.
type interruptible struct {
	end          context.CancelCauseFunc
	interruption *flow.Interruption // nil: it was not interrupted
}

// ready returns the context of an attempt. From now on, interruptSteps can end the context of
// an execution.
func (l *loop) ready(s start) context.Context {
	if s.call.Action != logbook.ActionExecute || s.plan.Step(s.step).Uninterruptible() {
		return l.steps
	}
	ctx, cancel := context.WithCancelCause(l.steps)
	l.attempts[s.call.Step] = &interruptible{end: cancel}
	return ctx
}

// forgetAttempt frees the context of an attempt that has ended.
func (l *loop) forgetAttempt(step string) {
	if attempt, found := l.attempts[step]; found {
		attempt.end(nil)
		delete(l.attempts, step)
	}
}

// interruptSteps ends the executions that the core wants ended. Executions that were
// interrupted before get the latest grace.
func (l *loop) interruptSteps() {
	for _, e := range l.core.takeInterrupts() {
		reason := l.core.whyInterrupted(e.step)
		switch attempt := l.attempts[e.step]; {
		case attempt == nil:
		case attempt.interruption != nil:
			attempt.interruption.SetGrace(l.grace)
		default:
			attempt.interruption = flow.Interrupt(l.steps, reason, l.grace)
			attempt.end(attempt.interruption)
		}
	}
}

// whyInterrupted is the reason of an interruption, for the task.
func (c *core) whyInterrupted(name string) string {
	switch step, found := c.plan.Find(name); {
	case c.reverting:
		return "the flow is undone"
	case found && c.vertices[step].isDropped():
		return "enough other members of its flow have succeeded"
	case c.suspended:
		return "the flow was suspended"
	}
	return "the flow is undone"
}

// interrupted is the failure of an execution that was interrupted, with what the task
// returned as its cause.
func interrupted(i *flow.Interruption, err error) *logbook.Failure {
	failure := &logbook.Failure{Kind: logbook.FailureInterrupted, Message: fmt.Sprintf("it was interrupted: %s", i.Reason)}
	// A step may be interrupted any number of times, so little is kept of each.
	if caused := flow.FitFailure(flow.FailureOf(err).Foreign(), logbook.Limits{Name: logbook.MaxLimits.Name, Value: 8 * maxInterrupted, Command: logbook.MaxLimits.Command}); caused != nil {
		failure.Causes = []logbook.Failure{*caused}
	}
	return failure
}

// maxInterrupted is the number of bytes of stderr that are kept of an interrupted attempt.
const maxInterrupted = 2 << 10
