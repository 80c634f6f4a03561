package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxRetryValue bounds the value of a round. A retry keeps up to
	// logbook.KeptAttempts of them, and all are read in one message.
	maxRetryValue = 8 << 10
	// maxRoundFailures and maxRoundFailure bound the number of failures that a round
	// keeps, and the bytes of each, for the same reason.
	maxRoundFailures = 16
	maxRoundFailure  = 512
)

// scope is the state of a retry and its flow in this run. A scope that is restarting
// is being undone to start again. Until it starts, its retry has the intention
// retry. Scopes inside it are undone with it, and are not restarting themselves.
type scope struct {
	restarting bool
	rounds     []flow.Round                // since the last start of the retry: see loadRounds
	failed     []int                       // steps that have failed in this round, and were not tried again
	failures   map[string]*logbook.Failure // while restarting; replaced, never changed: calls hold it
}

// resolve decides what is undone after a step has failed permanently. It calls the innermost retry around the step,
// then the outer retries one by one, until one of them decides. If none decides, the flow is held or reverted. When all
// retries inside an element of an each have left the decision, the element can fail, unless a decider before the step
// has failed (undecided).
//
// It returns false if nothing more is undone than before: the retry of a scope that already restarts is called again,
// and again decides to restart.
func (c *core) resolve(step int, undecided bool, now time.Time) bool {
	cause, outside := c.blame(step, c.vertices[step].failure), false
	tolerable := !undecided && c.toleratesElement(step)
	for s := c.plan.Governor(step); s >= 0 && !(tolerable && !c.isInElement(s, step)); s = c.plan.Scopes()[s].Parent {
		if !outside && !c.isInElement(s, step) {
			cause, outside = c.unreached(step, cause), true
		}
		if c.passed(&c.plan.Scopes()[s]) >= 0 {
			break
		}
		if tolerable && c.failedStep(&c.plan.Scopes()[s]) >= 0 {
			continue
		}
		decision, failure := c.ask(s, cause)
		if failure == nil && decision.Verdict == flow.VerdictRetry && !c.isRestartingAround(s) {
			if failure = c.exhausted(s); failure == nil {
				c.restart(s, decision.Delay, now)
				return true
			}
		}
		if failure != nil {
			failure.Causes = append(failure.Causes, *cause)
			cause = c.blame(c.plan.Scopes()[s].Retry, flow.FitFailure(failure, c.limits))
			continue
		}
		if decision.Verdict == flow.VerdictRetry {
			return false
		}
		if decision.Verdict == flow.VerdictRevertAll {
			tolerable = false
			break
		}
	}
	if tolerable {
		c.tolerate(step, nil, now)
		return true
	}
	if !outside {
		cause = c.unreached(step, cause)
	}
	if c.holdsAt(step) {
		c.hold(cause, now)
	} else {
		c.beginRevert(cause, false, now)
	}
	return true
}

// exhausted returns the reason why a scope cannot start again: its retry, or a retry inside
// it, has started flow.MaxRounds rounds. nil: the scope can start again.
func (f *facts) exhausted(s int) *logbook.Failure {
	scopes := f.plan.Scopes()
	for inner := s; inner < len(scopes) && scopes[inner].Retry < scopes[s].End; inner++ {
		if retry := scopes[inner].Retry; f.vertices[retry].begun >= flow.MaxRounds {
			return &logbook.Failure{Kind: logbook.FailureError, Permanent: true, Message: fmt.Sprintf(
				"retry %q has started its flow %d times, which is the limit, including rounds that outer retries caused", f.plan.Step(retry).Name(), flow.MaxRounds)}
		}
	}
	return nil
}

// isRestartingAround reports whether a scope, or one around it, is already being undone.
func (f *facts) isRestartingAround(s int) bool {
	for ; s >= 0; s = f.plan.Scopes()[s].Parent {
		if f.scopes[s].restarting {
			return true
		}
	}
	return false
}

// ask calls the retry of a scope, which decides about a failure in the scope. The returned failure is a
// failure of the retry itself.
func (f *facts) ask(s int, cause *logbook.Failure) (flow.Decision, *logbook.Failure) {
	retry := f.plan.Scopes()[s].Retry
	history, failure := f.history(s)
	if failure != nil {
		return flow.Decision{}, failure
	}
	if n := len(history.Rounds); n > 0 {
		history.Rounds[n-1].Failures = f.roundFailures(s)
	}
	history.Failure = flow.FitFailure(cause, f.limits) // a copy
	decision, err := f.plan.Step(retry).Decide(history)
	return decision, flow.FailureOf(err).Foreign()
}

// history is passed to the retry of a scope, which may keep and change it.
func (f *facts) history(s int) (*flow.History, *logbook.Failure) {
	retry := f.plan.Scopes()[s].Retry
	arguments, failure := f.arguments(retry, logbook.ActionExecute)
	if failure != nil {
		return nil, failure
	}
	return &flow.History{Retry: f.plan.Step(retry).Name(), Arguments: arguments, Rounds: slices.Clone(f.scopes[s].rounds)}, nil
}

// roundFailures are the failures of the current round, in the order of the steps, cut to the limits of the logbook.
func (f *facts) roundFailures(s int) []logbook.Failure {
	steps := slices.Clone(f.scopes[s].failed)
	slices.Sort(steps)
	steps = steps[:min(len(steps), maxRoundFailures)]
	limits := f.limits
	limits.Value = 2 * min(maxRoundFailure, limits.Value/max(1, len(steps))) // a failure may take half of it
	var failures []logbook.Failure
	for _, step := range steps {
		failure := flow.FitFailure(f.blame(step, f.vertices[step].failure), limits)
		left := (logbook.MaxFailures - 1) / maxRoundFailures
		keepCauses(failure, &left)
		failures = append(failures, *failure)
	}
	return failures
}

// keepCauses cuts the causes of a failure, the furthest first, so that at most left
// failures remain.
func keepCauses(f *logbook.Failure, left *int) {
	*left--
	for i := range f.Causes {
		if *left == 0 {
			f.Causes = f.Causes[:i]
			return
		}
		keepCauses(&f.Causes[i], left)
	}
}

// noteFailure adds a step to the failed steps of all scopes around it.
func (c *core) noteFailure(step int) {
	if wasInterrupted(c.vertices[step].failure) || c.vertices[step].isDropped() {
		return
	}
	for s := c.plan.Governor(step); s >= 0; s = c.plan.Scopes()[s].Parent {
		c.scopes[s].failed = append(c.scopes[s].failed, step)
	}
}

// dropFailure removes a step from the failed steps of all scopes around it, because its failure is ignored.
func (c *core) dropFailure(step int) {
	for s := c.plan.Governor(step); s >= 0; s = c.plan.Scopes()[s].Parent {
		c.scopes[s].failed = slices.DeleteFunc(c.scopes[s].failed, func(other int) bool { return other == step })
	}
}

// restart records that a scope will be undone and start again, and the time of the next round.
// That time is final. No scope around it may be restarting.
func (c *core) restart(s int, delay time.Duration, now time.Time) {
	retry := c.plan.Scopes()[s].Retry
	c.vertices[retry].retryAt = dueAt(now, delay)
	c.change(retry, logbook.AtomChange{Intention: logbook.IntendRetry, RetryAt: c.vertices[retry].retryAt}, now)
	c.undoScope(s, now)
}

// undoScope is beginRevert for one scope: none of its steps is executed any more, and its
// started steps are undone. Its retry comes last, and starts the scope again.
func (c *core) undoScope(s int, now time.Time) {
	scopes := c.plan.Scopes()
	bounds := &scopes[s]
	for inner := s + 1; inner < len(scopes) && scopes[inner].Retry < bounds.End; inner++ {
		c.scopes[inner].restarting = false
	}
	c.scopes[s].restarting = true
	c.forget(bounds)
	c.forgetTurns(bounds)
	c.order.countUndone(c.plan, bounds, c.isUndone)
	for step := bounds.Retry + 1; step < bounds.End; step++ {
		c.mark(step, false, now)
	}
	c.gatherFailures(s)
	c.revertLast(bounds, now)
}

func (c *core) gatherFailures(s int) {
	failures := make(map[string]*logbook.Failure, len(c.scopes[s].failed))
	for _, step := range c.scopes[s].failed {
		failures[c.plan.Step(step).Name()] = c.vertices[step].failure
	}
	c.scopes[s].failures = failures
}

// restartingScope returns the restarting scope around a step; -1: none.
func (f *facts) restartingScope(step int) int {
	s := f.plan.Governor(step)
	for s >= 0 && !f.scopes[s].restarting {
		s = f.plan.Scopes()[s].Parent
	}
	return s
}

// failuresFor are the failures for which a step is reverted.
func (f *facts) failuresFor(step int) map[string]*logbook.Failure {
	if s := f.restartingScope(step); !f.reverting && s >= 0 {
		return f.scopes[s].failures
	}
	return f.failures
}

// causeFor is the reason why a step is reverted.
func (c *core) causeFor(step int) logbook.RevertCause {
	switch scope := c.restartingScope(step); {
	case c.reverting:
		cause := logbook.CauseOf(c.cause)
		if cause.Kind == logbook.CauseFailure && c.reverter != nil {
			cause = logbook.RevertCause{Kind: logbook.CauseOperator, By: c.reverter.By, Reason: c.reverter.Reason}
		}
		return cause
	case scope >= 0 && len(c.scopes[scope].failed) > 0:
		first := slices.Min(c.scopes[scope].failed)
		return logbook.RevertCause{Kind: logbook.CauseRetry, Reason: c.blame(first, c.vertices[first].failure).Error()}
	case scope >= 0:
		return logbook.RevertCause{Kind: logbook.CauseRetry}
	case c.vertices[step].isDropped():
		return logbook.RevertCause{Kind: logbook.CauseDropped, Reason: c.enoughText(step)}
	}
	return logbook.RevertCause{Kind: logbook.CauseRetry, Reason: "its conductor was lost, and undo_last applies"}
}

// isRestarting reports whether a step is the retry of a restarting scope.
func (f *facts) isRestarting(step int) bool {
	s, ok := f.plan.ScopeOf(step)
	return ok && f.scopes[s].restarting
}

// queueRound queues a retry whose flow is undone for the recorded time, but, as in
// queueWhenDue, for no longer than its longest delay.
func (c *core) queueRound(retry int, now time.Time) {
	s, _ := c.plan.ScopeOf(retry)
	c.queueWithin(retry, c.plan.Step(retry).LongestDelay(len(c.scopes[s].rounds)), now)
}

// round starts a retry's flow, for the first time or again. The controller has no effects outside, so it is called
// before the attempt is durable.
func (c *core) round(retry int, now time.Time) {
	s, _ := c.plan.ScopeOf(retry)
	v := &c.vertices[retry]
	again := c.scopes[s].restarting
	c.move(now)
	if v.attempt == nil { // else an attempt was open when its conductor died
		v.executions++
		v.begun++
		v.attempt = &logbook.Attempt{Action: logbook.ActionExecute, Number: v.executions, Token: c.call.Token, Owner: c.owner, StartedAt: now}
		if again {
			v.attempt.Failures = c.roundFailures(s)
		}
	}
	v.retryAt, v.failure = time.Time{}, nil
	begun := []logbook.Attempt{*v.attempt}
	if again {
		if n := len(c.scopes[s].rounds); n > 0 {
			c.scopes[s].rounds[n-1].Failures = v.attempt.Failures
		}
		// Before the reset, which deletes the failures of the steps.
		c.advance(retry, onRestart, logbook.AtomChange{Intention: logbook.IntendExecute, Attempts: begun}, now)
		c.reset(s, now)
		begun = nil
	}
	c.advance(retry, onBegin, logbook.AtomChange{Attempts: begun}, now)
	c.opened(v)
	result, failure := c.nextValue(s)
	c.finish(outcome{step: retry, result: result, failure: failure, ended: now}, now)
}

func (f *facts) nextValue(s int) (json.RawMessage, *logbook.Failure) {
	history, failure := f.history(s)
	if failure != nil {
		return nil, failure
	}
	value, err := f.plan.Step(f.plan.Scopes()[s].Retry).Next(history)
	if err != nil {
		return nil, flow.FailureOf(err).Foreign()
	}
	limits := f.limits
	limits.Value = min(limits.Value, maxRetryValue)
	result, err := encode(value, &limits)
	return result, flow.FailureOf(err)
}

// reset returns an undone scope to its state before its start; recorded attempts stay.
func (c *core) reset(s int, now time.Time) {
	scopes := c.plan.Scopes()
	bounds := &scopes[s]
	c.lists, c.lacking = nil, nil
	c.scopes[s].restarting, c.scopes[s].failed, c.scopes[s].failures = false, nil, nil
	for inner := s + 1; inner < len(scopes) && scopes[inner].Retry < bounds.End; inner++ {
		c.scopes[inner] = scope{}
	}
	for around := bounds.Parent; around >= 0; around = scopes[around].Parent {
		c.scopes[around].failed = slices.DeleteFunc(c.scopes[around].failed, bounds.Holds)
	}
	c.order.reset(c.plan, bounds)
	c.turnCounts = nil
	for step := bounds.Retry + 1; step < bounds.End; step++ {
		c.resetStep(step, now)
	}
}

func (c *core) resetStep(step int, now time.Time) {
	v := &c.vertices[step]
	if c.plan.Step(step).IsLate() {
		c.endRun(step, now)
	}
	if v.phase != unbegun || v.intention != logbook.IntendExecute {
		c.advance(step, onReset, logbook.AtomChange{Intention: logbook.IntendExecute}, now)
	}
	v.forgetRound()
}

// whole is the whole flow as a scope without a retry.
func (f *facts) whole() *flow.Scope {
	return &flow.Scope{End: f.plan.Len(), GateFrom: f.plan.Len(), GateEnd: len(f.order), Parent: -1}
}

// loadRounds loads the rounds of a retry since its last start. They stay until a retry around it, or an operator,
// resets it.
func (l *loader) loadRounds(step int, atom *logbook.AtomDetail) error {
	s, _ := l.plan.ScopeOf(step)
	var rounds []flow.Round
	over := false
	for i := range atom.Attempts {
		attempt := &atom.Attempts[i]
		if attempt.Action != logbook.ActionExecute {
			over = true
			continue
		}
		if over { // the retry starts anew
			rounds, over = nil, false
		}
		if n := len(rounds); n > 0 {
			rounds[n-1].Failures = attempt.Failures
		}
		if attempt.Ended() && attempt.Failure == nil {
			rounds = append(rounds, flow.Round{Value: attempt.Result})
		}
	}
	if atom.State == logbook.AtomPending {
		rounds = nil
	}
	l.scopes[s].rounds = rounds
	l.scopes[s].restarting = atom.Intention == logbook.IntendRetry || atom.State == logbook.AtomRetrying
	if atom.Intention == logbook.IntendRetry && atom.State != logbook.AtomSuccess {
		return fmt.Errorf("it is %s with the intention %s", atom.State, atom.Intention)
	}
	return nil
}

// deriveScopes collects the failures in each scope from the steps. Of nested restarting
// scopes, only the outermost stays restarting.
func (l *loader) deriveScopes() {
	scopes := l.plan.Scopes()
	for s := range scopes {
		if l.restartingScope(scopes[s].Retry) >= 0 {
			l.scopes[s].restarting = false
		}
	}
	for step := range l.plan.Len() {
		v := &l.vertices[step]
		if v.failure == nil || v.phase == waiting || l.wasTolerated(step) {
			continue
		}
		l.noteFailure(step)
		if v.phase == failed && l.plan.Governor(step) >= 0 && l.restartingScope(step) < 0 {
			l.found.unresolved = append(l.found.unresolved, step)
		}
	}
}
