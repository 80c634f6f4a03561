package engine_test

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// unlimited is a timeout of a flow that never passes: it is longer than all waits and retries of a drawn flow.
const unlimited = 100_000 * time.Hour

// drawTimeout draws a timeout of the whole flow, or none. One that can pass lets the time decide how the flow ends.
func (d *drawing) drawTimeout(root flow.Node) (limit time.Duration) {
	limit = rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 0, 0, time.Second, time.Minute, 90 * time.Minute, 3 * time.Hour, unlimited}).Draw(d.rt, "timeout of the flow")
	f, is := root.(*flow.Flow)
	if !is || limit == 0 {
		return 0
	}
	d.has("timeout of the flow")
	d.timed = limit < unlimited
	f.Timeout(limit)
	return limit
}

// inLimit holds of a flow with a timeout: no step begins when the time is over, except finally and on_error steps. A
// flow that succeeds has ended by then. Three exceptions: a decision that cannot be made is
// recorded as an execution that never began, a mark for an owner that died without a record has the time of
// the next owner, and a suspended run does not look at the time while its last steps end.
func (c *trial) inLimit(rt *rapid.T, f finish) {
	if c.limit == 0 {
		return
	}
	for i := range f.detail.Atoms {
		atom := &f.detail.Atoms[i]
		step, _ := c.grown.Find(atom.Name)
		for j := range atom.Attempts {
			attempt := &atom.Attempts[j]
			if attempt.Action == logbook.ActionExecute && !undecided(attempt) && attempt.Owner != "" && !attempt.StartedAt.Before(f.timeUp) && !c.grown.Step(step).IsLate() {
				rt.Errorf("execution %d of %s begins %s after the time of the flow was over", attempt.Number, atom.Name, attempt.StartedAt.Sub(f.timeUp))
			}
			if f.end.State == logbook.FlowSuccess && !f.suspends && attempt.EndedAt.After(f.timeUp) {
				rt.Errorf("the flow succeeds, and %s ends %s after its time was over", atom.Name, attempt.EndedAt.Sub(f.timeUp))
			}
		}
	}
	if cause := f.detail.Cause.Origin(); cause != nil && cause.Step == "" && cause.Matches(logbook.FailureTimeout) {
		c.overtime(rt, f)
	}
}

// overtime holds of a flow whose time is over: the on_error steps of each flow that has begun have ended, or were left
// out because the flow had succeeded.
func (c *trial) overtime(rt *rapid.T, f finish) {
	c.has("the time of the flow is over")
	for _, final := range c.grown.Finals() {
		for step := final.Errors.First; step < final.Errors.End && f.end.State == logbook.FlowReverted && c.hasRun(f, final.Body); step++ {
			name := c.grown.Step(step).Name()
			atom, ok := f.detail.Atom(name)
			if !ok || atom.State != logbook.AtomSuccess && atom.State != logbook.AtomIgnored && !atom.FailureIgnored() {
				rt.Errorf("on_error step %s is %+v, and the time of the flow was over", name, atom)
			}
		}
	}
}

// undecided reports whether an attempt only records that a decider has failed.
func undecided(attempt *logbook.Attempt) bool {
	return attempt.Unbegun || attempt.Failure != nil && strings.Contains(attempt.Failure.Message, "cannot decide")
}
