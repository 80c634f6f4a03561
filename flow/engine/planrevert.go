package engine

import (
	"fmt"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Undo is a step that a revert undoes.
type Undo struct {
	Step string
	// State is the step's present state. A running step is interrupted first, or finishes first
	// if it is Uninterruptible.
	State           logbook.AtomState
	Uninterruptible bool
	// AwaitsWorker: no worker has taken the step. Its offer is withdrawn first.
	AwaitsWorker bool
	// Reverts is true if the revert of the step is called. Otherwise the step counts as undone
	// at once, because it has no revert or no execution has begun.
	Reverts bool
}

// PlanRevert returns the steps that a revert of an unfinished flow would undo now, in the order
// in which one worker would undo them. It decides as Run does, assumes that all reverts succeed,
// and calls no task. It uses only the options Plan, Detail, Store and Limits.
//
// Errors: ErrMismatch, ErrPinned, ErrChanged and flow.ErrMissing, as from Run.
func PlanRevert(o Options) ([]Undo, error) {
	o = o.withDefaults()
	if o.Detail.State.Finished() {
		return nil, nil
	}
	_, undos, err := o.foresee()
	if err != nil {
		return nil, fmt.Errorf("cannot plan the revert of flow %s: %w", o.Detail.ID, err)
	}
	return undos, nil
}

// Execution is a step that a flow executes when it goes forwards.
type Execution struct {
	Step  string
	Again bool // it has been executed before
}

// PlanIntervention returns the steps that a flow executes after an intervention, in the order of
// the plan, or the steps that it undoes. Pending interventions are carried out first. Deciders
// can still leave out some executions. An intervention that cannot be carried out is an error.
// See PlanRevert.
func PlanIntervention(o Options, i logbook.Intervention) ([]Execution, []Undo, error) {
	o = o.withDefaults()
	_, err := o.Detail.Admit(&i)
	if err == nil {
		i.Hold, i.Token = false, o.Detail.Fence
		for _, pending := range o.Detail.Pending() {
			i.Token = pending.Token
		}
		i.Token.Index++
		o.Detail.Interventions = append(slices.Clip(o.Detail.Interventions), i)
		var executions []Execution
		var undos []Undo
		if executions, undos, err = o.foresee(); err == nil {
			return executions, undos, nil
		}
	}
	return nil, nil, fmt.Errorf("cannot plan an intervention in flow %s: %w", o.Detail.ID, err)
}

// foresee returns what Run would do to a flow if every call succeeded: executions if interventions
// send the flow forwards, otherwise undos.
func (o *Options) foresee() ([]Execution, []Undo, error) {
	revision, err := revise(o)
	if err != nil {
		return nil, nil, err
	}
	if err := o.grow(); err != nil {
		return nil, nil, revision.explain(err)
	}
	work, refusal, err := intervene(o, o.Now())
	if refusal != nil {
		return nil, nil, refusal
	}
	if err != nil {
		return nil, nil, revision.explain(err)
	}
	if work != nil && work.to == logbook.FlowRunning {
		if err := o.grow(); err != nil { // an opening may run again, without its instances
			return nil, nil, revision.explain(err)
		}
		return o.executions(), nil, nil
	}
	missing := addMissingMarks(o, o.Now())
	var order []string
	o.Observe = func(e Event) {
		if e.State == logbook.AtomReverted {
			order = append(order, e.Step)
		}
	}
	c, err := newCore(o, revision, work)
	if err != nil {
		return nil, nil, err
	}
	missing.write(c.out)
	order = nil // without what an operator has skipped
	revertAll(c, o)
	return nil, c.undos(&o.Detail, order), nil
}

// executions are the steps without a valid result.
func (o *Options) executions() (executions []Execution) {
	atoms := make(map[string]*logbook.AtomDetail, len(o.Detail.Atoms))
	for i := range o.Detail.Atoms {
		atoms[o.Detail.Atoms[i].Name] = &o.Detail.Atoms[i]
	}
	for _, step := range o.Plan.Steps() {
		atom := atoms[step.Name()]
		if step.IsRetry() || atom != nil && (atom.State == logbook.AtomSuccess || atom.State == logbook.AtomIgnored) {
			continue
		}
		executions = append(executions, Execution{Step: step.Name(), Again: atom != nil && atom.Number(logbook.ActionExecute) > 0})
	}
	return executions
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
		atom, _ := detail.Atom(name)
		undos = append(undos, Undo{Step: name, State: atom.State, Uninterruptible: s.Uninterruptible(), AwaitsWorker: atom.AwaitsWorker(), Reverts: reverts})
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
