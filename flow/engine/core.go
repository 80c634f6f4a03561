package engine

import (
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// core decides. It holds the flow as it will be when all updates that it has
// made are durable. Its methods are called by one goroutine, and time is
// passed in, so that a run can be replayed call by call.
//
// Readiness is counted and not searched: vertex.before is the number of
// vertices that must still be done before one may execute, vertex.after the
// number that must be undone before one may revert. Every edge is crossed
// once forwards and once backwards in a run.
type core struct {
	plan  *flow.Plan
	store logbook.Values
	call  flow.Call // what is the same in every call
	owner string
	out   *builder
	// limits of the logbook, to which failures are cut whoever made them: an
	// update that is refused would be refused again by every conductor.
	limits logbook.Limits

	vertices []vertex
	done     int // steps in SUCCESS
	undone   int // while reverting: steps that are REVERTED or never started
	running  int // attempts that this run has begun and not ended

	ready queue   // steps that may start now, in the order in which they came to be
	due   dueHeap // steps that wait to be tried again
	lost  []int   // at-most-once steps that were found RUNNING

	reverting bool // the flow is being undone
	broken    bool // a revert has failed for good: nothing more starts
	suspended bool // nothing more starts in this run
	cause     *logbook.Failure
	failures  map[string]*logbook.Failure // of steps, while reverting; replaced, never changed: calls hold it
}

// vertex is a step or a gate of the plan.
type vertex struct {
	state     logbook.AtomState
	intention logbook.Intention
	recorded  bool // the logbook has an atom of it, or will with the next update
	started   bool // at least one execution was begun
	open      bool // this run has begun an attempt and not ended it
	before    int
	after     int
	attempt   logbook.Attempt // the one that is open

	executions, reverts          int  // attempts begun
	failedExecutions, failedUndo int  // attempts that have ended in a failure
	undoFailed                   bool // the last revert that was loaded
	result                       []byte
	fields                       logbook.Values // of the result, when somebody has asked for one
	failure                      *logbook.Failure
	retryAt                      time.Time
}

// start is an attempt that the loop is to make.
type start struct {
	step int
	call *flow.Call
}

// outcome is how an attempt ended.
type outcome struct {
	step            int
	result          []byte
	failure         *logbook.Failure
	stderr          string
	stderrTruncated bool
	ended           time.Time
}

// begin makes the changes that follow from how the flow was found.
func (c *core) begin(now time.Time) {
	if c.reverting {
		c.beginRevert(c.cause, now)
		return
	}
	c.resume(now)
	for _, step := range c.lost {
		c.vertices[step].open = true
		c.running++
	}
	for _, step := range c.lost {
		// The step must not be started again, and its only trace is the mark.
		failure := &logbook.Failure{Kind: logbook.FailureAtMostOnce, Permanent: true,
			Message: "it was running when its conductor died, and must not be started twice"}
		c.finish(outcome{step: step, failure: failure, ended: now}, now)
	}
}

// next begins attempts at ready steps, up to a number that may run at once.
func (c *core) next(now time.Time, slots int) []start {
	c.wake(now)
	var starts []start
	for c.running < slots && !c.suspended && !c.broken {
		step, ok := c.ready.pop()
		if !ok {
			break
		}
		if s, ok := c.attempt(step, now); ok {
			starts = append(starts, s)
		}
	}
	return starts
}

// attempt writes the mark of an attempt and prepares its call. A call that
// cannot be prepared is an attempt that fails at once.
func (c *core) attempt(step int, now time.Time) (start, bool) {
	v, s := &c.vertices[step], c.plan.Step(step)
	state, action, number := logbook.AtomRunning, logbook.ActionExecute, &v.executions
	if c.reverting {
		state, action, number = logbook.AtomReverting, logbook.ActionRevert, &v.reverts
		c.out.flow(logbook.FlowReverting, nil, now)
	} else {
		v.failure = nil
		c.out.flow(logbook.FlowRunning, nil, now)
	}
	*number++
	v.started, v.open, v.retryAt = true, true, time.Time{}
	v.attempt = logbook.Attempt{Action: action, Number: *number, Token: c.call.Token, Owner: c.owner, StartedAt: now}
	c.change(step, logbook.AtomChange{State: state, Attempts: []logbook.Attempt{v.attempt}}, now)
	c.running++

	call := c.call
	call.Action, call.Step, call.Attempt = action, s.Name(), *number
	arguments, failure := c.arguments(step, action)
	if failure != nil {
		c.finish(outcome{step: step, failure: failure, ended: now}, now)
		return start{}, false
	}
	call.Arguments = arguments
	if action == logbook.ActionRevert {
		call.Result, call.Failure, call.FlowFailures = v.result, v.failure, c.failures
	}
	return start{step: step, call: &call}, true
}

// finish takes the outcome of an attempt that next or begin has begun.
func (c *core) finish(o outcome, now time.Time) {
	v := &c.vertices[o.step]
	c.running--
	v.open = false
	attempt := v.attempt
	attempt.EndedAt, attempt.Result, attempt.Failure = o.ended, o.result, o.failure
	attempt.Stderr, attempt.StderrTruncated = o.stderr, o.stderrTruncated
	v.attempt = logbook.Attempt{}
	switch {
	case attempt.Action == logbook.ActionExecute && o.failure == nil:
		c.executed(o.step, attempt, now)
	case attempt.Action == logbook.ActionExecute:
		c.executionFailed(o.step, attempt, now)
	case o.failure == nil:
		c.reverted(o.step, attempt, now)
	default:
		c.revertFailed(o.step, attempt, now)
	}
}

func (c *core) executed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	if failure := c.lacking(step, attempt.Result); failure != nil {
		attempt.Result, attempt.Failure = nil, failure
		c.executionFailed(step, attempt, now)
		return
	}
	v.result, v.failure = attempt.Result, nil
	c.done++
	change := logbook.AtomChange{State: logbook.AtomSuccess, Attempts: []logbook.Attempt{attempt}}
	if c.reverting {
		c.change(step, change, now)
		c.tryRevert(step, now)
		return
	}
	c.change(step, change, now)
	c.release(step)
}

func (c *core) executionFailed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	attempt.Failure = fitFailure(c.limits, c.plan.Step(step), attempt.Failure)
	v.failedExecutions++
	v.failure = attempt.Failure
	attempts := []logbook.Attempt{attempt}
	if !c.reverting {
		if delay, again := c.plan.Step(step).Retry().Again(v.failedExecutions); again && !attempt.Failure.Permanent {
			c.change(step, logbook.AtomChange{State: logbook.AtomPending, RetryAt: dueAt(now, delay), Attempts: attempts}, now)
			c.postpone(step, delay, now)
			return
		}
	}
	c.change(step, logbook.AtomChange{State: logbook.AtomFailure, Intention: logbook.IntendRevert, Attempts: attempts}, now)
	if c.reverting {
		c.addFailure(step, attempt.Failure)
		c.tryRevert(step, now)
		return
	}
	c.beginRevert(c.blame(step, attempt.Failure), now)
}

// release tells the vertices behind a done one that they wait for one less.
func (c *core) release(vertex int) {
	stack := []int{vertex}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range c.plan.Next(top) {
			n := &c.vertices[next]
			if n.before--; n.before > 0 {
				continue
			}
			if int(next) >= c.plan.Len() {
				stack = append(stack, int(next))
			} else {
				c.ready.push(int(next))
			}
		}
	}
}

// postpone makes a step wait for its next attempt.
func (c *core) postpone(step int, delay time.Duration, now time.Time) {
	if delay <= 0 {
		c.ready.push(step)
		return
	}
	c.vertices[step].retryAt = dueAt(now, delay)
	c.due.push(dueStep{at: c.vertices[step].retryAt, step: step})
}

func dueAt(now time.Time, delay time.Duration) time.Time {
	if delay <= 0 {
		return time.Time{}
	}
	return now.Add(delay)
}

// wake makes the steps ready whose time has come.
func (c *core) wake(now time.Time) {
	for len(c.due) > 0 && !c.due[0].at.After(now) {
		c.ready.push(c.due.pop().step)
	}
}

// nextDue is when wake has something to do; false if never.
func (c *core) nextDue() (time.Time, bool) {
	if len(c.due) == 0 || c.suspended || c.broken {
		return time.Time{}, false
	}
	return c.due[0].at, true
}

// end tells whether the run is over, and how the flow stands then.
func (c *core) end() (logbook.FlowState, bool) {
	switch {
	case c.running > 0:
		return "", false
	case c.broken:
		return logbook.FlowFailure, true
	case c.reverting && c.undone == c.plan.Len():
		return logbook.FlowReverted, true
	case !c.reverting && c.done == c.plan.Len():
		return logbook.FlowSuccess, true
	case c.suspended:
		return logbook.FlowSuspended, true
	case c.ready.len() == 0 && len(c.due) == 0:
		panic("internal error: nothing runs, nothing is ready, and the flow has not ended")
	}
	return "", false
}

// change writes a change of a step, with what its first change must say.
func (c *core) change(step int, change logbook.AtomChange, now time.Time) {
	v, s := &c.vertices[step], c.plan.Step(step)
	change.Name = s.Name()
	if !v.recorded {
		v.recorded = true
		change.Kind, change.Version = logbook.KindTask, s.Version()
		if change.Intention == "" {
			change.Intention = logbook.IntendExecute
		}
	}
	if change.State != "" {
		v.state = change.State
	}
	if change.Intention != "" {
		v.intention = change.Intention
	}
	c.out.change(step, change, now)
}

func (c *core) addFailure(step int, failure *logbook.Failure) {
	failures := make(map[string]*logbook.Failure, len(c.failures)+1)
	for name, known := range c.failures {
		failures[name] = known
	}
	failures[c.plan.Step(step).Name()] = failure
	c.failures = failures
}

// blame is a step's failure as the cause of the flow's.
func (c *core) blame(step int, failure *logbook.Failure) *logbook.Failure {
	cause := *failure
	cause.Step = c.plan.Step(step).Name()
	return &cause
}
