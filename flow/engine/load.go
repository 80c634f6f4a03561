package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// newCore takes a flow up where its detail stands:
//
//	PENDING         executed when ready, and not before RetryAt. One whose last
//	                attempt is open has said "not yet", and is asked again
//	RUNNING         executed again, or asked again; nobody knows how far it came.
//	                At most once: a failure. In a flow that reverts: reverted, without a result
//	SUCCESS         kept; in a flow that reverts: reverted when ready
//	FAILURE         the flow reverts, whether it had recorded that or not
//	REVERTING       reverted again, and not before RetryAt
//	REVERTED        kept
//	REVERT_FAILURE  the flow is FAILURE
//	IGNORE          kept; its decider is not asked again
//	RETRYING        its flow begins again, as that of a SUCCESS that is to be
//	                RETRYed does when all of it is undone, and not before RetryAt
//
// What is said of flows that revert holds for the flow of a retry too, if it
// is being undone to begin again. A FAILURE under a retry about which nothing
// was recorded is decided now.
//
// Anything that no engine leaves behind is refused, but for what follows from
// a change of the flow since it was begun: steps that never began may have
// changed their version, or be gone.
func newCore(o *Options, revision *revision, work *handiwork) (*core, error) {
	c, err := loadCore(o, revision, work)
	return c, revision.explain(err)
}

func loadCore(o *Options, revision *revision, work *handiwork) (*core, error) {
	c := &core{revision: revision, plan: o.Plan, store: o.Store, owner: o.Owner, out: newBuilder(o), limits: o.Limits, cause: o.Detail.Cause,
		call: flow.Call{Job: o.Job, Flow: o.Detail.ID, Token: o.Token}}
	if err := o.Detail.State.Move(o.Detail.State); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err := c.checkStore(); err != nil {
		return nil, err
	}
	c.hands = handsOn(o)
	c.scopes = make([]scope, len(o.Plan.Scopes()))
	c.vertices = make([]vertex, o.Plan.Vertices())
	for i := range c.vertices {
		c.vertices[i] = vertex{state: logbook.AtomPending, intention: logbook.IntendExecute, before: int32(len(o.Plan.Previous(i)))}
	}
	for i := range o.Detail.Atoms {
		if c.forgets(&o.Detail.Atoms[i]) {
			continue
		}
		if err := c.load(&o.Detail.Atoms[i]); err != nil {
			return nil, fmt.Errorf("%w: atom %q: %w", ErrMismatch, o.Detail.Atoms[i].Name, err)
		}
	}
	c.settle(o.Detail.State)
	c.settleBroken(&o.Detail)
	if err := c.checkOrder(o.Detail.State); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	work.write(c.out)
	return c, nil
}

// checkStore finds what the plan counts on and the store does not hold.
func (c *core) checkStore() error {
	var faults []error
	reported := make(map[string]bool)
	for step := range c.plan.Len() {
		clear(reported)
		for _, wires := range [][]flow.Wire{c.plan.Arguments(step), c.plan.RevertArguments(step)} {
			for i := range wires {
				symbol := wires[i].Symbol
				_, held := c.store[symbol]
				if wires[i].From != flow.FromStore || wires[i].Optional || held || reported[symbol] {
					continue
				}
				reported[symbol] = true
				faults = append(faults, fmt.Errorf("%w: step %q requires %q, which the store does not hold",
					flow.ErrMissing, c.plan.Step(step).Name(), symbol))
			}
		}
	}
	return errors.Join(faults...)
}

// load takes over one atom.
func (c *core) load(atom *logbook.AtomDetail) error {
	step, ok := c.plan.Find(atom.Name)
	if !ok {
		return c.loadStray(atom)
	}
	switch {
	case atom.Kind != c.plan.Step(step).Kind():
		return fmt.Errorf("it is a %s, and the flow has a %s of that name", atom.Kind, c.plan.Step(step).Kind())
	case c.vertices[step].recorded:
		return errors.New("it is recorded twice")
	case (atom.Intention == logbook.IntendIgnore) != (atom.State == logbook.AtomIgnored):
		return fmt.Errorf("it is %s with the intention %s", atom.State, atom.Intention)
	case atom.Intention == logbook.IntendIgnore && len(c.plan.Choices()) > 0:
	case atom.Intention == logbook.IntendRetry && c.plan.Step(step).IsRetry():
	case atom.Intention != logbook.IntendExecute && atom.Intention != logbook.IntendRevert:
		return fmt.Errorf("a step cannot have the intention %q", atom.Intention)
	}
	v := &c.vertices[step]
	v.recorded, v.state, v.intention, v.retryAt = true, atom.State, atom.Intention, atom.RetryAt
	past, err := c.loadAttempts(v, atom)
	if err != nil {
		return err
	}
	if version := c.plan.Step(step).Version(); atom.Version != version {
		if past.runs > 0 {
			return fmt.Errorf("it was begun with version %q of the step, and this is version %q", atom.Version, version)
		}
		v.outdated = true
	}
	last, _ := atom.Last(logbook.ActionExecute)
	if past.undone && (atom.State == logbook.AtomPending || atom.State == logbook.AtomIgnored) {
		last = nil // a retry has begun its flow again since
		v.failedExecutions, v.failedUndo = 0, 0
	}
	v.started = last != nil
	if err := c.checkState(step, last, past); err != nil {
		return err
	}
	if last != nil && last.Ended() {
		v.result, v.failure = last.Result, last.Failure
	} else if last != nil && (atom.State == logbook.AtomRunning || atom.State == logbook.AtomRetrying || atom.State == logbook.AtomPending) {
		v.attempt = last
	}
	if undo, ok := atom.Last(logbook.ActionRevert); ok && past.undone && atom.State == logbook.AtomReverting && !undo.Ended() && undo.Asked > 0 {
		v.attempt = undo
	}
	if c.plan.Step(step).IsRetry() {
		return c.loadRounds(step, atom)
	}
	return nil
}

// history is what the attempts of an atom tell besides what the run counts on.
type history struct {
	resets         int  // by persons
	runs, undoings int  // executions and reverts since then
	undone         bool // the last of them is a revert
	undoFailed     bool // the last revert has failed
}

func (c *core) loadAttempts(v *vertex, atom *logbook.AtomDetail) (past history, err error) {
	folded := &atom.Folded
	v.executions, v.reverts, v.round, v.undone = folded.Executions, folded.Reverts, int32(folded.Rounds), folded.Undone
	past.resets, past.undone = folded.Resets, folded.Undone
	for i := range atom.Attempts {
		if err := v.loadAttempt(&atom.Attempts[i], &past, c.hands.counts(&atom.Attempts[i])); err != nil {
			return past, err
		}
	}
	return past, nil
}

// loadAttempt takes over an attempt, a failure of which counts for the step's
// policy or does not.
func (v *vertex) loadAttempt(attempt *logbook.Attempt, past *history, counts bool) error {
	number, failed := &v.executions, &v.failedExecutions
	switch attempt.Action {
	case logbook.ActionExecute:
		past.runs++
		v.begun++
		v.execute()
	case logbook.ActionRevert:
		number, failed = &v.reverts, &v.failedUndo
		v.undone = true
	case logbook.ActionReset:
		number = &past.resets
	default:
		return fmt.Errorf("there is no action %q", attempt.Action)
	}
	if attempt.Number != *number+1 {
		return fmt.Errorf("%s %d follows on %s %d", attempt.Action, attempt.Number, attempt.Action, *number)
	}
	if attempt.Action == logbook.ActionReset {
		v.failedExecutions, v.failedUndo, v.begun = 0, 0, 0
		v.round, v.undone = v.round+1, false
		*past = history{resets: past.resets + 1}
		return nil
	}
	if revert := attempt.Action == logbook.ActionRevert; revert != past.undone {
		// What was tried before belongs to an earlier round, for both actions
		// once a new one is executed.
		*failed, past.undone = 0, revert
		if !revert {
			v.failedUndo = 0
		}
	}
	*number++
	if attempt.Failure != nil && counts {
		*failed++
	}
	if attempt.Action == logbook.ActionRevert {
		past.undoings++
		past.undoFailed = attempt.Failure != nil
	}
	return nil
}

// checkState holds a state against the last execution, nil if there was none.
func (c *core) checkState(step int, last *logbook.Attempt, past history) error {
	v := &c.vertices[step]
	succeeded := last != nil && last.Ended() && last.Failure == nil
	failed := last != nil && last.Ended() && last.Failure != nil
	possible := false
	switch v.state {
	case logbook.AtomPending:
		possible = last == nil || failed || !last.Ended() && last.Asked > 0
	case logbook.AtomIgnored:
		possible = last == nil
	case logbook.AtomRunning:
		possible = last != nil && !last.Ended()
	case logbook.AtomSuccess:
		possible = succeeded
	case logbook.AtomFailure:
		possible = failed
	case logbook.AtomReverting, logbook.AtomReverted:
		possible = last != nil
	case logbook.AtomRevertFailure:
		possible = last != nil && past.undoFailed
	case logbook.AtomRetrying:
		possible = last != nil && c.plan.Step(step).IsRetry()
	default:
		return fmt.Errorf("a step of this flow cannot be %q", v.state)
	}
	executing := v.state == logbook.AtomPending || v.state == logbook.AtomRunning || v.state == logbook.AtomSuccess ||
		v.state == logbook.AtomFailure
	again := c.plan.Governor(step) >= 0 && (last == nil || !past.undone)
	if !possible || executing && past.undoings > 0 && !again {
		return fmt.Errorf("it is %s after %d executions and %d reverts, which do not lead there", v.state, v.executions, v.reverts)
	}
	return nil
}

// settle derives what holds for the flow as a whole. An update may have been
// split, so what the atoms say counts as much as the flow's own state.
func (c *core) settle(state logbook.FlowState) {
	c.reverting = state == logbook.FlowReverting || c.cause != nil
	c.settleScopes()
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		if isDone(v.state) {
			c.done++
		}
		switch {
		case v.state == logbook.AtomRevertFailure:
			c.reverting = true
		case c.turningOver(step) >= 0: // only to begin again
		case v.state == logbook.AtomFailure && c.plan.Governor(step) >= 0: // nobody has decided yet
		case v.state == logbook.AtomFailure, v.state == logbook.AtomReverting, v.state == logbook.AtomReverted,
			v.intention == logbook.IntendRevert:
			c.reverting = true
		}
	}
	if !c.reverting || c.cause != nil {
		return
	}
	for step := range c.plan.Len() {
		if v := &c.vertices[step]; v.failure != nil && v.state != logbook.AtomPending {
			c.cause = c.blame(step, v.failure)
			return
		}
	}
}

// settleBroken takes up a revert that has failed for good in a flow that has
// not ended for it yet.
func (c *core) settleBroken(detail *logbook.FlowDetail) {
	for i := range detail.Atoms {
		if atom := &detail.Atoms[i]; atom.State == logbook.AtomRevertFailure {
			step, _ := c.plan.Find(atom.Name)
			last, _ := atom.Last(logbook.ActionRevert)
			c.breakOff(step, last.Failure)
			return
		}
	}
}

// checkOrder counts what each vertex waits for, and refuses a step that was
// begun before those that it waits for had finished.
func (c *core) checkOrder(state logbook.FlowState) error {
	var reached []int
	for v := range c.vertices {
		if c.vertices[v].before == 0 {
			reached = append(reached, v)
		}
	}
	for len(reached) > 0 {
		top := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		if top < c.plan.Len() && !isDone(c.vertices[top].state) {
			continue
		}
		if top >= c.plan.Len() && !c.chosen(top) {
			c.undecided = append(c.undecided, top)
			continue
		}
		c.vertices[top].released = true
		for _, next := range c.plan.Next(top) {
			if c.vertices[next].before--; c.vertices[next].before == 0 {
				reached = append(reached, int(next))
			}
		}
	}
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		if v.started && v.state != logbook.AtomReverted && v.before > 0 && !c.hands.mayPrecede(v.state) {
			return fmt.Errorf("step %q is %s, and a step that it waits for is not SUCCESS", c.plan.Step(step).Name(), v.state)
		}
		if v.started && state == logbook.FlowPending {
			return fmt.Errorf("step %q is %s in a flow that is PENDING", c.plan.Step(step).Name(), v.state)
		}
	}
	return nil
}

// resume queues what may be executed: first what was running, then what is ready.
func (c *core) resume(now time.Time) {
	for step := range c.plan.Len() {
		if c.vertices[step].state != logbook.AtomRunning || c.turningOver(step) >= 0 {
			continue
		}
		if c.plan.Step(step).AtMostOnce() {
			c.lost = append(c.lost, step)
		} else {
			c.enqueue(step)
		}
	}
	for step := range c.plan.Len() {
		if v := &c.vertices[step]; v.state == logbook.AtomPending && v.before == 0 && c.turningOver(step) < 0 {
			c.await(step, v.failedExecutions, now)
		}
	}
}

// await queues a step for the time that its record says. Another machine's
// clock has written that: where it was ahead of ours, the step waits no longer
// than its policy could have said, counted from now.
func (c *core) await(step, failures int, now time.Time) {
	at := c.vertices[step].retryAt
	if latest := now.Add(c.longestWait(step, failures, now)); at.After(latest) {
		at = latest
	}
	if at.After(now) {
		c.due.push(dueStep{at: at, step: step})
	} else {
		c.enqueue(step)
	}
}
