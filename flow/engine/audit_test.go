package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// auditor follows the updates of a flow, through all of its runs, and finds
// what no engine may write, though the logbook would take it.
type auditor struct {
	plan   *flow.Plan
	flow   logbook.FlowState
	before logbook.FlowState // the update
	atoms  []auditedAtom
	last   logbook.Update // the one before
	number int            // of the present one, in all runs
	undoes []int          // the steps whose undo it begins
	spares bool           // an operator has cancelled the flow: on_error steps do not run
	late   bool           // the time of the flow is over: on_error steps of flows that have begun run
	faults []error
}

type auditedAtom struct {
	state     logbook.AtomState
	begun     bool // there is something to undo
	open      bool // its last attempt is an execution that has not ended
	recorded  bool // a result, or an ignored failure, of this round
	ignored   bool // its failure
	dropped   bool // enough other members have succeeded
	continues bool // its undo began before the present update
	failed    bool // permanently, in this round, and its failure counts
	began     int  // in the update of this number, the last time
	undone    int  // the same
	attempts  map[logbook.Action]int
}

// audit gives the faults of a series of updates.
func audit(plan *flow.Plan, updates []logbook.Update) []error {
	a := &auditor{plan: plan, flow: logbook.FlowPending, atoms: make([]auditedAtom, plan.Len())}
	for i := range a.atoms {
		a.atoms[i] = auditedAtom{state: logbook.AtomPending, attempts: make(map[logbook.Action]int)}
	}
	for i := range updates {
		a.update(&updates[i])
	}
	return a.faults
}

func (a *auditor) fault(format string, arguments ...any) {
	a.faults = append(a.faults, fmt.Errorf(format, arguments...))
}

func (a *auditor) update(u *logbook.Update) {
	if u.Token == a.last.Token && u.Sequence != a.last.Sequence+1 || u.Token != a.last.Token && (u.Sequence != 1 || u.Token.Index < a.last.Token.Index) {
		a.fault("update %d under %s follows on %d under %s", u.Sequence, u.Token, a.last.Sequence, a.last.Token)
	}
	a.last = *u
	a.spares = a.spares || u.Cause != nil && logbook.CauseOf(u.Cause).Kind == logbook.CauseCancel
	a.late = a.late || u.Cause != nil && u.Cause.Step == "" && u.Cause.Matches(logbook.FailureTimeout)
	if a.before = a.flow; u.State != "" {
		if err := a.flow.Move(u.State); err != nil {
			a.fault("%w", err)
		}
		a.flow = u.State
	}
	a.number, a.undoes = a.number+1, a.undoes[:0]
	for i := range u.Atoms {
		a.change(&u.Atoms[i], u.Token)
	}
	// A flow whose revert has failed undoes nothing more, and is recorded as reverting before it ends.
	broken := slices.ContainsFunc(a.atoms, func(atom auditedAtom) bool { return atom.state == logbook.AtomRevertFailure })
	for step := range a.atoms {
		if u.State == logbook.FlowReverting && !broken && a.atoms[step].recorded && a.plan.Step(step).PointOfNoReturn() {
			a.fault("the flow reverts behind %s, a point of no return", a.plan.Step(step).Name())
		}
	}
	// Only now, because all changes of one update happened together.
	for _, step := range a.undoes {
		a.nothingBehind(step)
		a.errorsHandled(step)
	}
	for i := range a.plan.Turns() {
		a.inTurn(&a.plan.Turns()[i])
	}
}

// inTurn holds of the instances of an each with a limit: no more are in progress, forwards or
// backwards. A takeover that undoes steps has some of both. Elements that may fail are not counted forwards: the
// record does not show when such an element has ended.
func (a *auditor) inTurn(turns *flow.Turns) {
	running, busy, undone := 0, 0, a.plan.UndoesAnyLast()
	for _, turn := range turns.Elements {
		begun, done, acts := false, true, false
		for step := turn.Steps.First; step < turn.Steps.End; step++ {
			state := a.atoms[step].state
			begun = begun || state != logbook.AtomPending
			done = done && (state == logbook.AtomSuccess || state == logbook.AtomIgnored || a.atoms[step].ignored || a.isMissing(step) || a.isGone(step))
			acts = acts || state == logbook.AtomRunning || state == logbook.AtomReverting
			undone = undone || state == logbook.AtomReverting || state == logbook.AtomReverted || state == logbook.AtomRevertFailure
		}
		if _, tolerant := a.plan.ElementOf(turn.Steps.First); begun && !done && !tolerant {
			running++
		}
		if acts {
			busy++
		}
	}
	name := a.plan.Step(turns.Opening).Name()
	if busy > turns.AtOnce && !a.plan.UndoesAnyLast() {
		a.fault("%d elements of %s run or are undone at once", busy, name)
	}
	if !undone && running > turns.AtOnce {
		a.fault("%d elements of %s are in progress at once", running, name)
	}
}

func (a *auditor) change(c *logbook.AtomChange, token logbook.Token) {
	number, ok := a.plan.Find(c.Name)
	if !ok {
		a.fault("there is no step %s", c.Name)
		return
	}
	atom := &a.atoms[number]
	if c.Intention != "" {
		a.drop(number, c.Intention == logbook.IntendDrop)
	}
	if c.State == logbook.AtomReverting && atom.state != logbook.AtomReverting {
		atom.recorded = atom.recorded && !atom.ignored // only a success is a point of no return
		a.mayUndo(number)
	}
	if c.State == logbook.AtomRetrying {
		atom.recorded = false // the retry itself is not undone, and goes into its next round
	}
	atom.continues = atom.state == logbook.AtomReverting
	for i := range c.Attempts {
		a.attempt(number, &c.Attempts[i], token)
	}
	if c.State == "" {
		return
	}
	if err := atom.state.Move(c.State); err != nil {
		a.fault("%s: %w", c.Name, err)
	}
	if atom.ignored = c.State == logbook.AtomFailure && c.Intention == logbook.IntendIgnore; atom.ignored {
		if atom.recorded, atom.failed = true, false; !a.mayIgnore(number) || a.before == logbook.FlowReverting && !a.plan.Step(number).IsLate() {
			a.fault("the failure of %s is ignored in a flow that is %s", c.Name, a.before)
		}
	}
	if c.State == logbook.AtomFailure && !atom.ignored && !atom.dropped {
		last := c.Attempts[len(c.Attempts)-1].Failure
		atom.failed = last != nil && last.Kind != logbook.FailureInterrupted &&
			(!a.plan.Step(number).IgnoresFailure() || strings.Contains(last.Message, "cannot decide"))
	} else if c.State == logbook.AtomPending || c.State == logbook.AtomReverting && a.flow == logbook.FlowRunning {
		atom.failed = false // a retry or a takeover runs it again
	}
	if atom.state = c.State; c.State == logbook.AtomReverted {
		atom.begun, atom.recorded, atom.undone = false, false, a.number
	}
}

// drop notes whether a step was dropped. Then its group has enough complete members, and its failure does not count.
func (a *auditor) drop(number int, dropped bool) {
	atom := &a.atoms[number]
	if dropped && !atom.dropped {
		atom.failed = false
		if _, selected := a.plan.Selection(number); !selected {
			a.fault("%s is dropped, and is in no flow with enough", a.plan.Step(number).Name())
		}
	}
	atom.dropped = dropped
}

// isGone reports whether a step was dropped and is undone, so that the flow continues without it.
func (a *auditor) isGone(step int) bool {
	return a.atoms[step].dropped && a.atoms[step].state == logbook.AtomReverted
}

func (a *auditor) mayIgnore(number int) bool {
	_, inElement := a.plan.ElementOf(number)
	return inElement || a.plan.Step(number).IgnoresFailure()
}

func (a *auditor) attempt(number int, attempt *logbook.Attempt, token logbook.Token) {
	atom, name := &a.atoms[number], a.plan.Step(number).Name()
	if attempt.Ended() {
		if attempt.Action == logbook.ActionExecute {
			if attempt.Number == atom.attempts[attempt.Action]+1 {
				a.markAndEnd(number, *attempt, token)
			}
			atom.recorded, atom.open = attempt.Failure == nil, false
		} else if attempt.Number == atom.attempts[attempt.Action]+1 {
			a.mayUndo(number) // a revert that does nothing begins and ends together
			atom.attempts[attempt.Action]++
		}
		return
	}
	if attempt.Number == atom.attempts[attempt.Action] && attempt.Asked > 0 {
		return // it has said "not yet", or is asked again
	}
	madeUp := a.last.Sequence == 1 && attempt.Number == 1 && attempt.Owner == "" // for an owner that died without a record
	if attempt.Token != token && !madeUp && !a.plan.Step(number).IsRetry() {
		a.fault("an attempt at %s is begun for another claim", name)
	}
	if attempt.Number == atom.attempts[attempt.Action] && a.plan.Step(number).IsRetry() {
		return // begun already, by an owner that has died
	}
	if atom.attempts[attempt.Action]++; attempt.Number != atom.attempts[attempt.Action] {
		a.fault("%s %d of %s is number %d", attempt.Action, attempt.Number, name, atom.attempts[attempt.Action])
	}
	if attempt.Action == logbook.ActionRevert {
		atom.open = false
		a.mayUndo(number)
		return
	}
	if _, reverts := a.plan.Step(number).Reverter(); atom.open && reverts && a.plan.UndoesLast(number) && !a.plan.Step(number).PointOfNoReturn() {
		a.fault("%s was cut off, and is executed again before it is undone", name)
	}
	if atom.recorded {
		a.fault("%s is executed again, although its result was recorded", name)
	}
	if a.plan.Step(number).AtMostOnce() && attempt.Number > 1 {
		a.fault("%s is at most once, and is executed again", name)
	}
	atom.begun, atom.open, atom.began = true, true, a.number
	if a.isLate(number) {
		return
	}
	for _, before := range a.plan.Predecessors(number) {
		if state := a.atoms[before].state; state != logbook.AtomSuccess && state != logbook.AtomIgnored && !a.atoms[before].ignored && !a.isMissing(before) && !a.isGone(before) {
			a.fault("%s is executed while %s, which it waits for, is %s", name, a.plan.Step(before).Name(), state)
		}
	}
}

// isLate reports whether a finally step is executed in an undo, in which the other steps of its flow are undone, or an
// on_error step after a failure.
func (a *auditor) isLate(number int) bool {
	final, ok := a.plan.FinalOf(number)
	if !ok {
		return false
	}
	if a.plan.Step(number).IsOnError() {
		return a.late || a.hasFailed(final)
	}
	undone := false
	for step := a.plan.Finals()[final].Body.First; step < a.plan.Finals()[final].Body.End; step++ {
		atom := &a.atoms[step]
		if undone = undone || atom.undone > 0; a.plan.Step(step).IsFinal() && atom.open || !a.plan.Step(step).IsLate() && atom.begun {
			return false
		}
	}
	return undone
}

// markAndEnd checks an execution that one change says all of.
func (a *auditor) markAndEnd(number int, attempt logbook.Attempt, token logbook.Token) {
	if attempt.Failure != nil {
		a.fault("%s has failed and was never recorded as running", a.plan.Step(number).Name())
	}
	attempt.EndedAt = time.Time{}
	a.attempt(number, &attempt, token)
}

// isMissing: the step belongs to an instance of an ignored each, which has no instances for
// this reason.
func (a *auditor) isMissing(step int) bool {
	return slices.ContainsFunc(a.plan.Openings(a.plan.Step(step).Name()), func(name string) bool {
		opening, ok := a.plan.Find(name)
		return ok && a.atoms[opening].state == logbook.AtomIgnored
	})
}

// mayUndo reports whether there is something to undo. What comes after it is checked
// when the update is read.
func (a *auditor) mayUndo(number int) {
	if !a.atoms[number].begun {
		a.fault("%s is undone, and has not begun or is undone already", a.plan.Step(number).Name())
	}
	if a.atoms[number].recorded && a.plan.Step(number).PointOfNoReturn() {
		a.fault("%s is undone, and is a point of no return", a.plan.Step(number).Name())
	}
	a.undoes = append(a.undoes, number)
}

// hasFailed reports whether a step has failed in the body of a flow with on_error steps.
func (a *auditor) hasFailed(final int) bool {
	part := &a.plan.Finals()[final]
	for step := part.Body.First; step < part.Body.End; step++ {
		element, ok := a.plan.ElementOf(step)
		withElement := ok && a.atoms[step].ignored && !a.plan.Step(step).IgnoresFailure() && a.plan.TolerantElements()[element].Bounds.Holds(part.Errors.First)
		if a.atoms[step].failed || withElement {
			return true
		}
	}
	return false
}

// errorsHandled reports whether the on_error steps of the failed flows around a step have ended before it is undone.
// An update can also undo a part for a retry, and then revert the flow.
func (a *auditor) errorsHandled(number int) {
	if a.spares || a.atoms[number].continues || a.before != logbook.FlowReverting || a.plan.Step(number).IsLate() {
		return
	}
	for i, final := range a.plan.Finals() {
		if number < final.Body.First || number >= final.Body.End || !a.hasFailed(i) {
			continue
		}
		for step := final.Errors.First; step < final.Errors.End; step++ {
			if atom := &a.atoms[step]; atom.open || atom.state != logbook.AtomSuccess && atom.state != logbook.AtomIgnored && !atom.ignored {
				a.fault("%s is undone before %s, an on_error step of its flow, which is %s", a.plan.Step(number).Name(), a.plan.Step(step).Name(), atom.state)
			}
		}
	}
}

// nothingBehind reports whether every begun step that follows a step was undone before
// it or with it.
func (a *auditor) nothingBehind(number int) {
	seen := make(map[int]bool)
	behind := a.plan.Successors(number)
	for len(behind) > 0 {
		step := behind[0]
		if behind = behind[1:]; seen[step] {
			continue
		}
		seen[step] = true
		atom := &a.atoms[step]
		if a.plan.Step(step).IsLate() {
			// An undo that a retry or a takeover has begun goes on beside on_error steps.
			if atom.open && atom.began != a.number && !(a.plan.Step(step).IsOnError() && a.atoms[number].continues) {
				a.fault("%s is undone while %s, a finally or on_error step behind it, is %s", a.plan.Step(number).Name(), a.plan.Step(step).Name(), atom.state)
			}
			behind = append(behind, a.plan.Successors(step)...)
			continue
		}
		if atom.begun && atom.began != a.number && atom.undone != a.number {
			a.fault("%s is undone before %s, which is %s", a.plan.Step(number).Name(), a.plan.Step(step).Name(), atom.state)
			return
		}
		behind = append(behind, a.plan.Successors(step)...)
	}
}
