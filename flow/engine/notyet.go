package engine

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// isAsked reports whether the open attempt belongs to this action and has returned NotYet. That
// attempt then continues, and no new attempt starts.
func (v *vertex) isAsked(action logbook.Action) bool {
	return v.attempt != nil && v.attempt.Asked > 0 && v.attempt.Action == action
}

// refusal is the failure of an attempt that may not return NotYet; nil if it may.
func (f *facts) refusal(step int, attempt *logbook.Attempt, now time.Time) *logbook.Failure {
	s := f.plan.Step(step)
	if s.AtMostOnce() && attempt.Action == logbook.ActionExecute {
		return &logbook.Failure{Kind: logbook.FailureAtMostOnce, Permanent: true,
			Message: "it returned \"not yet\", but it must not be started twice, so it cannot run again"}
	}
	if end, bounded := f.askedUntil(step, attempt, now); bounded && !end.After(now) {
		return &logbook.Failure{Kind: logbook.FailureTimeout, Message: fmt.Sprintf("it still returned \"not yet\" after %s", s.WaitAtMost())}
	}
	return nil
}

// askedUntil is the time of an attempt's last call after NotYet; false: no limit. A recorded
// start in the future comes from a clock ahead of ours, before this run.
func (f *facts) askedUntil(step int, attempt *logbook.Attempt, now time.Time) (time.Time, bool) {
	most := f.plan.Step(step).WaitAtMost()
	began := attempt.StartedAt
	if began.After(now) {
		began = f.began
	}
	return began.Add(most), most > 0
}

// askLater leaves an attempt open that has returned NotYet. An execution in a flow that reverts
// is not called again, but reverted.
func (c *core) askLater(step int, attempt logbook.Attempt, said *flow.NotYetError, now time.Time) {
	v := &c.vertices[step]
	attempt.Asked++
	attempt.Worker, attempt.WorkerName = "", "" // any worker may be asked next
	change := logbook.AtomChange{Attempts: []logbook.Attempt{attempt}}
	v.attempt = &change.Attempts[0]
	if said.Details != nil {
		change.Progress = &logbook.Progress{At: now}
		if v.progress != nil {
			*change.Progress = *v.progress
		}
		change.Progress.Details = said.Details
	}
	if attempt.Action == logbook.ActionExecute && v.isToUndo() {
		c.advance(step, onAgain, change, now)
		c.tryRevert(step, now)
		return
	}
	at := now.Add(said.After)
	if end, bounded := c.askedUntil(step, &attempt, now); bounded && at.After(end) {
		at = end
	}
	if end := c.deadline(step, now); attempt.Action == logbook.ActionExecute && !end.IsZero() && at.After(end) {
		at = end
	}
	v.retryAt, change.RetryAt = at, at
	c.advance(step, onAgain, change, now)
	if !c.broken {
		c.enqueueAt(step, at)
	}
}

// longestWait bounds the wait that a record can hold for a step after this number of failures.
func (f *facts) longestWait(step, failures int, now time.Time) time.Duration {
	v := &f.vertices[step]
	if v.attempt == nil || v.attempt.Asked == 0 {
		return f.plan.Step(step).Retry().Longest(failures)
	}
	longest := flow.MaxAsk
	if v.attempt.Wait != nil {
		longest = flow.MaxWait
	}
	if end, bounded := f.askedUntil(step, v.attempt, now); bounded {
		longest = min(longest, end.Sub(now))
	}
	return longest
}
