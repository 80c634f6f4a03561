package tree

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// reference is an argument, or a value inside one, in a label.
var reference = regexp.MustCompile(`\{[^{}]*\}`)

// WorkerLabels returns the work of a worker step with its labels as the worker must have them: with the values
// of arguments. A label stays as it was written if the record lacks its value.
func WorkerLabels(work flow.WorkerStep, plan *flow.Plan, detail *logbook.FlowDetail, step string) flow.WorkerStep {
	base := step
	if name, is := baseOf(step); is {
		base = name
	}
	number, known := 0, false
	if plan != nil {
		plan = plan.Template()
		number, known = plan.Find(base)
	}
	if !known {
		return work
	}
	work.Labels = slices.Clone(work.Labels)
	for i, label := range work.Labels {
		work.Labels[i] = reference.ReplaceAllStringFunc(label, func(braced string) string {
			value, err := argumentAt(plan, detail, number, placesOf(step), braced[1:len(braced)-1])
			if err != nil || value == nil {
				return braced
			}
			var text string
			if json.Unmarshal(value, &text) == nil {
				return text
			}
			return string(value)
		})
	}
	return work
}

// argumentAt is the value of a reference to an argument of a step, or of one of its instances; nil: the record
// lacks the value.
func argumentAt(plan *flow.Plan, detail *logbook.FlowDetail, step int, places []int, reference string) (json.RawMessage, error) {
	wires := plan.Arguments(step)
	named := func(name string) int {
		return slices.IndexFunc(wires, func(w flow.Wire) bool { return w.Name == name })
	}
	name, path := flow.CutPath(reference, func(name string) bool { return named(name) >= 0 })
	at := named(name)
	if at < 0 || len(wires[at].Others) > 0 {
		return nil, nil
	}
	wire := wires[at]
	value, field := detail.Store[wire.Symbol], wire.Field
	if wire.From != flow.FromStore {
		value = nil
	}
	if wire.From >= 0 && (wire.Part == flow.PartElement || wire.Part == flow.PartWhole) {
		atom, depth := instanceAround(detail, plan.Step(wire.From).Name(), places)
		if atom == nil {
			return nil, nil
		}
		value, _ = atom.Result()
		if wire.Part == flow.PartElement && depth < len(places) {
			field = strconv.Itoa(places[depth])
		}
	}
	for _, inner := range []string{field, wire.Path, path} {
		if value == nil || inner == "" {
			continue
		}
		var err error
		if value, err = flow.Inner(name, value, inner); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// instanceAround finds a step, or its instance whose indexes are a prefix of places. depth is the number
// of the instance's indexes.
func instanceAround(detail *logbook.FlowDetail, step string, places []int) (atom *logbook.AtomDetail, depth int) {
	name := step
	for depth := 0; ; depth++ {
		if atom, ok := detail.Atom(name); ok {
			return atom, depth
		}
		if depth == len(places) {
			return nil, 0
		}
		name += "[" + strconv.Itoa(places[depth]) + "]"
	}
}
