package engine

import (
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// A step that waits for a signal, a publication, an approval or a time has no task. One update records the start of its
// execution and the answer "not yet until the end of the wait". No goroutine runs during the wait. The board gives a
// signal or a publication to the open attempt: see logbook.Wait.

// TakenSignal is a signal that the wait of a step has taken while the flow runs.
type TakenSignal struct {
	Step   string
	Signal logbook.Signal
}

// await starts or continues the execution of a step that waits. attempt has written its mark.
func (c *core) await(step int, arguments logbook.Values, now time.Time) {
	wait, open := c.plan.Step(step).Wait(), c.vertices[step].attempt.Wait
	said := outcome{step: step, ended: now}
	if open == nil {
		open = &logbook.Wait{Signals: wait.Signals, Since: now, Until: wait.End(now)}
		if wait.Approval != nil {
			approval, err := wait.Approval.Ask(c.plan.Step(step), arguments, now)
			if err != nil {
				said.failure = argumentFailure(err.Error())
				c.finish(said, now)
				return
			}
			open.Approval = approval
		}
		if wait.Topic != "" {
			key, err := wait.TopicKey(c.plan.Step(step), arguments)
			if err != nil {
				said.failure = argumentFailure(err.Error())
				c.finish(said, now)
				return
			}
			open.Topic, open.Key = wait.Topic, key
		}
		c.keepWait(step, open)
		if open.Until.After(now) {
			said.notYet = &flow.NotYetError{After: open.Until.Sub(now)}
			c.finish(said, now)
			return
		}
	}
	if open.Open() && open.Until.After(now) { // called early: nothing has come
		said.notYet = &flow.NotYetError{After: open.Until.Sub(now)}
		c.finish(said, now)
		return
	}
	said.result, said.failure = wait.Result(open.Signal)
	if open.Approval != nil && open.Signal == nil && said.failure == nil {
		said.result = open.Approval.Result(true)
	}
	if open.Signal != nil {
		c.keepWait(step, withoutData(open))
	}
	c.finish(said, now)
}

// withoutData returns a wait with its signal, but without the signal's data: the result of the step has them.
func withoutData(wait *logbook.Wait) *logbook.Wait {
	taken, ended := *wait.Signal, *wait
	taken.Data = nil
	ended.Signal = &taken
	return &ended
}

// keepWait replaces the wait of the open attempt. Updates hold the attempt before, so it is not changed.
func (c *core) keepWait(step int, wait *logbook.Wait) {
	v := &c.vertices[step]
	attempt := *v.attempt
	attempt.Wait = wait
	v.attempt = &attempt
}

// isWaiting reports whether a step waits for a signal that has not come.
func (f *facts) isWaiting(step int) bool {
	v := &f.vertices[step]
	return v.phase == waiting && v.attempt != nil && v.attempt.Wait.Open()
}

// awaited returns a step that waits for a signal, and its wait; nil if none does.
func (c *core) awaited() (string, *logbook.Wait) {
	for _, due := range c.due {
		if c.isWaiting(due.step) {
			return c.plan.Step(due.step).Name(), c.vertices[due.step].attempt.Wait
		}
	}
	return "", nil
}

// sleep returns the wait of a step that sleeps; nil if the step waits for its next attempt.
func (c *core) sleep(step int) *logbook.Wait {
	if open := c.vertices[step].attempt; open != nil {
		return open.Wait
	}
	return nil
}

// takeSignal continues a step whose wait has taken a signal.
func (c *core) takeSignal(taken *TakenSignal) {
	step, found := c.plan.Find(taken.Step)
	if !found || !c.isWaiting(step) {
		return
	}
	if open := c.vertices[step].attempt.Wait; open.Approval == nil && open.Topic == "" && !open.Takes(taken.Signal.Name) {
		return
	}
	wait := *c.vertices[step].attempt.Wait
	wait.Signal = &taken.Signal
	c.keepWait(step, &wait)
	c.retryNow(taken.Step)
}
