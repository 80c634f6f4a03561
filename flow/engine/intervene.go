package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// handiwork is what persons want done to a flow, as changes of its record. It
// is worked out on a copy of the record, from which the run then resumes as
// from any other: so that what was carried out is all in the record, and a
// conductor that dies after some of the updates leaves the rest to the next,
// which works out the same and finds part of it done.
type handiwork struct {
	from, to logbook.FlowState
	cause    *logbook.Failure // why the flow reverts from now on; nil: as before
	changes  []logbook.AtomChange
	now      time.Time

	plan   *flow.Plan
	limits logbook.Limits
	detail *logbook.FlowDetail // the copy
	index  map[string]int      // of its atoms
	batch  []logbook.Intervention
	lead   *logbook.Intervention // the one in whose name steps are reset, if any are
}

// refusalError is why an intervention cannot be carried out.
type refusalError struct {
	intervention *logbook.Intervention
	reason       string
}

func (e *refusalError) Error() string {
	i := e.intervention
	what := string(i.Kind)
	if i.Step != "" {
		what += " " + i.Step
	}
	return fmt.Sprintf("cannot %s, as %s wants: %s", what, i.By, e.reason)
}

// intervene carries out on the detail what persons want done, as far as that
// has not been done yet; nil if there is nothing of the kind. A refusal is of
// all that they want, because one thing was said to go with the other.
func intervene(o *Options, now time.Time) (*handiwork, *refusalError, error) {
	batch := batchOf(&o.Detail)
	if len(batch) == 0 {
		return nil, nil, nil
	}
	w := &handiwork{from: o.Detail.State, to: logbook.FlowReverting, now: now, plan: o.Plan, limits: o.Limits, batch: batch}
	if refusal := w.check(&o.Detail); refusal != nil {
		return nil, refusal, nil
	}
	for i := range w.batch {
		if kind := w.batch[i].Kind; kind == logbook.InterveneRerun || kind == logbook.InterveneComplete && w.to != logbook.FlowRunning {
			w.to, w.lead = logbook.FlowRunning, &w.batch[i]
		}
	}
	if len(w.batch) == 0 || !w.from.Finished() && w.from != w.to {
		return nil, nil, nil // it was all done: the flow has been turned round since
	}
	w.copy(&o.Detail)
	work := w.backwards
	if w.to == logbook.FlowRunning {
		work = w.forwards
	}
	if err := work(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	o.Detail = *w.detail
	return w, nil, nil
}

// batchOf are the interventions that are to be carried out together. In a flow
// that goes on already they are those after which nothing has been begun: only
// of them may a part be missing.
func batchOf(detail *logbook.FlowDetail) []logbook.Intervention {
	if len(detail.Interventions) == 0 {
		return nil
	}
	if detail.State.Finished() {
		return slices.Clone(detail.Pending())
	}
	if detail.State == logbook.FlowSuspended || detail.State == logbook.FlowPending {
		return nil // a flow is suspended after they were carried out
	}
	hands := make(map[logbook.Token]bool, len(detail.Interventions))
	for i := range detail.Interventions {
		hands[detail.Interventions[i].Token] = true
	}
	last := detail.Ended // what was said before that is over
	for i := range detail.Atoms {
		for _, attempt := range detail.Atoms[i].Attempts {
			if !hands[attempt.Token] && attempt.Token.Compare(last) > 0 {
				last = attempt.Token
			}
		}
	}
	var batch []logbook.Intervention
	for _, i := range detail.Interventions {
		if i.Token.Compare(last) > 0 && i.Token.Compare(detail.Fence) < 0 {
			batch = append(batch, i)
		}
	}
	return logbook.Standing(batch)
}

// check finds what cannot be carried out. What was refused stays among the
// interventions; met again by one who goes on with a later batch, it is left
// out, with all before it.
func (w *handiwork) check(detail *logbook.FlowDetail) *refusalError {
	kept, rerun := w.batch[:0:0], make([]bool, w.plan.Vertices())
	for i := range w.batch {
		if w.batch[i].Kind == logbook.InterveneRerun {
			w.mark(rerun, w.batch[i].Step)
		}
	}
	for i := range w.batch {
		reason := w.fault(&w.batch[i])
		if reason == "" && w.batch[i].Kind == logbook.InterveneComplete {
			reason = w.faultOfEach(detail, w.batch[i].Step, rerun)
		}
		switch {
		case reason == "":
			kept = append(kept, w.batch[i])
		case w.from.Finished():
			return &refusalError{&w.batch[i], reason}
		default:
			kept = kept[:0]
		}
	}
	w.batch = kept
	return nil
}

func (w *handiwork) fault(i *logbook.Intervention) string {
	if w.from == logbook.FlowReverted && i.Kind != logbook.InterveneRerun {
		return "the flow is REVERTED, and can only be run again"
	}
	if i.Step == "" {
		return ""
	}
	step, ok := w.plan.Find(i.Step)
	opening, inEach := w.unopened(i.Step)
	switch {
	case !ok && inEach && i.Kind == logbook.InterveneRerun:
		return "" // as all of the each is, whatever its list will be
	case !ok && inEach:
		return fmt.Sprintf("%q has not taken its list, and may have no such element", opening)
	case !ok:
		return "the flow, as it is built now, has no such step"
	case i.Kind != logbook.InterveneComplete:
		return ""
	case w.plan.Step(step).Kind() != logbook.KindTask:
		return fmt.Sprintf("its kind is %s, which has no result of its own", w.plan.Step(step).Kind())
	}
	if err := w.limits.CheckValue("result", i.Result); err != nil {
		return err.Error()
	}
	if failure := lacking(w.plan, step, resultOf(i)); failure != nil {
		return failure.Message
	}
	return ""
}

// unopened finds the opening of an each that has no list now, and in which a
// step of this name could stand.
func (w *handiwork) unopened(name string) (string, bool) {
	for _, opening := range w.plan.Openings(name) {
		if _, ok := w.plan.Find(opening); ok {
			_, opened := w.plan.Elements()[opening]
			return opening, !opened
		}
	}
	return "", false
}

// faultOfEach finds the each that takes its list anew, and in which a step
// stands that is to be completed: nobody can tell whether it will be there.
func (w *handiwork) faultOfEach(detail *logbook.FlowDetail, name string, rerun []bool) string {
	for _, opening := range w.plan.Openings(name) {
		atom, recorded := detail.Atom(opening)
		step, _ := w.plan.Find(opening)
		if !recorded || atom.State != logbook.AtomSuccess || rerun[step] {
			return fmt.Sprintf("%q is run again, and may have no such element then", opening)
		}
	}
	return ""
}

// resultOf is what a step provides that is completed by hand.
func resultOf(i *logbook.Intervention) []byte {
	if len(i.Result) == 0 {
		return null
	}
	return i.Result
}

// copy makes a detail that can be changed without anybody seeing it.
func (w *handiwork) copy(detail *logbook.FlowDetail) {
	copied := *detail
	copied.State = w.to
	if w.from.Finished() {
		copied.Cause = nil
		if w.to == logbook.FlowReverting {
			w.cause = originOf(detail.Cause)
			copied.Cause = w.cause
		}
	}
	copied.Atoms = slices.Clone(detail.Atoms)
	w.index = make(map[string]int, len(copied.Atoms))
	for i := range copied.Atoms {
		copied.Atoms[i].Attempts = slices.Clip(copied.Atoms[i].Attempts)
		w.index[copied.Atoms[i].Name] = i
	}
	w.detail = &copied
}

// originOf is why a flow was reverting before a revert failed for good, and
// before anything else was said about that: see breakOff and refused. Where
// that is not told apart, the cause is as it was.
func originOf(cause *logbook.Failure) *logbook.Failure {
	if cause = unrefused(cause); cause == nil || len(cause.Causes) == 0 {
		return cause
	}
	if below := &cause.Causes[len(cause.Causes)-1]; below.Step != "" || below.Kind == logbook.FailureOperator {
		return below
	}
	return cause
}

// unrefused is the cause of a flow before an intervention was refused.
func unrefused(cause *logbook.Failure) *logbook.Failure {
	if cause != nil && cause.Kind == logbook.FailureIntervention && len(cause.Causes) > 0 {
		return &cause.Causes[len(cause.Causes)-1]
	}
	return cause
}

// backwards has the reverts that have failed tried again, or passed over.
func (w *handiwork) backwards() error {
	again, skips := false, make(map[string]*logbook.Intervention)
	for i := range w.batch {
		again = again || w.batch[i].Kind == logbook.InterveneRetryRevert
		if w.batch[i].Kind == logbook.InterveneSkip {
			skips[w.batch[i].Step] = &w.batch[i]
		}
	}
	for i := range w.detail.Atoms {
		atom := &w.detail.Atoms[i]
		stuck := atom.State == logbook.AtomRevertFailure
		if !stuck && atom.State != logbook.AtomReverting {
			continue
		}
		var err error
		if skip := skips[atom.Name]; skip != nil {
			err = w.change(atom, logbook.AtomChange{State: logbook.AtomReverted, Attempts: []logbook.Attempt{w.attempt(atom, logbook.ActionRevert, skip)}})
		} else if stuck && again {
			err = w.change(atom, logbook.AtomChange{State: logbook.AtomReverting})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forwards has everything run that has not succeeded, or that is to be run
// again, and counts as succeeded what persons have completed. That comes
// first: who completes a step does not want it run, wherever the flow begins.
func (w *handiwork) forwards() error {
	completed, rerun := make(map[string]*logbook.Intervention), make([]bool, w.plan.Vertices())
	for i := range w.batch {
		switch w.batch[i].Kind {
		case logbook.InterveneComplete:
			completed[w.batch[i].Step] = &w.batch[i]
		case logbook.InterveneRerun:
			w.mark(rerun, w.batch[i].Step)
		}
	}
	anew := w.decidesAnew(rerun)
	// The last come first: an opening keeps its list until its instances are
	// set back, since without it nobody could tell what they are.
	for i := len(w.detail.Atoms) - 1; i >= 0; i-- {
		if err := w.forward(&w.detail.Atoms[i], completed, rerun, anew); err != nil {
			return err
		}
	}
	for i := range w.batch { // those that have not been recorded before, in order
		if by := completed[w.batch[i].Step]; by != nil {
			if err := w.complete(by); err != nil {
				return err
			}
		}
	}
	return nil
}

// mark marks a step and all that waits for it; everything, if there is none.
// For one in an each that has no list now, which is run anyway, it marks what
// waits for that.
func (w *handiwork) mark(rerun []bool, name string) {
	var stack []int
	if opening, ok := w.unopened(name); ok {
		step, _ := w.plan.Find(opening)
		stack = append(stack, step)
	}
	for step := range w.plan.Len() {
		if (name == "" || w.plan.Step(step).Name() == name) && !rerun[step] {
			rerun[step] = true
			stack = append(stack, step)
		}
	}
	w.spread(rerun, stack)
}

// spread marks what waits for the vertices of a stack.
func (w *handiwork) spread(marked []bool, stack []int) {
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range w.plan.Next(top) {
			if !marked[next] {
				marked[next] = true
				stack = append(stack, int(next))
			}
		}
	}
}

// decidesAnew tells whether a step was ignored that waits for one which runs
// again. Then all deciders that have said no are asked once more: which of
// them have ignored a step together is not recorded, and the others, seeing
// the same results, say the same.
func (w *handiwork) decidesAnew(rerun []bool) bool {
	again := slices.Clone(rerun)
	var stack []int
	for i := range w.detail.Atoms {
		atom := &w.detail.Atoms[i]
		step, ok := w.plan.Find(atom.Name)
		if !ok || len(atom.Attempts) == 0 || atom.State == logbook.AtomSuccess || atom.State == logbook.AtomIgnored || again[step] {
			continue
		}
		again[step] = true
		stack = append(stack, step)
	}
	w.spread(again, stack)
	for i := range w.detail.Atoms {
		if step, ok := w.plan.Find(w.detail.Atoms[i].Name); ok && again[step] && w.detail.Atoms[i].State == logbook.AtomIgnored {
			return true
		}
	}
	return false
}

// forward decides about one atom.
func (w *handiwork) forward(atom *logbook.AtomDetail, completed map[string]*logbook.Intervention, rerun []bool, anew bool) error {
	step, ok := w.plan.Find(atom.Name)
	switch {
	case !ok: // nothing of it runs, as load will see
		return nil
	case completed[atom.Name] != nil:
		return w.complete(completed[atom.Name])
	case w.wasReset(atom):
		return nil
	case atom.State == logbook.AtomIgnored && !anew:
		return nil
	case atom.State == logbook.AtomSuccess && !rerun[step]:
		if atom.Intention == logbook.IntendExecute {
			return nil
		}
		return w.change(atom, logbook.AtomChange{Intention: logbook.IntendExecute})
	}
	return w.reset(atom)
}

// wasReset tells whether an earlier conductor has done that.
func (w *handiwork) wasReset(atom *logbook.AtomDetail) bool {
	n := len(atom.Attempts)
	return n > 0 && atom.Attempts[n-1].Action == logbook.ActionReset && atom.Attempts[n-1].Token == w.lead.Token
}

// reset makes an atom as if it had never begun, but for the history.
func (w *handiwork) reset(atom *logbook.AtomDetail) error {
	change := logbook.AtomChange{Intention: logbook.IntendExecute}
	if n := len(atom.Attempts); n > 0 && atom.Attempts[n-1].Action != logbook.ActionReset {
		change.Attempts = []logbook.Attempt{w.attempt(atom, logbook.ActionReset, w.lead)}
	}
	if atom.State == logbook.AtomPending {
		if len(change.Attempts) == 0 && atom.Intention == logbook.IntendExecute && atom.RetryAt.IsZero() {
			return nil
		}
		return w.change(atom, change)
	}
	if err := w.giveUp(atom); err != nil {
		return err
	}
	change.State = logbook.AtomPending
	return w.change(atom, change)
}

// giveUp ends what an atom was on its way to, in a state from which it can
// begin anew, or be completed.
func (w *handiwork) giveUp(atom *logbook.AtomDetail) error {
	way := map[logbook.AtomState][]logbook.AtomState{
		logbook.AtomReverting: {logbook.AtomRevertFailure},
		logbook.AtomRetrying:  {logbook.AtomReverting, logbook.AtomReverted},
	}
	for _, state := range way[atom.State] {
		if err := w.change(atom, logbook.AtomChange{State: state}); err != nil {
			return err
		}
	}
	return nil
}

// complete records that a step is done, and by whom.
func (w *handiwork) complete(by *logbook.Intervention) error {
	change := logbook.AtomChange{State: logbook.AtomSuccess, Intention: logbook.IntendExecute}
	number, _ := w.plan.Find(by.Step)
	change.Version = w.plan.Step(number).Version()
	at, recorded := w.index[by.Step]
	if !recorded {
		change.Kind = w.plan.Step(number).Kind()
		at = len(w.detail.Atoms)
		w.index[by.Step] = at
		w.detail.Atoms = append(w.detail.Atoms, logbook.NewAtom(by.Step, change.Kind))
	}
	atom := &w.detail.Atoms[at]
	if last, ok := atom.Last(logbook.ActionExecute); ok && last.Token == by.Token {
		return nil // an earlier conductor has done that
	}
	if len(atom.Attempts) > 0 {
		change.Attempts = append(change.Attempts, w.attempt(atom, logbook.ActionReset, by))
	}
	done := w.attempt(atom, logbook.ActionExecute, by)
	done.Result = resultOf(by)
	change.Attempts = append(change.Attempts, done)
	if err := w.giveUp(atom); err != nil {
		return err
	}
	return w.change(atom, change)
}

// attempt is what a person has done, in place of an attempt of the engine.
func (w *handiwork) attempt(atom *logbook.AtomDetail, action logbook.Action, by *logbook.Intervention) logbook.Attempt {
	at := by.At
	if at.IsZero() {
		at = w.now
	}
	return logbook.Attempt{Action: action, Number: atom.Number(action) + 1, Token: by.Token, Owner: by.By, StartedAt: at, EndedAt: at}
}

// change makes a change on the copy, by the rules by which it is made in the
// logbook.
func (w *handiwork) change(atom *logbook.AtomDetail, change logbook.AtomChange) error {
	change.Name = atom.Name
	if err := atom.Advance(&change); err != nil {
		return err
	}
	w.changes = append(w.changes, change)
	return nil
}

// write puts the changes into updates, the first of which moves the flow.
func (w *handiwork) write(b *builder) {
	if w == nil {
		return
	}
	if w.from.Finished() {
		b.state, b.cause = w.from, nil
	}
	b.flow(w.to, w.cause, w.now)
	for _, change := range w.changes {
		b.add(change, w.now)
	}
}

// refused ends a flow again as it had ended, with a cause that says why it
// does not go on. The update is what keeps the next conductor from trying the
// same.
func refused(o *Options, refusal *refusalError) End {
	i := refusal.intervention
	cause := &logbook.Failure{Kind: logbook.FailureIntervention, Message: refusal.Error(), Step: i.Step, Permanent: true}
	if before := unrefused(o.Detail.Cause); before != nil { // else the causes would grow with every try
		cause.Causes = []logbook.Failure{*before}
	}
	cause = flow.FitFailure(cause, o.Limits)
	b := newBuilder(o)
	b.flow(o.Detail.State, cause, o.Now())
	return End{State: o.Detail.State, Cause: cause, Update: &b.take()[0]}
}

// hands is how persons have had their hands in a flow.
type hands struct {
	any   bool
	since logbook.Token // the last time
}

func handsOn(o *Options) hands {
	var h hands
	for i := range o.Detail.Interventions {
		if token := o.Detail.Interventions[i].Token; token.Compare(o.Token) < 0 {
			h.any, h.since = true, token
		}
	}
	return h
}

// counts tells whether a failure counts for the policy of its step: after an
// intervention, every step has all of its tries again.
func (h hands) counts(attempt *logbook.Attempt) bool {
	return !h.any || attempt.Token.Compare(h.since) > 0
}

// mayPrecede tells whether a step can be in a state although those before it
// are not done: it was completed by hand, or those before it are decided anew.
func (h hands) mayPrecede(state logbook.AtomState) bool {
	return h.any && (state == logbook.AtomSuccess || state == logbook.AtomReverting || state == logbook.AtomRevertFailure)
}
