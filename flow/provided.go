package flow

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// provide records in the template the values that the flow as a whole provides. The definition keeps
// it, so that results can be read without the flow's code.
func (r *resolver) provide() {
	p := r.compiler.plan
	p.provided = make(map[int][]logbook.DefinedValue)
	for at, list := range r.providers {
		if at.instance != 0 {
			continue
		}
		list = slices.DeleteFunc(slices.Clone(list), func(p provider) bool { return p.isFailure() })
		slices.SortFunc(list, func(a, b provider) int { return cmp.Compare(a.step(), b.step()) })
		for i := range list {
			value := logbook.DefinedValue{Symbol: at.symbol, Beside: r.beside(list[:i], &list[i], r.masks[at])}
			if list[i].gathered != nil {
				value.Each = p.sourceOf(&list[i].gathered.Items[0])
			} else {
				value.Field = list[i].field
			}
			step := list[i].step()
			p.provided[step] = append(p.provided[step], value)
		}
	}
	for _, values := range p.provided {
		slices.SortFunc(values, func(a, b logbook.DefinedValue) int { return cmp.Compare(a.Symbol, b.Symbol) })
	}
}

// isFailure reports whether the provider gives a failure, or a list of failures. They are no results.
func (p *provider) isFailure() bool {
	wire := Wire{Part: p.part, Gathered: p.gathered}
	for wire.Gathered != nil && !wire.Gathered.Failures {
		wire = wire.Gathered.Items[0]
	}
	return wire.Part == PartFailure || wire.Gathered != nil
}

// sourceOf is the source of the value of a wire in the template.
func (p *Plan) sourceOf(wire *Wire) *logbook.DefinedSource {
	var source *logbook.DefinedSource
	sources := wire.Sources()
	for i := len(sources) - 1; i >= 0; i-- {
		wire, next := &sources[i], source
		if wire.From == FromEach {
			source = &logbook.DefinedSource{Step: p.steps[wire.Gathered.Each].name, Each: p.sourceOf(&wire.Gathered.Items[0])}
		} else {
			source = &logbook.DefinedSource{Step: p.steps[wire.From].name, Field: wire.Field, Element: wire.Part == PartElement, Index: wire.Part == PartIndex}
		}
		source.Else = next
	}
	return source
}

// step is the step of the provider; of a list, the opening of its each.
func (p *provider) step() int {
	if p.gathered != nil {
		return p.gathered.Each
	}
	return p.vertex
}

// beside are the earlier providers of a symbol that can still run when this provider runs.
func (r *resolver) beside(earlier []provider, p *provider, mask bitset) []string {
	others := 0
	for i, word := range mask {
		others += bits.OnesCount64(word & r.before[p.vertex][i])
	}
	var names []string
	for i := 0; i < len(earlier) && others < len(earlier); i++ {
		switch {
		case r.before[p.vertex].has(r.column[earlier[i].vertex]):
		case len(names) == logbook.MaxBeside:
			return []string{logbook.BesideAny}
		default:
			names = append(names, r.nameOf(earlier[i].vertex))
		}
	}
	return names
}
