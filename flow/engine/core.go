package engine

import (
	"encoding/json"
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
	plan     *flow.Plan
	hands    hands     // of persons, that the flow has been in
	revision *revision // of how the flow is built, since it was begun
	store    logbook.Values
	call     flow.Call // what is the same in every call
	owner    string
	began    time.Time // this run
	out      *builder
	// limits of the logbook, to which failures are cut whoever made them: an
	// update that is refused would be refused again by every conductor.
	limits logbook.Limits

	vertices []vertex
	strays   map[string]vertex                  // of instances that the plan does not have in this round, by step
	lists    map[*flow.Gathered]json.RawMessage // that were gathered for somebody
	taken    map[string][]json.RawMessage       // the elements of openings, by step, when somebody has asked for them
	done     int                                // steps in SUCCESS or IGNORE
	undone   int                                // while reverting: steps that are REVERTED or never started
	running  int                                // attempts that this run has begun and not ended

	ready   ranks                         // steps that may start now
	due     dueHeap                       // steps that wait to be tried again
	parked  map[string]*queue[parkedStep] // steps that wait for their concurrency key
	waiting int                           // how many these are
	lost    []int                         // at-most-once steps that were found RUNNING
	starts  []start                       // what next gives, so that it need not make one each time

	attempts slab[logbook.Attempt]
	calls    slab[flow.Call]

	scopes     []scope // as those of the plan
	unresolved []int   // steps that were found FAILURE, and nobody has decided about
	undecided  []int   // gates that were found reached, and whose choice was not made

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
	recorded  bool  // the logbook has an atom of it, or will with the next update
	outdated  bool  // the atom has the version of a step that has changed before it was begun
	started   bool  // at least one execution was begun
	open      bool  // this run has begun an attempt and not ended it
	released  bool  // those behind it have been told that it is done
	undone    bool  // the last attempt is a revert: an execution begins another round
	before    int32 // these are small, because there is one of each for every step
	after     int32
	behind    int32            // for countUndone alone
	round     int32            // see flow.Call.Key
	begun     int32            // executions since a person, or the job's policy, had the step begin anew
	attempt   *logbook.Attempt // the one that is open, as its mark in the update says, or that waits to be asked again; not to be written to

	executions, reverts          int // attempts begun
	failedExecutions, failedUndo int // attempts that have ended in a failure
	result                       []byte
	fields                       logbook.Values // of the result, when somebody has asked for one
	failure                      *logbook.Failure
	retryAt                      time.Time
	progress                     *logbook.Progress // to be recorded with the next change; nil: none
}

// start is an attempt that the loop is to make.
type start struct {
	plan  *flow.Plan // in which step is its number: the flow may grow while it runs
	step  int
	call  *flow.Call
	grant *grant
}

// outcome is how an attempt ended.
type outcome struct {
	step            int
	result          []byte
	failure         *logbook.Failure
	notYet          *flow.NotYetError // instead of both
	progress        *logbook.Progress // what it has said last, and is not recorded; nil: nothing
	stderr          string
	stderrTruncated bool
	ended           time.Time
}

// begin makes the changes that follow from how the flow was found.
func (c *core) begin(now time.Time) {
	c.began = now
	if c.reverting {
		c.beginRevert(c.cause, now)
		return
	}
	for s := range c.scopes {
		if c.scopes[s].turning {
			c.unwind(s, now)
		}
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
	c.decide(c.undecided, now)
	for _, step := range c.unresolved {
		// One before it may have been decided for both.
		if !c.reverting && c.turningOver(step) < 0 {
			c.resolve(step, now)
		}
	}
}

// next begins attempts at ready steps, up to a number that may run at once and
// as far as they are permitted. The slice is good until the next call.
func (c *core) next(now time.Time, slots int, p permits) []start {
	c.wake(now)
	c.unpark(p)
	c.starts = c.starts[:0]
	for c.running < slots && c.ready.len() > 0 && !c.suspended && !c.broken {
		step := c.ready.first()
		g, answer := c.admit(step, p)
		if answer == noSlot {
			return c.starts
		}
		c.ready.pop()
		if answer == noPlace {
			continue
		}
		if c.plan.Step(step).IsEach() {
			c.open(step, now)
			continue
		}
		if s, ok := c.attempt(step, now); ok {
			s.grant = g
			c.starts = append(c.starts, s)
		} else {
			g.release()
		}
	}
	c.yield(p)
	return c.starts
}

// attempt writes the mark of an attempt and prepares its call. A call that
// cannot be prepared is an attempt that fails at once.
func (c *core) attempt(step int, now time.Time) (start, bool) {
	v, s := &c.vertices[step], c.plan.Step(step)
	if s.IsRetry() {
		c.round(step, now)
		return start{}, false
	}
	c.move(now)
	state, action, number := logbook.AtomRunning, logbook.ActionExecute, &v.executions
	if v.intention == logbook.IntendRevert {
		state, action, number = logbook.AtomReverting, logbook.ActionRevert, &v.reverts
		v.undone = true
	} else {
		v.failure = nil
		v.execute()
	}
	begun := c.attempts.one(logbook.Attempt{Action: action, Number: *number, Token: c.call.Token, Owner: c.owner, StartedAt: now})
	if v.isAsked(action) {
		begun[0].StartedAt, begun[0].Asked = v.attempt.StartedAt, v.attempt.Asked
	} else {
		*number++
		begun[0].Number = *number
	}
	v.started, v.open, v.retryAt = true, true, time.Time{}
	v.attempt = &begun[0]
	c.change(step, logbook.AtomChange{State: state, Attempts: begun}, now)
	c.running++

	call := &c.calls.one(c.call)[0]
	call.Action, call.Step, call.Attempt, call.Asked = action, s.Name(), *number, v.attempt.Asked
	call.Round = int(v.round)
	arguments, failure := c.arguments(step, action)
	if failure != nil {
		if action == logbook.ActionRevert && v.failure != nil && v.failure.Kind == logbook.FailureArgument {
			failure = nil // it had not been executed for want of the same, so there is nothing to undo
		}
		c.finish(outcome{step: step, failure: failure, ended: now}, now)
		return start{}, false
	}
	call.Arguments = arguments
	if action == logbook.ActionRevert {
		call.Result, call.Failure, call.FlowFailures = v.result, v.failure, c.failuresFor(step)
	}
	return start{plan: c.plan, step: step, call: call}, true
}

// execute notes an execution, which after a revert is one of another round.
func (v *vertex) execute() {
	if v.undone {
		v.round, v.undone = v.round+1, false
	}
}

// move says that the flow runs, or reverts. A retry that undoes its own part
// to begin again does so in a flow that runs.
func (c *core) move(now time.Time) {
	if c.reverting {
		c.out.flow(logbook.FlowReverting, nil, now)
	} else {
		c.out.flow(logbook.FlowRunning, nil, now)
	}
}

// finish takes the outcome of an attempt that next or begin has begun.
func (c *core) finish(o outcome, now time.Time) {
	v := &c.vertices[o.step]
	c.running--
	v.open = false
	attempt := *v.attempt
	v.progress = o.progress
	if o.notYet != nil {
		if o.failure = c.refusal(o.step, &attempt, now); o.failure == nil {
			c.askLater(o.step, attempt, o.notYet, now)
			return
		}
	}
	attempt.EndedAt, attempt.Result, attempt.Failure = o.ended, o.result, o.failure
	attempt.Stderr, attempt.StderrTruncated = o.stderr, o.stderrTruncated
	v.attempt = nil
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
	if failure := lacking(c.plan, step, attempt.Result); failure != nil {
		attempt.Result, attempt.Failure = nil, failure
		c.executionFailed(step, attempt, now)
		return
	}
	v.result, v.failure = attempt.Result, nil
	if s, ok := c.plan.ScopeOf(step); ok {
		c.scopes[s].rounds = append(c.scopes[s].rounds, flow.Round{Value: attempt.Result})
	}
	c.change(step, logbook.AtomChange{State: logbook.AtomSuccess, Attempts: c.attempts.one(attempt)}, now)
	if v.intention == logbook.IntendRevert {
		c.tryRevert(step, now)
		return
	}
	if c.plan.Step(step).IsEach() {
		return // open goes on when the flow has grown
	}
	c.release(step, now)
}

func (c *core) executionFailed(step int, attempt logbook.Attempt, now time.Time) {
	v := &c.vertices[step]
	attempt.Failure = fitFailure(c.limits, c.plan.Step(step), attempt.Failure)
	v.failedExecutions++
	v.failure = attempt.Failure
	attempts := []logbook.Attempt{attempt}
	delay, again := c.plan.Step(step).Retry().Again(v.failedExecutions)
	again = again && !attempt.Failure.Permanent
	if again && v.intention != logbook.IntendRevert {
		c.change(step, logbook.AtomChange{State: logbook.AtomPending, RetryAt: dueAt(now, delay), Attempts: attempts}, now)
		c.postpone(step, delay, now)
		return
	}
	c.change(step, logbook.AtomChange{State: logbook.AtomFailure, Intention: logbook.IntendRevert, Attempts: attempts}, now)
	c.noteFailure(step)
	switch {
	case c.broken: // nothing more is decided
	case c.reverting:
		c.addFailure(step, attempt.Failure)
		c.tryRevert(step, now)
	case !again && c.resolve(step, now):
	default:
		// It is undone with what is around it. One that would have been
		// tried again has not failed for good, so that nobody is asked.
		c.gatherFailures(c.turningOver(step))
		c.tryRevert(step, now)
	}
}

// release tells the vertices behind a done one that they wait for one less.
func (c *core) release(vertex int, now time.Time) {
	stack := []int{vertex}
	var choices []int
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		c.vertices[top].released = true
		for _, next := range c.plan.Next(top) {
			n := &c.vertices[next]
			if n.before--; n.before > 0 {
				continue
			}
			if int(next) < c.plan.Len() && !isDone(n.state) {
				c.enqueue(int(next))
			} else if _, choice := c.plan.ChoiceAt(int(next)); choice {
				choices = append(choices, int(next))
			} else { // a gate; or a step that was ignored, or completed by hand
				stack = append(stack, int(next))
			}
		}
	}
	// Last, because a decider that fails turns the flow round.
	c.decide(choices, now)
}

// isDone: whoever waits for a step in this state waits no longer.
func isDone(state logbook.AtomState) bool {
	return state == logbook.AtomSuccess || state == logbook.AtomIgnored
}

// enqueue has a step start as soon as there is room.
func (c *core) enqueue(step int) { c.ready.push(step, c.plan.Step(step).Priority()) }

// postpone makes a step wait for its next attempt.
func (c *core) postpone(step int, delay time.Duration, now time.Time) {
	if delay <= 0 {
		c.enqueue(step)
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
		c.enqueue(c.due.pop().step)
	}
}

// nextDue is when wake has something to do; false if never.
func (c *core) nextDue() (time.Time, bool) {
	if len(c.due) == 0 || c.suspended || c.broken {
		return time.Time{}, false
	}
	return c.due[0].at, true
}

// idle tells whether nothing happens before a step is due, and which.
func (c *core) idle() (dueStep, bool) {
	if c.running > 0 || c.ready.len() > 0 || c.waiting > 0 || c.suspended || c.broken || len(c.due) == 0 {
		return dueStep{}, false
	}
	return c.due[0], true
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
	case c.ready.len() == 0 && len(c.due) == 0 && c.waiting == 0:
		panic("internal error: nothing runs, nothing is ready, and the flow has not ended")
	}
	return "", false
}

// change writes a change of a step, with what its first change must say.
func (c *core) change(step int, change logbook.AtomChange, now time.Time) {
	v, s := &c.vertices[step], c.plan.Step(step)
	change.Name = s.Name()
	was := v.state
	if !v.recorded {
		v.recorded = true
		change.Kind, change.Version = s.Kind(), s.Version()
		if change.Intention == "" {
			change.Intention = logbook.IntendExecute
		}
	}
	if v.outdated {
		v.outdated = false
		change.Version = s.Version()
	}
	if change.State != "" {
		if isDone(v.state) {
			c.done--
		}
		if v.state = change.State; isDone(v.state) {
			c.done++
		}
	}
	if change.Intention != "" {
		v.intention = change.Intention
	}
	if change.Progress == nil {
		change.Progress = v.progress
	}
	v.progress = nil
	c.out.change(step, change, was, now)
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
