package engine

import (
	"fmt"
	"maps"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Places are the places of an each with a limit (flow.AtOnce), while instances wait for a place.
type Places struct {
	Opening string // the name of its opening
	Limit   int
	Holders []int // the instances in progress, by their index in the list
	Waiting int   // instances that start, or are undone, when another instance has ended
}

// PlacesOf returns the each loops of an unfinished flow in which instances wait for a place, in the order of the plan. It
// calls no task, and uses only the options Plan, Detail, Store and Limits. The store can lack values.
//
// Errors: ErrMismatch, ErrPinned and ErrChanged, as from Run.
func PlacesOf(o Options) ([]Places, error) {
	o = o.withDefaults()
	if o.Detail.State.Finished() || !o.Plan.Grows() {
		return nil, nil
	}
	c, err := o.loaded()
	if err != nil {
		return nil, fmt.Errorf("cannot count the places of flow %s: %w", o.Detail.ID, err)
	}
	var found []Places
	for opening := range c.plan.Len() {
		if places, waits := c.placesOf(opening); waits {
			found = append(found, places)
		}
	}
	return found, nil
}

// loaded is the core in the state of the record. Values that the store lacks are null.
func (o *Options) loaded() (*core, error) {
	revision, err := revise(o)
	if err != nil {
		return nil, err
	}
	if err := o.grow(); err != nil {
		return nil, revision.explain(err)
	}
	store := make(logbook.Values)
	for _, symbol := range o.Plan.Inputs() {
		store[symbol] = null
	}
	maps.Copy(store, o.Store)
	o.Store = store
	return newCore(o, revision, nil)
}

// placesOf reports whether all places of an each are in use, and instances wait.
func (f *facts) placesOf(opening int) (p Places, waits bool) {
	step := f.plan.Step(opening)
	if step.AtOnce() == 0 || f.vertices[opening].phase != succeeded {
		return Places{}, false
	}
	p.Opening, p.Limit = step.Name(), step.AtOnce()
	undoes := f.isBeingUndone(opening)
	for element, steps := range f.plan.Instances(opening) {
		turn := &flow.Turn{Steps: steps}
		switch {
		case undoes && f.isBusy(turn), !undoes && f.hasTurn(turn) && !f.isOver(steps):
			p.Holders = append(p.Holders, element)
		case undoes && f.isToUndo(turn), !undoes && !f.hasTurn(turn):
			p.Waiting++
		}
	}
	return p, len(p.Holders) >= p.Limit && p.Waiting > 0
}

// isOver reports whether nothing waits for a step of an instance.
func (f *facts) isOver(steps flow.Steps) bool {
	for step := steps.First; step < steps.End; step++ {
		if !f.isDone(step) {
			return false
		}
	}
	return true
}
