package engine

import (
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// Undo is a step that a revert undoes.
type Undo struct {
	Step string
	// State is that of the step now. A step that is running is interrupted first, or finishes
	// first if it is Uninterruptible.
	State           logbook.AtomState
	Uninterruptible bool
	// Reverts: the revert of the step is called. Otherwise it has none, or no execution has begun,
	// and it counts as undone at once.
	Reverts bool
}

// PlanRevert returns what a revert of a flow that has not ended would undo now, in the order
// in which one worker would. It decides as Run does, with reverts that all succeed, and calls
// no task. Of the options it takes Plan, Detail, Store and Limits.
//
// ErrMismatch, ErrPinned, ErrChanged and flow.ErrMissing as Run returns them.
func PlanRevert(o Options) ([]Undo, error) {
	o = o.withDefaults()
	if o.Detail.State.Finished() {
		return nil, nil
	}
	revision, err := revise(&o)
	if err != nil {
		return nil, fmt.Errorf("cannot plan the revert of flow %s: %w", o.Detail.ID, err)
	}
	if err := o.grow(); err != nil {
		return nil, fmt.Errorf("cannot plan the revert of flow %s: %w", o.Detail.ID, revision.explain(err))
	}
	missing := addMissingMarks(&o, o.Now())
	var order []string
	o.Observe = func(e Event) {
		if e.State == logbook.AtomReverted {
			order = append(order, e.Step)
		}
	}
	c, err := newCore(&o, revision, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot plan the revert of flow %s: %w", o.Detail.ID, err)
	}
	missing.write(c.out)
	c.revertAll(&o)
	return c.undos(&o.Detail, order), nil
}

// revertAll reverts the flow as if every revert succeeded at once.
func (c *core) revertAll(o *Options) {
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
func (c *core) undos(detail *logbook.FlowDetail, order []string) []Undo {
	var undos []Undo
	for _, name := range order {
		step, found := c.plan.Find(name)
		if !found || c.plan.Step(step).Task() == nil {
			continue
		}
		s := c.plan.Step(step)
		_, reverts := s.Reverter()
		reverts = reverts && c.vertices[step].touched
		atom, _ := detail.Atom(name)
		undos = append(undos, Undo{Step: name, State: atom.State, Uninterruptible: s.Uninterruptible(), Reverts: reverts})
	}
	return undos
}

// anyPermit lets every step start.
type anyPermit struct{}

func (anyPermit) obtain(string, int) (*permit, permission) { return nil, permitted }
func (anyPermit) newKeys() []string                        { return nil }
func (anyPermit) queueFor(string, int)                     {}
func (anyPermit) returnKey(string)                         {}
func (anyPermit) returnReserved() []string                 { return nil }
