package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// newCore resumes a flow from the states in its detail:
//
//	pending         executed when ready, but not before RetryAt. If its last
//	                attempt is open, it has returned NotYet, and is called again
//	running         executed or called again; its progress is unknown. A step that was
//	                offered to workers continues (adopts). At most once: a failure.
//	                In a flow that reverts: reverted, without a result
//	success         kept; in a flow that reverts: reverted when ready
//	failure         the flow reverts, even if that was not recorded; with the intention
//	                execute, it is held; with the intention ignore, it continues
//	reverting       reverted again, but not before RetryAt
//	reverted        kept
//	revert_failure  the flow is failure
//	ignore          kept; its decider is not called again
//	retrying        its flow starts again. So does the flow of a retry in success with
//	                the intention retry, when all of it is undone, not before RetryAt
//
// A step with the intention retry is undone because of a takeover: see undoLast.
//
// For a retry's flow that is being undone, "flow that reverts" means that flow. If a failed step
// under a retry has no recorded decision, the retry decides now.
//
// A state that no engine records is refused, except after a change of the flow: steps that never
// started may have another version, or be gone.
func newCore(o *Options, revision *revision, work *correction) (*core, error) {
	c, err := loadCore(o, revision, work)
	return c, revision.explain(err)
}

func loadCore(o *Options, revision *revision, work *correction) (*core, error) {
	c := &core{
		facts: facts{plan: o.Plan, store: o.Store, limits: o.Limits, vertices: newVertices(o.Plan), order: newOrder(o.Plan), cause: o.Detail.Cause,
			scopes: make([]scope, len(o.Plan.Scopes()))},
		agenda: agenda{steps: o.Plan}, found: found{intervened: pastInterventionsOf(o)},
		revision: revision, owner: o.Owner, holds: o.Detail.OnFailure, out: newBuilder(o), reverter: reverterOf(o.Detail.Interventions),
		call: flow.Call{Job: o.Job, Board: o.Board, Flow: o.Detail.ID, Token: o.Token}, calls: expecting[flow.Call](o.Plan.Len()), attempts: expecting[logbook.Attempt](2 * o.Plan.Len()),
	}
	if err := o.Detail.State.Move(o.Detail.State); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err := c.checkStore(); err != nil {
		return nil, err
	}
	if err := c.checkFormerNames(&o.Detail); err != nil {
		return nil, err
	}
	l := loader{c, len(o.Plan.Choices()) > 0 || len(o.Plan.Template().TolerantElements()) > 0 || slices.ContainsFunc(o.Plan.Steps(), (*flow.Step).IgnoresFailure)}
	for i := range o.Detail.Atoms {
		if c.forgets(&o.Detail.Atoms[i]) {
			continue
		}
		if err := l.load(&o.Detail.Atoms[i]); err != nil {
			return nil, fmt.Errorf("%w: atom %q: %w", ErrMismatch, o.Detail.Atoms[i].Name, err)
		}
	}
	l.deriveState(o.Detail.State)
	l.resumeBroken(&o.Detail)
	if err := l.checkOrder(o.Detail.State); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	work.write(c.out)
	return c, nil
}

// loader brings a core into the state of a record.
type loader struct {
	*core
	mayLeaveOut bool // a decider, or the lack of a value, can leave out steps
}

// checkStore reports the values that the plan requires and the store lacks.
func (f *facts) checkStore() error {
	var faults []error
	reported := make(map[string]bool)
	for step := range f.plan.Len() {
		clear(reported)
		for _, wires := range [][]flow.Wire{f.plan.Arguments(step), f.plan.RevertArguments(step)} {
			for i := range wires {
				symbol := wires[i].Symbol
				_, held := f.store[symbol]
				if wires[i].From != flow.FromStore || wires[i].Optional || held || reported[symbol] {
					continue
				}
				reported[symbol] = true
				faults = append(faults, fmt.Errorf("%w: step %q requires %q, which is not in the store",
					flow.ErrMissing, f.plan.Step(step).Name(), symbol))
			}
		}
	}
	return errors.Join(faults...)
}

// checkFormerNames refuses a step with the former name of a renamed step: their calls would have equal keys.
func (f *facts) checkFormerNames(detail *logbook.FlowDetail) error {
	former := detail.FormerNames()
	for _, step := range f.plan.Template().Steps() {
		if name, renamed := former[step.Name()]; renamed {
			return fmt.Errorf("%w: step %q has the former name of step %q, which was renamed; give it another name", ErrMismatch, step.Name(), name)
		}
	}
	return nil
}

// load loads one atom.
func (l *loader) load(atom *logbook.AtomDetail) error {
	step, ok := l.plan.Find(atom.Name)
	if !ok {
		return l.loadAbsent(atom)
	}
	switch {
	case atom.Kind != l.plan.Step(step).Kind():
		return fmt.Errorf("it is recorded as a %s, but the flow has a %s of this name", atom.Kind, l.plan.Step(step).Kind())
	case l.vertices[step].record != unrecorded:
		return errors.New("it is recorded twice")
	case (atom.Intention == logbook.IntendIgnore) != (atom.State == logbook.AtomIgnored || atom.FailureIgnored()):
		return fmt.Errorf("it is %s with the intention %s", atom.State, atom.Intention)
	case atom.FailureIgnored():
	case atom.State == logbook.AtomIgnored && l.mayLeaveOut:
	case atom.Intention == logbook.IntendRetry && (l.plan.Step(step).IsRetry() || atom.Kind == logbook.KindTask):
	case atom.Intention == logbook.IntendDrop && l.isSelected(step):
	case atom.Intention != logbook.IntendExecute && atom.Intention != logbook.IntendRevert:
		return fmt.Errorf("a step cannot have the intention %q", atom.Intention)
	}
	v := &l.vertices[step]
	v.record, v.intention, v.retryAt = recorded, atom.Intention, atom.RetryAt
	v.saved, v.reported = atom.Checkpoints != nil, atom.Progress
	past, err := l.loadAttempts(v, atom)
	if err != nil {
		return err
	}
	if err := v.checkVersion(atom, l.plan.Step(step), past); err != nil {
		return err
	}
	last, _ := atom.Last(logbook.ActionExecute)
	if past.undone && (atom.State == logbook.AtomPending || atom.State == logbook.AtomIgnored) {
		last = nil // a retry has restarted its flow since
		v.failedExecutions, v.failedUndo = 0, 0
	}
	if v.phase, err = l.replay(step, atom.State, last, past); err != nil {
		return err
	}
	if atom.FailureIgnored() {
		v.phase = tolerated
	}
	if last != nil && !l.found.intervened.counts(last) {
		l.found.intervened.spared[step] = true
	}
	if last != nil && last.Ended() {
		v.result, v.failure, v.doneBy = last.Result, last.Failure, doneBy(last)
	} else if last != nil && (atom.State == logbook.AtomRunning || atom.State == logbook.AtomRetrying || atom.State == logbook.AtomPending) {
		v.attempt = last
	}
	if undo, ok := atom.Last(logbook.ActionRevert); ok && past.undone && atom.State == logbook.AtomReverting && !undo.Ended() && (undo.Asked > 0 || undo.Offered) {
		v.attempt = undo
	}
	if l.plan.Step(step).IsRetry() {
		return l.loadRounds(step, atom)
	}
	return nil
}

// checkVersion refuses an atom that was started with another version of the step.
func (v *vertex) checkVersion(atom *logbook.AtomDetail, step *flow.Step, past attemptSummary) error {
	if atom.Version != step.Version() {
		if v.record = outdated; past.runs > 0 {
			return fmt.Errorf("it started with version %q of the step, but the current definition has version %q", atom.Version, step.Version())
		}
	}
	return nil
}

// attemptSummary is what replay needs of an atom's attempts.
type attemptSummary struct {
	resets         int
	runs, undoings int  // executions and reverts since the last reset
	undone         bool // the last of them is a revert
	undoFailed     bool // the last revert has failed
}

func (l *loader) loadAttempts(v *vertex, atom *logbook.AtomDetail) (past attemptSummary, err error) {
	folded := &atom.Folded
	v.executions, v.reverts, v.round, v.isUndone = folded.Executions, folded.Reverts, int32(folded.Rounds), folded.Undone
	past.resets, past.undone, v.touched = folded.Resets, folded.Undone, folded.Len() > 0
	for i := range atom.Attempts {
		if err := v.loadAttempt(&atom.Attempts[i], &past, l.found.intervened.counts(&atom.Attempts[i])); err != nil {
			return past, err
		}
	}
	return past, nil
}

// loadAttempt loads one attempt; counts reports whether its failure counts for the step's retry
// policy.
func (h *history) loadAttempt(attempt *logbook.Attempt, past *attemptSummary, counts bool) error {
	number, failed := &h.executions, &h.failedExecutions
	switch attempt.Action {
	case logbook.ActionExecute:
		past.runs++
		h.begun++
		h.execute()
		h.touched = h.touched || !attempt.NeverBegan()
		if counts && h.since.IsZero() {
			h.since = attempt.StartedAt
		}
	case logbook.ActionRevert:
		number, failed = &h.reverts, &h.failedUndo
		h.isUndone = true
	case logbook.ActionReset:
		number = &past.resets
	default:
		return fmt.Errorf("there is no action %q", attempt.Action)
	}
	if attempt.Number != *number+1 {
		return fmt.Errorf("%s %d follows %s %d", attempt.Action, attempt.Number, attempt.Action, *number)
	}
	if attempt.Action == logbook.ActionReset {
		*h = history{executions: h.executions, reverts: h.reverts, round: h.round + 1}
		*past = attemptSummary{resets: past.resets + 1}
		return nil
	}
	if revert := attempt.Action == logbook.ActionRevert; revert != past.undone {
		// Earlier attempts at this action belong to an earlier round. At the start of a round,
		// this is true for both actions.
		*failed, past.undone = 0, revert
		if !revert {
			h.failedUndo = 0
		}
	}
	*number++
	if attempt.Failure != nil && counts && !wasInterrupted(attempt.Failure) && !h.loses(attempt.Failure) {
		*failed++
		h.lastFailure = attempt.Failure
	}
	if attempt.Action == logbook.ActionRevert {
		past.undoings++
		past.undoFailed = attempt.Failure != nil
	}
	return nil
}

// replay returns the phase to which a step's last execution and the reverts after it lead; nil: the
// step has no execution. It refuses a recorded state that contradicts them.
func (l *loader) replay(step int, state logbook.AtomState, last *logbook.Attempt, past attemptSummary) (phase, error) {
	var room [4]event
	path := room[:0]
	if last != nil {
		path = append(path, onBegin, endOf(last, state))
	}
	kept := state == logbook.AtomSuccess && past.undoFailed && l.found.intervened.any
	switch undid := last != nil && past.undone && past.undoings > 0 && !kept; {
	case undid && state == logbook.AtomReverted:
		path = append(path, onUndo, onSuccess)
	case undid && state == logbook.AtomRevertFailure && past.undoFailed:
		path = append(path, onUndo, onFailure)
	case undid:
		path = append(path, onUndo, onAgain)
	case state == logbook.AtomReverting:
		path = append(path, onRevert)
	case state == logbook.AtomReverted:
		path = append(path, onRevert, onSuccess)
	case state == logbook.AtomIgnored:
		path = append(path, onIgnore)
	case state == logbook.AtomRetrying && l.plan.Step(step).IsRetry():
		path = append(path, onRestart)
	}
	reached, err := unbegun, error(nil)
	for _, e := range path {
		if reached, err = reached.after(e); err != nil {
			break
		}
	}
	v := &l.vertices[step]
	switch {
	case err == nil && atoms[reached] == state:
		return reached, nil
	case !slices.Contains(atoms[unbegun:], state):
		return none, fmt.Errorf("a step of this flow cannot be %q", state)
	}
	return none, fmt.Errorf("it is %s, which cannot follow %d executions and %d reverts", state, v.executions, v.reverts)
}

// endOf is the event that has ended the last execution of a step whose recorded state is state.
func endOf(execution *logbook.Attempt, state logbook.AtomState) event {
	switch {
	case execution.Ended() && execution.Failure == nil, state == logbook.AtomRetrying: // the next round can have started
		return onSuccess
	case execution.Ended() && state == logbook.AtomFailure:
		return onFailure
	case execution.Ended(), execution.Asked > 0 && state == logbook.AtomPending:
		return onAgain
	}
	return onLoss
}

// deriveState derives whether and why the flow reverts or is held. Changes that belong together
// may have been split over two updates, so the atoms count as much as the flow's state.
func (l *loader) deriveState(state logbook.FlowState) {
	l.reverting = state == logbook.FlowReverting
	l.held = l.cause != nil
	failedHere := false // a failed step holds the flow
	l.deriveScopes()
	for step := range l.plan.Len() {
		v := &l.vertices[step]
		if l.isDone(step) {
			l.done++
		}
		if v.isLeaving() {
			l.leaving++
		}
		switch {
		case v.phase == stuck:
			l.reverting = true
		case l.restartingScope(step) >= 0, l.repeats(step): // it is undone only to start again
		case v.isDropped(): // its flow continues
		case v.phase == failed && v.intention == logbook.IntendExecute && (l.cause != nil || l.holdsAt(step)):
			l.held, failedHere = true, true
		case v.phase == failed && l.plan.Governor(step) >= 0: // its retry has not decided yet
		case v.phase == failed, v.phase == toUndo, v.phase == undone,
			v.intention == logbook.IntendRevert:
			l.reverting = true
		}
	}
	if state == logbook.FlowSuspended && l.cause != nil && !failedHere && l.cause.Origin().Step == "" {
		// A request, or the end of the flow's time, was its cause. It holds the flow only after a point of no return.
		l.reverting = l.reverting || l.passed(l.whole()) < 0
	}
	if l.held = l.held && !l.reverting; !l.held && !l.reverting || l.cause != nil {
		return
	}
	for step := range l.plan.Len() {
		if v := &l.vertices[step]; v.failure != nil && v.phase != waiting && !l.wasTolerated(step) && !wasInterrupted(v.failure) {
			l.cause = l.blame(step, v.failure)
			return
		}
	}
}

// resumeBroken ends the flow if a revert has failed permanently and the flow's end was not
// recorded.
func (l *loader) resumeBroken(detail *logbook.FlowDetail) {
	for i := range detail.Atoms {
		if atom := &detail.Atoms[i]; atom.State == logbook.AtomRevertFailure {
			step, _ := l.plan.Find(atom.Name)
			last, _ := atom.Last(logbook.ActionRevert)
			l.breakOff(step, last.Failure)
			return
		}
	}
}

// checkOrder counts the predecessors that each vertex waits for, and refuses a step that started
// before its predecessors were done.
func (l *loader) checkOrder(state logbook.FlowState) error {
	l.order.count(l.plan, func(vertex int) bool {
		if vertex < l.plan.Len() {
			return l.isDone(vertex)
		}
		if place, ok := l.plan.TurnAt(vertex); ok && place.Begins {
			return l.hasTurn(&l.plan.Turns()[place.Turns].Elements[place.Element])
		}
		if !l.passesGroup(vertex) {
			return false
		}
		chosen := l.chosen(vertex)
		if !chosen {
			l.found.undecided = append(l.found.undecided, vertex)
		}
		return chosen
	})
	for step := range l.plan.Len() {
		v := &l.vertices[step]
		late := l.plan.Step(step).IsLate() && (l.held || l.isBeingUndone(step))
		if v.phase.hasBegun() && v.phase != undone && l.order[step].before > 0 && !late && !l.found.intervened.mayPrecede(v.phase) {
			return fmt.Errorf("step %q is %s, and a step before it has not succeeded", l.plan.Step(step).Name(), atoms[v.phase])
		}
		if v.phase.hasBegun() && state == logbook.FlowPending {
			return fmt.Errorf("step %q is %s, but its flow is pending", l.plan.Step(step).Name(), atoms[v.phase])
		}
	}
	return nil
}

// queueReady queues the steps that can be executed: first the interrupted steps,
// then the ready steps. It returns the steps that lack a value from outside their member.
func (c *core) queueReady(now time.Time) (outside []int) {
	for step := range c.plan.Len() {
		if v := &c.vertices[step]; v.phase != left || v.isDropped() || c.repeats(step) || c.restartingScope(step) >= 0 {
			continue
		}
		if c.plan.Step(step).AtMostOnce() && !c.adopts(step, logbook.ActionExecute) {
			c.found.interrupted = append(c.found.interrupted, step)
		} else {
			c.enqueue(step)
		}
	}
	var lacking []int
	c.failElements(now)
	for step := range c.plan.Len() {
		v := &c.vertices[step]
		switch {
		case v.phase == ignored && c.order[step].before == 0 && !c.order[step].released:
			lacking = append(lacking, step)
		case v.phase != unbegun && v.phase != waiting || c.order[step].before > 0 || v.isDropped() || c.restartingScope(step) >= 0:
		case c.lacksOutside(step):
			outside = append(outside, step)
		case v.phase == unbegun && (c.lacksValue(step) || c.isUnneeded(step)):
			lacking = append(lacking, step)
		default:
			c.queueWhenDue(step, v.failedExecutions, now)
		}
	}
	for _, step := range lacking {
		c.leaveOut(step, now)
		c.release(step, now)
	}
	return outside
}

// queueWhenDue queues a step for its recorded time. Another machine's clock has written that
// time. If that clock was ahead of ours, the step waits no longer than the longest delay of
// its policy, counted from now.
func (c *core) queueWhenDue(step, failures int, now time.Time) {
	c.queueWithin(step, c.longestWait(step, failures, now), now)
}

func (c *core) queueWithin(step int, longest time.Duration, now time.Time) {
	at := c.vertices[step].retryAt
	if latest := now.Add(longest); at.After(latest) {
		at = latest
	}
	if at.After(now) {
		c.enqueueAt(step, at)
	} else {
		c.enqueue(step)
	}
}
