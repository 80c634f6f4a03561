package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// correction holds the changes of a flow's record that carry out interventions. The changes are
// computed on a copy of the record; the run then resumes from that copy as from any other record.
// If a conductor dies after some of the updates, the next one computes the same changes and finds
// part of them done.
type correction struct {
	from, to logbook.FlowState
	held     bool
	cause    *logbook.Failure // why the flow reverts from now on; nil: as before
	changes  []logbook.AtomChange
	now      time.Time

	plan    *flow.Plan
	limits  logbook.Limits
	detail  *logbook.FlowDetail // the copy
	index   map[string]int      // of its atoms
	batch   []logbook.Intervention
	dropped map[string]bool       // steps of members that were dropped
	lead    *logbook.Intervention // the intervention recorded as owner of resets; nil: none
}

// refusalError is the reason why an intervention cannot be carried out.
type refusalError struct {
	intervention *logbook.Intervention
	reason       string
	why          error // ErrNoReturn, ErrLoopStep, or nil
}

func (e *refusalError) Error() string {
	i := e.intervention
	what := string(i.Kind)
	if i.Step != "" {
		what += " " + i.Step
	}
	by := ""
	if i.By != "" {
		by = " by " + i.By
	}
	return fmt.Sprintf("the intervention %q%s is refused: %s", what, by, e.reason)
}

func (e *refusalError) Is(target error) bool {
	return e.why != nil && (target == e.why || target == logbook.ErrConflict)
}

// intervene applies the interventions that have not been carried out yet to the
// detail; nil if there are none. A refusal refuses all of them, because they were
// made to take effect together.
func intervene(o *Options, now time.Time) (*correction, *refusalError, error) {
	batch := batchOf(&o.Detail)
	if len(batch) == 0 {
		return nil, nil, nil
	}
	w := &correction{from: o.Detail.State, held: o.Detail.Held(), to: logbook.FlowReverting, now: now, plan: o.Plan, limits: o.Limits, batch: batch}
	w.noteDropped(&o.Detail)
	if refusal := w.check(&o.Detail); refusal != nil {
		return nil, refusal, nil
	}
	for i := range w.batch {
		if kind := w.batch[i].Kind; kind == logbook.InterveneRerun || kind == logbook.InterveneComplete && w.to != logbook.FlowRunning {
			w.to, w.lead = logbook.FlowRunning, &w.batch[i]
		}
	}
	if len(w.batch) == 0 || !w.from.Finished() && w.from != w.to {
		return nil, nil, nil // all was done before: the flow has changed direction since
	}
	w.copy(&o.Detail)
	work := w.correctRevert
	if w.to == logbook.FlowRunning {
		work = w.correctForward
	}
	if err := work(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	o.Detail = *w.detail
	return w, nil, nil
}

// batchOf returns the interventions to carry out together. In a flow that has not ended, these
// are the interventions after which no step has started. Only such interventions may have been
// carried out in part.
func batchOf(detail *logbook.FlowDetail) []logbook.Intervention {
	if len(detail.Interventions) == 0 {
		return nil
	}
	if detail.State.Finished() {
		return slices.Clone(detail.Pending())
	}
	if detail.State == logbook.FlowSuspended || detail.State == logbook.FlowPending {
		return nil // in these states, all earlier ones have been carried out
	}
	interventions := make(map[logbook.Token]bool, len(detail.Interventions))
	for i := range detail.Interventions {
		interventions[detail.Interventions[i].Token] = true
	}
	last := detail.Ended // earlier interventions have been carried out
	for i := range detail.Atoms {
		for _, attempt := range detail.Atoms[i].Attempts {
			if !interventions[attempt.Token] && attempt.Token.Compare(last) > 0 {
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

// check finds interventions that cannot be carried out. A refused one stays in the record; when a later batch resumes,
// the refused intervention and all earlier ones are omitted.
func (w *correction) check(detail *logbook.FlowDetail) *refusalError {
	kept, rerun := w.batch[:0:0], make([]bool, w.plan.Vertices())
	for i := range w.batch {
		if w.batch[i].Kind == logbook.InterveneRerun {
			w.markRerun(rerun, w.batch[i].Step)
		}
	}
	for i := range w.batch {
		loop, point := w.objectionOfLoop(w.batch[i].Step), w.objectionOfPoint(detail, &w.batch[i])
		reason := cmp.Or(loop, w.objection(&w.batch[i]), point)
		if reason == "" && w.batch[i].Kind == logbook.InterveneComplete {
			reason = cmp.Or(w.objectionOfEach(detail, w.batch[i].Step, rerun), w.objectionOfDropped(w.batch[i].Step))
		}
		switch {
		case reason == "":
			kept = append(kept, w.batch[i])
		case w.from.Finished():
			var why error
			switch reason {
			case loop:
				why = ErrLoopStep
			case point:
				why = ErrNoReturn
			}
			return &refusalError{&w.batch[i], reason, why}
		default:
			kept = kept[:0]
		}
	}
	w.batch = kept
	return nil
}

// objectionOfLoop refuses the name of a step that a loop has for each of its elements.
func (w *correction) objectionOfLoop(name string) string {
	_, exists := w.plan.Find(name)
	if _, inLoop := w.plan.Template().Find(name); exists || !inLoop {
		return ""
	}
	for _, instance := range w.plan.Steps() {
		if step, ok := w.plan.Instantiated(instance.Name()); ok && step.Name() == name {
			return fmt.Sprintf("the step runs once for each element of a loop; name one instance, such as %q, or the loop", instance.Name())
		}
	}
	return "the step runs once for each element of a loop; name the loop"
}

func (w *correction) objection(i *logbook.Intervention) string {
	if w.from == logbook.FlowReverted && i.Kind != logbook.InterveneRerun {
		return "the flow is reverted, and only rerun can change it"
	}
	if i.Kind == logbook.InterveneRetryRevert && w.held {
		return "the flow is held, so no revert has failed; use revert to start the reverts"
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
		return fmt.Sprintf("the loop %q has no list yet, and may have no such element; repeat the intervention when the loop has started, or rerun the loop", opening)
	case !ok:
		return "the flow's current definition has no such step; `conductord flow show` lists the steps"
	case i.Kind != logbook.InterveneComplete:
		return ""
	case w.plan.Step(step).Kind() != logbook.KindTask:
		return fmt.Sprintf("the step has the kind %s, and only a task has a result that an operator can give", w.plan.Step(step).Kind())
	}
	if err := w.limits.CheckValue("result", i.Result); err != nil {
		return err.Error()
	}
	if failure := missingField(w.plan, step, resultOf(i)); failure != nil {
		return failure.Message
	}
	return ""
}

// unopened returns the opening of an each that has no list yet and could hold a step
// of this name.
func (w *correction) unopened(name string) (string, bool) {
	for _, opening := range w.plan.Openings(name) {
		if _, ok := w.plan.Find(opening); ok {
			_, opened := w.plan.Elements()[opening]
			return opening, !opened
		}
	}
	return "", false
}

// objectionOfEach refuses to complete a step of an each that will take its list again: the new
// list may lack the step's element.
func (w *correction) objectionOfEach(detail *logbook.FlowDetail, name string, rerun []bool) string {
	for _, opening := range w.plan.Openings(name) {
		atom, recorded := detail.Atom(opening)
		step, _ := w.plan.Find(opening)
		if !recorded || atom.State != logbook.AtomSuccess || rerun[step] {
			return fmt.Sprintf("the loop %q runs again with a new list, which may have no such element; rerun the loop alone, and complete the step later", opening)
		}
	}
	return ""
}

// objectionOfDropped refuses to complete a step that is not needed any more.
func (w *correction) objectionOfDropped(name string) string {
	if w.dropped[name] {
		return "enough other members of its flow have succeeded; rerun from the step to select the members again"
	}
	return ""
}

// noteDropped notes the steps of members that were dropped.
func (w *correction) noteDropped(detail *logbook.FlowDetail) {
	w.dropped = make(map[string]bool)
	for i := range detail.Atoms {
		if detail.Atoms[i].IsDropped() {
			w.dropped[detail.Atoms[i].Name] = true
		}
	}
}

// resultOf is the result of a step that an operator completes.
func resultOf(i *logbook.Intervention) []byte {
	if len(i.Result) == 0 {
		return null
	}
	return i.Result
}

// copy copies the detail, so that the original stays as it is.
func (w *correction) copy(detail *logbook.FlowDetail) {
	copied := *detail
	copied.State = w.to
	if w.from.Finished() {
		copied.Cause = nil
		if w.to == logbook.FlowReverting {
			w.cause = unrefused(detail.Cause)
			if !detail.Held() {
				w.cause = w.cause.Origin()
			}
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

// unrefused is the cause of a flow before an intervention was refused.
func unrefused(cause *logbook.Failure) *logbook.Failure {
	if cause != nil && cause.Kind == logbook.FailureIntervention && len(cause.Causes) > 0 {
		return &cause.Causes[len(cause.Causes)-1]
	}
	return cause
}

// correctRevert makes failed reverts be tried again, or skips them. The steps of a held flow need no
// correction: the run reverts all of them.
func (w *correction) correctRevert() error {
	again, skips := false, make(map[string]*logbook.Intervention)
	for i := range w.batch {
		again = again || w.batch[i].Kind == logbook.InterveneRetryRevert || w.batch[i].Kind == logbook.InterveneRevert
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

// correctForward resets every step that has not succeeded or must rerun, and completes the steps
// that have a result from an operator. Completing wins over rerunning. A step whose revert failed keeps
// its result, unless it must rerun. A step that had nothing to undo (IsKept) keeps its result, unless it
// must rerun or follows a step that runs again.
func (w *correction) correctForward() error {
	completed, rerun := make(map[string]*logbook.Intervention), make([]bool, w.plan.Vertices())
	for i := range w.batch {
		switch w.batch[i].Kind {
		case logbook.InterveneComplete:
			completed[w.batch[i].Step] = &w.batch[i]
		case logbook.InterveneRerun:
			w.markRerun(rerun, w.batch[i].Step)
		}
	}
	again, anew := w.runAgain(completed, rerun)
	// From last to first: an opening keeps its list until its instances are reset,
	// because the list says which instances there are.
	for i := len(w.detail.Atoms) - 1; i >= 0; i-- {
		if err := w.correctAtom(&w.detail.Atoms[i], completed, rerun, again, anew); err != nil {
			return err
		}
	}
	for i := range w.batch { // steps that have no atom yet, in order
		if by := completed[w.batch[i].Step]; by != nil {
			if err := w.complete(by); err != nil {
				return err
			}
		}
	}
	return nil
}

// markRerun marks a step and all its successors; everything, if the name is empty.
// For a step of an each that has no list yet, it marks the successors of the each,
// which runs anyway.
func (w *correction) markRerun(rerun []bool, name string) {
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
	w.markSuccessors(rerun, stack)
	w.markMembers(rerun)
}

// markMembers marks all members of the groups whose members are selected again, because a step of such a group is
// marked, and the members were selected.
func (w *correction) markMembers(rerun []bool) {
	for _, group := range w.plan.Groups() {
		marked, selected := false, false
		members := w.plan.TolerantElements()[group.First:group.End]
		for _, member := range members {
			for step := member.Bounds.Retry; step < member.Bounds.End; step++ {
				marked, selected = marked || rerun[step], selected || w.dropped[w.plan.Step(step).Name()]
			}
		}
		for _, member := range members {
			for step := member.Bounds.Retry; step < member.Bounds.End && marked && selected; step++ {
				rerun[step] = true
			}
		}
	}
}

// markSuccessors marks all that follows the vertices of a stack.
func (w *correction) markSuccessors(marked []bool, stack []int) {
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

// runAgain returns the steps that run again, and reports whether an ignored step follows them. Then
// every decider that said no is evaluated again, because the record does not name the decider that
// ignored a step. A decider that sees the same results gives the same answer.
func (w *correction) runAgain(completed map[string]*logbook.Intervention, rerun []bool) (again []bool, anew bool) {
	again = slices.Clone(rerun)
	var stack []int
	for i := range w.detail.Atoms {
		atom := &w.detail.Atoms[i]
		step, ok := w.plan.Find(atom.Name)
		if !ok || len(atom.Attempts) == 0 || atom.State == logbook.AtomSuccess || atom.State == logbook.AtomIgnored || atom.FailureIgnored() || atom.IsDropped() || again[step] || atom.IsKept() || completed[atom.Name] != nil {
			continue
		}
		again[step] = true
		stack = append(stack, step)
	}
	w.markSuccessors(again, stack)
	for i := range w.detail.Atoms {
		if step, ok := w.plan.Find(w.detail.Atoms[i].Name); ok && again[step] && w.detail.Atoms[i].State == logbook.AtomIgnored && !w.plan.Step(step).IsOnError() {
			return again, true
		}
	}
	return again, false
}

// correctAtom completes, resets or keeps one atom.
func (w *correction) correctAtom(atom *logbook.AtomDetail, completed map[string]*logbook.Intervention, rerun, again []bool, anew bool) error {
	step, ok := w.plan.Find(atom.Name)
	switch {
	case !ok: // load passes over it, or refuses it
		return nil
	case completed[atom.Name] != nil:
		return w.complete(completed[atom.Name])
	case w.wasReset(atom):
		return nil
	case w.plan.Step(step).IsOnError() && (again[step] || atom.State != logbook.AtomIgnored): // they run at the next failure
		return w.reset(atom)
	case atom.IsDropped() && !again[step]:
		if atom.State != logbook.AtomRevertFailure {
			return nil
		}
		return w.change(atom, logbook.AtomChange{State: logbook.AtomReverting}) // its revert is tried again
	case atom.State == logbook.AtomIgnored && !anew, atom.FailureIgnored() && !again[step]:
		return nil
	case atom.State == logbook.AtomSuccess && !rerun[step] && !(w.plan.Step(step).IsFinal() && again[step]):
		if atom.Intention == logbook.IntendExecute {
			return nil
		}
		return w.change(atom, logbook.AtomChange{Intention: logbook.IntendExecute})
	case atom.IsKept() && !again[step], atom.Stands() && !rerun[step]:
		if err := w.makeResettable(atom); err != nil {
			return err
		}
		return w.change(atom, logbook.AtomChange{State: logbook.AtomSuccess, Intention: logbook.IntendExecute})
	}
	return w.reset(atom)
}

// wasReset reports whether an earlier conductor has reset the atom for this batch.
func (w *correction) wasReset(atom *logbook.AtomDetail) bool {
	n := len(atom.Attempts)
	return n > 0 && atom.Attempts[n-1].Action == logbook.ActionReset && atom.Attempts[n-1].Token == w.lead.Token
}

// reset returns an atom to pending; its attempts stay in the record.
func (w *correction) reset(atom *logbook.AtomDetail) error {
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
	if err := w.makeResettable(atom); err != nil {
		return err
	}
	change.State = logbook.AtomPending
	return w.change(atom, change)
}

// makeResettable moves an atom from reverting or retrying to a state from which it
// may become pending or success.
func (w *correction) makeResettable(atom *logbook.AtomDetail) error {
	via := map[logbook.AtomState][]logbook.AtomState{
		logbook.AtomReverting: {logbook.AtomRevertFailure},
		logbook.AtomRetrying:  {logbook.AtomReverting, logbook.AtomReverted},
	}
	for _, state := range via[atom.State] {
		if err := w.change(atom, logbook.AtomChange{State: state}); err != nil {
			return err
		}
	}
	return nil
}

// complete records that a step is done, with the operator's name.
func (w *correction) complete(by *logbook.Intervention) error {
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
	if err := w.makeResettable(atom); err != nil {
		return err
	}
	return w.change(atom, change)
}

// attempt is the attempt that records an operator's action.
func (w *correction) attempt(atom *logbook.AtomDetail, action logbook.Action, by *logbook.Intervention) logbook.Attempt {
	at := by.At
	if at.IsZero() {
		at = w.now
	}
	return logbook.Attempt{Action: action, Number: atom.Number(action) + 1, Token: by.Token, Owner: by.By, StartedAt: at, EndedAt: at}
}

// change applies a change to the copy, by the rules of the logbook.
func (w *correction) change(atom *logbook.AtomDetail, change logbook.AtomChange) error {
	change.Name = atom.Name
	if err := atom.Advance(&change); err != nil {
		return err
	}
	w.changes = append(w.changes, change)
	return nil
}

// write adds the changes to updates; the first update moves the flow.
func (w *correction) write(b *builder) {
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

// endRefused ends a flow in the state in which it had ended, with the refusal as its
// cause. The update keeps the next conductor from trying the same.
func endRefused(o *Options, refusal *refusalError) End {
	i := refusal.intervention
	cause := &logbook.Failure{Kind: logbook.FailureIntervention, Message: refusal.Error(), Step: i.Step, Permanent: true}
	if before := unrefused(o.Detail.Cause); before != nil { // otherwise the causes would grow with every try
		cause.Causes = []logbook.Failure{*before}
	}
	cause = flow.FitFailure(cause, o.Limits)
	b := newBuilder(o)
	b.flow(o.Detail.State, cause, o.Now())
	return End{State: o.Detail.State, Cause: cause, Update: &b.take()[0]}
}

// reverterOf returns the intervention that reverts a flow, unless a later one has let it run again.
func reverterOf(interventions []logbook.Intervention) (reverter *logbook.Intervention) {
	for _, i := range logbook.Standing(interventions) {
		switch i.Kind {
		case logbook.InterveneRevert:
			reverter = &i
		case logbook.InterveneComplete, logbook.InterveneRerun:
			reverter = nil
		}
	}
	return reverter
}

// pastInterventions reports whether operators intervened in a flow before this claim, and the
// time of the last intervention.
type pastInterventions struct {
	any    bool
	last   logbook.Token
	spared map[int]bool // steps whose last execution is older than the last intervention
}

func pastInterventionsOf(o *Options) pastInterventions {
	var p pastInterventions
	for i := range o.Detail.Interventions {
		if o.Detail.Interventions[i].Kind == logbook.InterveneRename {
			continue // it repairs nothing
		}
		if token := o.Detail.Interventions[i].Token; token.Compare(o.Token) < 0 {
			p = pastInterventions{any: true, last: token, spared: make(map[int]bool)}
		}
	}
	return p
}

// counts reports whether a failure counts for the retry policy of its step. Failures before an
// intervention do not: after it, every step has all of its tries again.
func (p pastInterventions) counts(attempt *logbook.Attempt) bool {
	return !p.any || attempt.Token.Compare(p.last) > 0
}

// mayPrecede reports whether a step can be in a phase although its predecessors are
// not done: an operator completed it, or its predecessors are decided again.
func (p pastInterventions) mayPrecede(phase phase) bool {
	return p.any && (phase == succeeded || phase == toUndo || phase == stuck)
}
