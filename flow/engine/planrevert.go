package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// ErrNoReturn: a revert or an intervention would revert past a flow.PointOfNoReturn. A revert would
// hold the flow instead.
var ErrNoReturn = errors.New("the flow has passed a point of no return, and cannot revert")

// ErrLoopStep: an intervention names a step of a loop without the index of an element.
var ErrLoopStep = errors.New("the step runs once for each element of a loop")

// Undo is a step that a revert undoes.
type Undo struct {
	Step string
	// State is the step's current state. A running step is interrupted first, or finishes first if
	// it is Uninterruptible.
	State           logbook.AtomState
	Uninterruptible bool
	// AwaitsWorker: no worker has taken the step. Its offer is withdrawn first.
	AwaitsWorker bool
	// Reverts is true if the revert of the step is called. Otherwise the step counts as undone
	// at once, because it has no revert or no execution has started.
	Reverts bool
	// Finally: the step is a finally step, which is executed and not undone.
	Finally bool
}

// PlanRevert returns the steps that a revert of an unfinished flow would undo now, in the order
// in which one worker would undo them. It decides as Run does, assumes that all reverts succeed,
// and calls no task. It uses only the options Plan, Detail, Store and Limits.
//
// Errors: ErrNoReturn, and ErrMismatch, ErrPinned, ErrChanged and flow.ErrMissing, as from Run.
func PlanRevert(o Options) ([]Undo, error) {
	o = o.withDefaults()
	if o.Detail.State.Finished() {
		return nil, nil
	}
	foreseen, err := o.foresee()
	if err != nil {
		return nil, fmt.Errorf("cannot plan the revert of flow %s: %w", o.Detail.ID, err)
	}
	return foreseen.Undos, nil
}

// Execution is a step that a flow executes when it goes forwards.
type Execution struct {
	Step  string
	Again bool // the step has been executed before
}

// Forecast has the steps that an intervention concerns. A flow that goes forwards has Executions, in the
// order of the plan. Another one has Undos.
type Forecast struct {
	Executions []Execution
	Undos      []Undo
	// Skips are steps that count as ended without a call: a condition has skipped their execution, or an
	// operator skips their revert.
	Skips []string
}

// PlanIntervention returns the consequence of an intervention. Pending interventions are carried out
// first. Deciders can still leave out some executions. An intervention that cannot be carried out is an
// error: ErrNoReturn if a flow.PointOfNoReturn is the reason, ErrLoopStep if a step is named without its index. See
// PlanRevert.
func PlanIntervention(o Options, i logbook.Intervention) (Forecast, error) {
	o = o.withDefaults()
	_, err := o.Detail.Admit(&i)
	if err == nil {
		i.Hold, i.Token = false, o.Detail.Fence
		for _, pending := range o.Detail.Pending() {
			i.Token = pending.Token
		}
		i.Token.Index++
		o.Detail.Interventions = append(slices.Clip(o.Detail.Interventions), i)
		var foreseen Forecast
		if foreseen, err = o.foresee(); err == nil {
			return foreseen, nil
		}
	}
	return Forecast{}, fmt.Errorf("flow %s would not accept the intervention: %w", o.Detail.ID, err)
}

// foresee returns what Run would do to a flow if every call succeeded.
func (o *Options) foresee() (Forecast, error) {
	revision, err := revise(o)
	if err != nil {
		return Forecast{}, err
	}
	if err := o.grow(); err != nil {
		return Forecast{}, revision.explain(err)
	}
	work, refusal, err := intervene(o, o.Now())
	if refusal != nil {
		return Forecast{}, refusal
	}
	if err != nil {
		return Forecast{}, revision.explain(err)
	}
	if work != nil && work.to == logbook.FlowRunning {
		if err := o.grow(); err != nil { // an opening may run again, without its instances
			return Forecast{}, revision.explain(err)
		}
		return Forecast{Executions: o.executions(), Skips: o.ignored()}, nil
	}
	missing := addMissingMarks(o, o.Now())
	var order []string
	o.Observe = func(e Event) {
		step, found := o.Plan.Find(e.Step)
		final := found && o.Plan.Step(step).IsFinal() && (e.State == logbook.AtomSuccess || e.State == logbook.AtomFailure)
		if e.State == logbook.AtomReverted || final {
			order = append(order, e.Step)
		}
	}
	c, err := newCore(o, revision, work)
	if err != nil {
		return Forecast{}, err
	}
	missing.write(c.out)
	if point := c.passed(c.whole()); point >= 0 && !c.reverting {
		return Forecast{}, fmt.Errorf("%w: step %q has succeeded, or its outcome is unknown", ErrNoReturn, c.plan.Step(point).Name())
	}
	skipped := order
	order = nil
	revertAll(c, o)
	return Forecast{Undos: c.undos(&o.Detail, order), Skips: skipped}, nil
}

// executions are the steps without a valid result, without on_error steps that wait for another failure.
func (o *Options) executions() (executions []Execution) {
	atoms := make(map[string]*logbook.AtomDetail, len(o.Detail.Atoms))
	for i := range o.Detail.Atoms {
		atoms[o.Detail.Atoms[i].Name] = &o.Detail.Atoms[i]
	}
	for n, step := range o.Plan.Steps() {
		atom := atoms[step.Name()]
		if step.IsOnError() && !o.handlesElement(n, atoms) {
			continue // it runs only after a failure
		}
		if step.IsRetry() || atom != nil && (atom.State == logbook.AtomSuccess || atom.State == logbook.AtomIgnored || atom.FailureIgnored() || atom.Intention == logbook.IntendDrop) {
			continue
		}
		executions = append(executions, Execution{Step: step.Name(), Again: atom != nil && atom.Number(logbook.ActionExecute) > 0})
	}
	return executions
}

// handlesElement reports whether an on_error step runs without another failure, because its element has failed and the
// flow continues without the element.
func (o *Options) handlesElement(vertex int, atoms map[string]*logbook.AtomDetail) bool {
	final, _ := o.Plan.FinalOf(vertex)
	body := o.Plan.Finals()[final].Body
	for step := body.First; step < body.End; step++ {
		atom := atoms[o.Plan.Step(step).Name()]
		if atom == nil || !atom.FailureIgnored() || o.Plan.Step(step).IgnoresFailure() {
			continue
		}
		if element, ok := o.Plan.ElementOf(step); ok && o.Plan.TolerantElements()[element].Bounds.Holds(vertex) {
			return true
		}
	}
	return false
}

// ignored are the tasks that a condition has skipped, and whose condition is not evaluated again.
func (o *Options) ignored() (names []string) {
	for i := range o.Detail.Atoms {
		if atom := &o.Detail.Atoms[i]; atom.State == logbook.AtomIgnored && atom.Kind == logbook.KindTask {
			names = append(names, atom.Name)
		}
	}
	return names
}

// revertAll reverts the flow as if every revert succeeded at once.
func revertAll(c *core, o *Options) {
	now := o.Now()
	c.adopt(o, now)
	c.begin(now)
	c.requestRevert(&logbook.Failure{Kind: logbook.FailureOperator}, now)
	for {
		starts := c.next(now, 1, anyPermit{})
		if _, over := c.end(); over {
			return
		}
		for _, s := range starts {
			c.finish(outcome{step: s.step, ended: now}, now)
		}
		if due, waits := c.nextDue(); len(starts) == 0 && waits && due.After(now) {
			now = due
		}
	}
}

// undos describes the steps of an order. Retries, and openings of an Each, have no task.
func (f *facts) undos(detail *logbook.FlowDetail, order []string) []Undo {
	var undos []Undo
	for _, name := range order {
		step, found := f.plan.Find(name)
		if !found || f.plan.Step(step).Task() == nil {
			continue
		}
		s := f.plan.Step(step)
		_, reverts := s.Reverter()
		reverts = reverts && f.vertices[step].touched
		atom, recorded := detail.Atom(name)
		if !recorded { // a finally step that has not run
			atom = &logbook.AtomDetail{State: logbook.AtomPending}
		}
		undos = append(undos, Undo{Step: name, State: atom.State, Uninterruptible: s.Uninterruptible(), AwaitsWorker: atom.AwaitsWorker(), Reverts: reverts, Finally: s.IsFinal()})
	}
	return undos
}

// anyPermit lets every step start.
type anyPermit struct{}

func (anyPermit) obtain(string, int) (*permit, permission) { return nil, permitted }
func (anyPermit) hold(string) *permit                      { return nil }
func (anyPermit) newKeys() []string                        { return nil }
func (anyPermit) queueFor(string, int)                     {}
func (anyPermit) returnKey(string)                         {}
func (anyPermit) returnReserved() []string                 { return nil }
