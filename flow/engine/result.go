package engine

import (
	"encoding/json"
	"slices"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// recordedResults are the results in the record of a flow that is not running.
type recordedResults struct {
	plan  *flow.Plan
	found map[int]json.RawMessage // by number: of what has succeeded, retries and openings included
	done  map[int]bool            // those, and what was ignored
}

// results collects results by step and by symbol.
func results(plan *flow.Plan, atoms []logbook.AtomDetail) (steps, symbols logbook.Values) {
	steps, symbols = make(logbook.Values), make(logbook.Values)
	o := &recordedResults{plan: plan, found: make(map[int]json.RawMessage, len(atoms)), done: make(map[int]bool, len(atoms))}
	providers := make(map[string][]int)
	for i := range atoms {
		number, ok := plan.Find(atoms[i].Name)
		if !ok {
			continue // of an instance of an earlier round
		}
		o.done[number] = isDone(atoms[i].State)
		result, succeeded := atoms[i].Result()
		if !succeeded || atoms[i].State != logbook.AtomSuccess {
			continue
		}
		o.found[number] = result
		if atoms[i].Kind == logbook.KindTask {
			steps[atoms[i].Name] = result
		}
		if !plan.Outermost(number) {
			continue
		}
		for _, provision := range plan.Step(number).Provides() {
			providers[provision.Symbol] = append(providers[provision.Symbol], number)
		}
	}
	for i := range plan.Gatherings() {
		if g := &plan.Gatherings()[i]; o.complete(g) {
			providers[g.Symbol] = append(providers[g.Symbol], g.Gate)
		}
	}
	for symbol, vertices := range providers {
		if value, ok := o.provided(symbol, vertices); ok {
			symbols[symbol] = value
		}
	}
	return steps, symbols
}

// complete reports whether an each has run and all its instances are done.
func (o *recordedResults) complete(g *flow.Gathering) bool {
	if _, opened := o.found[g.List.Each]; !opened {
		return false
	}
	seen := map[int]bool{g.List.Each: true}
	stack := []int{g.Gate}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, previous := range o.plan.Previous(top) {
			v := int(previous)
			if seen[v] {
				continue
			}
			if seen[v] = true; v < o.plan.Len() && !o.done[v] {
				return false
			}
			stack = append(stack, v)
		}
	}
	return true
}

// provided is the value of a symbol, from the provider that comes after all others.
func (o *recordedResults) provided(symbol string, vertices []int) (json.RawMessage, bool) {
	last, ok := lastOf(o.plan, vertices)
	if !ok {
		return nil, false
	}
	if last >= o.plan.Len() {
		for i := range o.plan.Gatherings() {
			if g := &o.plan.Gatherings()[i]; g.Gate == last && g.Symbol == symbol {
				return o.gathered(g.List)
			}
		}
	}
	return provided(o.plan.Step(last), symbol, o.found[last])
}

func (o *recordedResults) gathered(list *flow.Gathered) (json.RawMessage, bool) {
	values := make([]json.RawMessage, len(list.Items))
	for i := range list.Items {
		value, ok := o.value(&list.Items[i])
		if !ok {
			value = null
		}
		values[i] = value
	}
	encoded, err := json.Marshal(values)
	return encoded, err == nil
}

// value is the value that a wire carries.
func (o *recordedResults) value(wire *flow.Wire) (json.RawMessage, bool) {
	if wire.From == flow.FromEach {
		return o.gathered(wire.Gathered)
	}
	result, ok := o.found[wire.From]
	switch {
	case !ok:
		return nil, false
	case wire.Part == flow.PartIndex:
		return indexValue(wire.Index), true
	case wire.Part == flow.PartElement:
		elements, err := elementsOf(result)
		if err != nil || wire.Index >= len(elements) {
			return nil, false
		}
		return elements[wire.Index], true
	}
	return fieldOf(result, wire.Field)
}

// lastOf returns the provider that comes after all the others. Step numbers are an
// order in which the steps could run, so among steps it can only be the highest.
// Providers that gather are gates, and there are few of them.
func lastOf(plan *flow.Plan, vertices []int) (int, bool) {
	candidates := slices.DeleteFunc(slices.Clone(vertices), func(v int) bool { return v < plan.Len() })
	if steps := slices.DeleteFunc(slices.Clone(vertices), func(v int) bool { return v >= plan.Len() }); len(steps) > 0 {
		candidates = append(candidates, slices.Max(steps))
	}
	for _, last := range candidates {
		if len(vertices) == 1 || isAfterAll(plan, last, vertices) {
			return last, true
		}
	}
	return 0, false
}

func isAfterAll(plan *flow.Plan, last int, vertices []int) bool {
	before := make(map[int]bool)
	stack := []int{last}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, previous := range plan.Previous(top) {
			if v := int(previous); !before[v] {
				before[v] = true
				stack = append(stack, v)
			}
		}
	}
	return !slices.ContainsFunc(vertices, func(v int) bool { return v != last && !before[v] })
}

func provided(step *flow.Step, symbol string, result json.RawMessage) (json.RawMessage, bool) {
	for _, provision := range step.Provides() {
		if provision.Symbol == symbol {
			return fieldOf(result, provision.Field)
		}
	}
	return nil, false
}

func fieldOf(result json.RawMessage, field string) (json.RawMessage, bool) {
	if field == "" {
		return result, true
	}
	var fields logbook.Values
	if err := json.Unmarshal(result, &fields); err != nil {
		return nil, false // nobody requires the field, or the step would have failed
	}
	value, ok := fields[field]
	return value, ok
}
