package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// maxGathered bounds the list that an each gathers for later steps. One message of the logbook
// holds as much.
const maxGathered = 4 << 20

// grownPlan adds the recorded instances to a plan: the instances of every opening that has
// taken its list and was not reset since.
func grownPlan(plan *flow.Plan, atoms []logbook.AtomDetail) (*flow.Plan, error) {
	if plan == nil || !plan.Grows() {
		return plan, nil
	}
	elements := make(map[string]int)
	for i := range atoms {
		state := atoms[i].State
		if atoms[i].Kind != logbook.KindEach || state != logbook.AtomSuccess && state != logbook.AtomReverting && state != logbook.AtomReverted {
			continue
		}
		last, ok := atoms[i].Last(logbook.ActionExecute)
		if !ok || !last.Ended() || last.Failure != nil {
			continue
		}
		list, err := elementsOf(last.Result)
		if err != nil {
			return nil, fmt.Errorf("%w: atom %q: %w", ErrMismatch, atoms[i].Name, err)
		}
		elements[atoms[i].Name] = len(list)
	}
	grown, err := plan.Grown(elements)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return grown, nil
}

// grow replaces the plan by the grown plan of the record.
func (o *Options) grow() (err error) {
	o.Plan, err = grownPlan(o.Plan, o.Detail.Atoms)
	return err
}

// elementsOf parses a list.
func elementsOf(list json.RawMessage) ([]json.RawMessage, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil || elements == nil {
		return nil, errors.New("its list is not a JSON array")
	}
	if len(elements) > flow.MaxElements {
		return nil, fmt.Errorf("its list has %d elements; the limit is %d", len(elements), flow.MaxElements)
	}
	return elements, nil
}

// loadAbsent loads the atom of an instance that the plan lacks because the list was longer in
// an earlier round. The atom is kept: in a later round the list may be longer again.
func (l *loader) loadAbsent(atom *logbook.AtomDetail) error {
	step, ok := l.plan.Instantiated(atom.Name)
	switch {
	case !ok:
		return errors.New("the flow has no such step")
	case atom.Kind != step.Kind():
		return fmt.Errorf("it is recorded as a %s, but the flow has a %s of this name", atom.Kind, step.Kind())
	case atom.State != logbook.AtomPending && atom.State != logbook.AtomReverted && atom.State != logbook.AtomIgnored:
		return fmt.Errorf("it is %s, and the list of its loop has no such element", atom.State)
	}
	if _, twice := l.absent[atom.Name]; twice {
		return errors.New("it is recorded twice")
	}
	v := vertex{phase: unbegun, intention: atom.Intention, record: recorded}
	switch atom.State {
	case logbook.AtomReverted:
		v.phase = undone
	case logbook.AtomIgnored:
		v.phase = ignored
	}
	past, err := l.loadAttempts(&v, atom)
	if err != nil {
		return err
	}
	if err := v.checkVersion(atom, step, past); err != nil {
		return err
	}
	l.keepAbsent(atom.Name, v)
	return nil
}

func (c *core) keepAbsent(name string, v vertex) {
	if c.absent == nil {
		c.absent = make(map[string]vertex)
	}
	c.absent[name] = v
}

// open takes the lists of all ready openings, and releases the vertices after them. All
// openings grow the plan in one pass, because each growth costs time in proportion to the
// flow's size.
func (c *core) open(first int, now time.Time) {
	openings := append([]int{first}, c.ready.take(func(step int) bool { return c.plan.Step(step).IsEach() })...)
	budget := c.limits.Steps - c.plan.Len() - len(c.absent)
	var taken []int
	for _, step := range openings {
		// An earlier one may have failed and reverted the flow.
		if c.reverting || c.broken || c.restartingScope(step) >= 0 {
			continue
		}
		c.takeList(step, &budget, now)
		taken = append(taken, step)
	}
	elements, names := maps.Clone(c.plan.Elements()), []string(nil)
	changed := false
	for _, step := range taken {
		if v := &c.vertices[step]; v.phase != succeeded || v.intention != logbook.IntendExecute {
			continue
		}
		name, n := c.plan.Step(step).Name(), len(c.elements(step))
		changed = changed || elements[name] != n
		elements[name] = n
		names = append(names, name)
	}
	if changed {
		c.grow(elements, now)
	}
	for _, name := range names {
		step, _ := c.plan.Find(name)
		if v := &c.vertices[step]; v.phase == succeeded && v.intention == logbook.IntendExecute {
			c.release(step, now)
		}
	}
}

// takeList makes the one attempt at an opening, if the flow has room for the new steps. The
// attempt has no effects outside, so its mark need not be durable first.
func (c *core) takeList(step int, budget *int, now time.Time) {
	delete(c.taken, c.plan.Step(step).Name())
	c.executeHere(step, now)
	list, err := c.listFor(step, budget)
	failure := flow.FailureOf(err)
	if failure != nil {
		failure.Kind, failure.Permanent = logbook.FailureArgument, true
	}
	c.finish(outcome{step: step, result: list, failure: failure, ended: now}, now)
}

// listFor is the list of an opening, checked. Its new steps are subtracted from budget.
func (f *facts) listFor(step int, budget *int) (json.RawMessage, error) {
	arguments, failure := f.arguments(step, logbook.ActionExecute)
	if failure != nil {
		return nil, failure
	}
	list := arguments[f.plan.Arguments(step)[0].Name]
	elements, err := elementsOf(list)
	if err != nil {
		return nil, err
	}
	if err := f.limits.CheckValue("list", list); err != nil {
		return nil, err
	}
	need := 0
	for i := range elements {
		for _, name := range f.plan.Instance(step, i) {
			_, present := f.plan.Find(name)
			if _, kept := f.absent[name]; !present && !kept {
				need++
			}
		}
		if need > *budget {
			return nil, fmt.Errorf("with the %d elements of its list, the flow would have more steps than the limit, %d", len(elements), f.limits.Steps)
		}
	}
	if err := f.checkEnough(step, len(elements)); err != nil {
		return nil, err
	}
	*budget -= need
	return list, nil
}

// elements are the elements of an opening that has taken its list.
func (f *facts) elements(step int) []json.RawMessage {
	name := f.plan.Step(step).Name()
	elements, known := f.taken[name]
	if !known {
		elements, _ = elementsOf(f.vertices[step].result) // which was checked when it was taken, or loaded
		if f.taken == nil {
			f.taken = make(map[string][]json.RawMessage)
		}
		f.taken[name] = elements
	}
	return elements
}

// grow replaces the plan by a plan for other numbers of elements. It works like a resume: the
// state of each step moves by name, and everything else is derived again. A step after an
// opening starts only after its release, so the steps that leave the plan have not started.
func (c *core) grow(elements map[string]int, now time.Time) {
	old := c.plan
	plan, err := old.Grown(elements)
	if err != nil {
		panic("internal error: the flow cannot grow: " + err.Error()) // listFor has counted the steps
	}
	to := make([]int, old.Len())
	for step, s := range old.Steps() {
		number, ok := plan.Find(s.Name())
		if to[step] = number; !ok {
			to[step] = -1
		}
	}
	decided := make(map[flow.ChoiceID]bool)
	for i := range old.Choices() {
		if choice := &old.Choices()[i]; c.order[choice.Gate].released {
			decided[choice.ID()] = true
		}
	}
	begun := c.begunTurns()
	c.plan, c.lists, c.lacking = plan, nil, nil
	adopted := c.moveVertices(old, to)
	c.moveScopes(old, to)
	c.renumber(plan, to)
	c.out.renumber(plan, to)
	c.order.count(plan, func(vertex int) bool {
		if place, ok := plan.TurnAt(vertex); ok && place.Begins {
			turns := &plan.Turns()[place.Turns]
			return begun[c.turnID(turns, place.Element)] || c.hasTurn(&turns.Elements[place.Element])
		}
		if !c.passesGroup(vertex) {
			return false
		}
		choice, decides := plan.ChoiceAt(vertex)
		return c.order[vertex].released || vertex >= plan.Len() && (!decides || decided[plan.Choices()[choice].ID()])
	})
	for s := range c.scopes {
		if c.scopes[s].restarting {
			c.order.countUndone(plan, &plan.Scopes()[s], c.isUndone)
		}
	}
	c.recountDropped()
	for _, step := range adopted {
		c.resetStep(step, now)
	}
}

// moveVertices moves the states of the steps to the new plan. It returns the steps
// that were absent since an earlier round. Gates start from scratch.
func (c *core) moveVertices(old *flow.Plan, to []int) (adopted []int) {
	vertices, order := newVertices(c.plan), newOrder(c.plan)
	for step, number := range to {
		switch v := c.vertices[step]; {
		case number >= 0:
			vertices[number], order[number].released = v, c.order[step].released
		case v.record != unrecorded:
			c.keepAbsent(old.Step(step).Name(), v)
		}
	}
	if len(c.absent) > 0 {
		for step := range c.plan.Len() {
			name := c.plan.Step(step).Name()
			if former, ok := c.absent[name]; ok {
				if former.phase == ignored {
					c.done++ // as of all steps in the plan, until it is set back
				}
				former.attempt = nil
				vertices[step] = former
				adopted = append(adopted, step)
				delete(c.absent, name)
			}
		}
	}
	c.vertices, c.order, c.turnCounts = vertices, order, nil
	return adopted
}

func (c *core) moveScopes(old *flow.Plan, to []int) {
	scopes := make([]scope, len(c.plan.Scopes()))
	for i := range c.scopes {
		number := to[old.Scopes()[i].Retry]
		if number < 0 {
			continue
		}
		moved := c.scopes[i]
		for j, step := range moved.failed {
			moved.failed[j] = to[step]
		}
		s, _ := c.plan.ScopeOf(number)
		scopes[s] = moved
	}
	c.scopes = scopes
}

// numberOf converts a step number of an earlier plan of this run.
func (f *facts) numberOf(plan *flow.Plan, step int) int {
	if plan == f.plan {
		return step
	}
	number, ok := f.plan.Find(plan.Step(step).Name())
	if !ok {
		panic("internal error: step " + plan.Step(step).Name() + " runs, and has left the flow")
	}
	return number
}

// gathered returns the list of the values that the instances of an each provide; false if the
// each was ignored or the list is too large.
func (f *facts) gathered(g *flow.Gathered) (json.RawMessage, bool) {
	if f.vertices[g.Each].phase != succeeded {
		return nil, false
	}
	if list, ok := f.lists[g]; ok {
		return list, true
	}
	if g.Failures {
		return f.failuresOf(g)
	}
	list := json.RawMessage("[")
	for i := range g.Items {
		if i > 0 {
			list = append(list, ',')
		}
		item, ok := f.value(&g.Items[i])
		if !ok {
			item = null
		}
		if list = append(list, item...); len(list) > maxGathered {
			return nil, false
		}
	}
	list = append(list, ']')
	if f.lists == nil {
		f.lists = make(map[*flow.Gathered]json.RawMessage)
	}
	f.lists[g] = list
	return list, true
}

// indexValue is the index of an instance, as its steps get it.
func indexValue(index int) json.RawMessage { return strconv.AppendInt(nil, int64(index), 10) }

// part is the index or the element that an opening provides to one instance.
func (f *facts) part(wire *flow.Wire) (json.RawMessage, bool) {
	if wire.Part == flow.PartIndex {
		return indexValue(wire.Index), true
	}
	elements := f.elements(wire.From)
	if wire.Index >= len(elements) {
		return nil, false
	}
	return elements[wire.Index], true
}
