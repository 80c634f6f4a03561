package flow

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// resolver finds the source of every argument. before has one bit for each pair of a vertex and a
// provider, so that each lookup compares machine words. It takes 12 MB for a flow of 10,000
// steps, during compilation only.
//
// A value is visible in the instance that provides it (the flow as a whole, or one instance of
// an each) and in all instances inside. A value from an outer instance is provided before the
// each, and so before all values of an inner instance: the innermost instance wins.
type resolver struct {
	compiler  *compiler
	before    []bitset // by vertex: the providers that must have finished before it
	column    []int    // by vertex: its bit; -1 if it provides nothing
	instances []int32  // by step: the instance that contains it
	providers map[source][]provider
	masks     map[source]bitset // of symbols with several providers
	noes      *noes             // nil: not known yet
	joined    map[int]bool      // by node: it is a join
}

// source is a symbol in the instance where it is provided.
type source struct {
	instance int32
	symbol   string
}

// provider is a step, or the vertex at the end of an each that gathers.
type provider struct {
	vertex   int
	field    string
	part     Part
	index    int
	gathered *Gathered
}

type bitset []uint64

func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) or(other bitset) {
	for i, word := range other {
		b[i] |= word
	}
}

func (c *compiler) resolve() {
	p := c.plan
	r := newResolver(c)
	p.wires, p.reverts = make([][]Wire, p.Len()), make([][]Wire, p.Len())
	p.consumed = make([][]string, p.Len())
	for v, step := range c.vertices {
		if step == nil {
			continue
		}
		number := int(c.numbers[v])
		p.wires[number] = r.wires(number, c.instanceOf[v], step.requires, "")
		switch _, ok := step.Reverter(); {
		case ok && step.revertRequires == nil:
			p.reverts[number] = p.wires[number]
		case ok:
			p.reverts[number] = r.wires(number, c.instanceOf[v], step.revertRequires, " to be reverted")
		}
	}
	r.answer()
	if c.sizes == nil && len(c.faults) == 0 {
		r.checkSkips()
	}
	for number := range p.consumed {
		slices.Sort(p.consumed[number])
		p.consumed[number] = slices.Compact(p.consumed[number])
	}
}

func newResolver(c *compiler) *resolver {
	r := &resolver{compiler: c, providers: make(map[source][]provider), masks: make(map[source]bitset), joined: make(map[int]bool)}
	r.column = make([]int, c.plan.Vertices())
	for v := range r.column {
		r.column[v] = -1
	}
	// Each list is in topological order: the element comes before all values of its instance,
	// and each vertex is made after the vertices that it waits for.
	r.addElements()
	closings := make(map[int]*closing, len(c.closings))
	for i := range c.closings {
		closings[int(c.closings[i].vertex)] = &c.closings[i]
	}
	lists := make(map[*closing][]*Gathered)
	r.instances = make([]int32, c.plan.Len())
	for v, step := range c.vertices {
		switch end := closings[v]; {
		case step != nil:
			r.instances[c.numbers[v]] = c.instanceOf[v]
			if step.sameWorkerAs != "" {
				r.bindWorker(int(c.numbers[v]), c.instanceOf[v])
			}
			for _, provision := range step.provides {
				r.add(c.instanceOf[v], provision.Symbol, provider{vertex: int(c.numbers[v]), field: provision.Field})
			}
			if step.ignoresFailure {
				r.add(c.instanceOf[v], FailureName(step.base()), provider{vertex: int(c.numbers[v]), part: PartFailure})
			}
		case end != nil:
			for _, g := range end.each.gathers {
				list := &Gathered{Each: int(c.numbers[end.opener])}
				lists[end] = append(lists[end], list)
				r.add(c.instanceOf[v], g.as, provider{vertex: int(c.numbers[v]), gathered: list})
			}
			if end.each.told != "" {
				r.add(c.instanceOf[v], end.each.told, provider{vertex: int(c.numbers[v]), gathered: &Gathered{Each: int(c.numbers[end.opener]), Failures: true}})
			}
		}
	}
	r.findAsked()
	r.finish()
	r.checkWorkers()
	for i := range c.closings {
		r.gather(&c.closings[i], lists[&c.closings[i]])
	}
	if c.sizes == nil && len(c.faults) == 0 {
		r.provide()
	}
	return r
}

// addElements adds the element, and the index, of an each as values of its instances.
func (r *resolver) addElements() {
	c := r.compiler
	for i := 1; i < len(c.instances); i++ {
		instance := &c.instances[i]
		if instance.span.from == instance.span.end {
			continue // it has no steps left
		}
		opening := provider{vertex: int(c.numbers[instance.opener]), part: PartElement, index: instance.index}
		r.add(int32(i), instance.each.as, opening)
		if instance.each.place != "" {
			opening.part = PartIndex
			r.add(int32(i), instance.each.place, opening)
		}
	}
}

func (r *resolver) add(instance int32, symbol string, p provider) {
	r.column[p.vertex] = 0 // numbered by finish
	at := source{instance: instance, symbol: symbol}
	r.providers[at] = append(r.providers[at], p)
}

// finish numbers the columns, and computes before and the masks.
func (r *resolver) finish() {
	columns := 0
	for v := range r.column {
		if r.column[v] == 0 {
			r.column[v] = columns
			columns++
		}
	}
	words := (columns + 63) / 64
	r.reach(words)
	for at, list := range r.providers {
		if len(list) > 1 {
			mask := make(bitset, words)
			for _, each := range list {
				mask.set(r.column[each.vertex])
			}
			r.masks[at] = mask
		}
	}
}

// gather finds the sources of the lists of an each: in every instance, the provider
// nearest to its end.
func (r *resolver) gather(end *closing, lists []*Gathered) {
	c := r.compiler
	each := fmt.Sprintf("each %q", c.vertices[end.opener].name)
	for i, g := range end.each.gathers {
		lists[i].Items = make([]Wire, 0, len(end.instances))
		for _, instance := range end.instances {
			wire := Wire{Argument: Argument{Name: g.as, Symbol: g.symbol}, From: FromNowhere}
			found, rival := r.sources(int(c.numbers[end.vertex]), source{instance: instance, symbol: g.symbol})
			switch {
			case len(found) == 0:
				c.fault(ErrMissing, "%s gathers %q, which no step inside it provides", each, g.symbol)
			case rival >= 0:
				c.fault(ErrAmbiguous, "%s gathers %q, which steps %s and %s provide without an order between them", each, g.symbol, r.nameOf(rival), r.nameOf(found[0].vertex))
			case found[0].vertex < c.plan.Len() && c.plan.steps[found[0].vertex].onError:
				c.fault(ErrInvalid, "%s gathers %q of on_error step %q, which runs only when its flow fails", each, g.symbol, r.nameOf(found[0].vertex))
			default:
				lead(&wire, found, false)
			}
			lists[i].Items = append(lists[i].Items, wire)
		}
	}
}

// lead makes the provider the source of a wire.
func (p *provider) lead(wire *Wire) {
	wire.From, wire.Field, wire.Part, wire.Index = p.vertex, p.field, p.part, p.index
	if p.gathered != nil {
		wire.From, wire.Gathered = FromEach, p.gathered
	}
}

// reach computes before, from front to back.
func (r *resolver) reach(words int) {
	p := r.compiler.plan
	r.before = make([]bitset, p.Vertices())
	waiting := make([]int, p.Vertices())
	var ready []int
	for v := range r.before {
		r.before[v] = make(bitset, words)
		if waiting[v] = len(p.previous[v]); waiting[v] == 0 {
			ready = append(ready, v)
		}
	}
	for len(ready) > 0 {
		v := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, w := range p.next[v] {
			r.before[w].or(r.before[v])
			if r.column[v] >= 0 {
				r.before[w].set(r.column[v])
			}
			if waiting[w]--; waiting[w] == 0 {
				ready = append(ready, int(w))
			}
		}
	}
}

// lead makes providers the sources of a wire, and perhaps the store after them.
func lead(wire *Wire, found []*provider, stored bool) {
	for _, p := range found[1:] {
		other := Wire{Argument: wire.Argument}
		p.lead(&other)
		wire.Others = append(wire.Others, other)
	}
	if stored {
		wire.Others = append(wire.Others, Wire{Argument: wire.Argument, From: FromStore})
	}
	found[0].lead(wire)
}

func (r *resolver) wires(step int, instance int32, arguments []Argument, purpose string) []Wire {
	var list []Wire
	p := r.compiler.plan
	for _, argument := range arguments {
		argument.Symbol, argument.Path = r.compiler.cut(argument.Symbol)
		wire := Wire{Argument: argument, From: FromNowhere}
		if _, own := p.steps[step].Injected(argument.Name); own {
			wire.From = FromStep
			list = append(list, wire)
			continue
		}
		found, stored := r.allSources(step, instance, argument, fmt.Sprintf("step %q", p.steps[step].name))
		r.checkErrorSources(step, argument, found)
		switch {
		case len(found) > MaxSources:
			r.compiler.fault(ErrTooLarge, "step %q requires %s, which more than %d steps can provide", p.steps[step].name, described(argument), MaxSources)
		case len(found) > 0:
			lead(&wire, found, stored)
			for _, provider := range found {
				if provider.field != "" && !wire.Optional {
					p.consumed[provider.vertex] = append(p.consumed[provider.vertex], provider.field)
				}
			}
			if len(found) > 1 {
				r.join(step, found)
			}
		case p.inputs[argument.Symbol]:
			wire.From = FromStore
		case !argument.Optional:
			r.compiler.fault(ErrMissing, "step %q requires %s%s, which no earlier step provides and the store does not have",
				p.steps[step].name, described(argument), purpose)
		}
		r.lateSource(step, instance, &wire)
		list = append(list, wire)
	}
	return list
}

// allSources returns the providers of an argument, nearest first: the last provider that finishes before the step,
// then the providers that replace it if it was skipped. stored: the store replaces all of them. user names the user
// of the value in errors.
func (r *resolver) allSources(step int, instance int32, argument Argument, user string) (found []*provider, stored bool) {
	for ; instance >= 0; instance = r.compiler.instances[instance].parent {
		found, rival := r.sources(step, source{instance: instance, symbol: argument.Symbol})
		if rival >= 0 {
			r.compiler.fault(ErrAmbiguous, "%s requires %s, which steps %s and %s provide without an order between them",
				user, described(argument), r.nameOf(rival), r.nameOf(found[0].vertex))
		}
		if len(found) > 0 {
			return r.outer(step, instance, argument.Symbol, found)
		}
	}
	return nil, false
}

// nearestIn returns the nearest provider within one instance. rival is another provider before the vertex that
// is not also before the nearest provider; -1: none.
func (r *resolver) nearestIn(vertex int, at source) (found *provider, rival int) {
	list := r.providers[at]
	for i := len(list) - 1; i >= 0; i-- {
		// No later provider in the list comes before this one, so either this one is the
		// nearest or there is no nearest.
		if r.before[vertex].has(r.column[list[i].vertex]) {
			return &list[i], r.rival(vertex, []*provider{&list[i]}, at)
		}
	}
	return nil, -1
}

// rival returns a provider before the vertex that is neither among the found ones nor before the
// first of them; -1: none.
func (r *resolver) rival(vertex int, found []*provider, at source) int {
	for i, word := range r.masks[at] {
		left := word & r.before[vertex][i] &^ r.before[found[0].vertex][i]
		for _, p := range found {
			if own := r.column[p.vertex]; own/64 == i {
				left &^= 1 << (own % 64)
			}
		}
		if left != 0 {
			return slices.Index(r.column, i*64+bits.TrailingZeros64(left))
		}
	}
	return -1
}

// nameOf is the name of a provider: its step, or the each that gathers.
func (r *resolver) nameOf(vertex int) string {
	if vertex < r.compiler.plan.Len() {
		return r.compiler.plan.steps[vertex].name
	}
	for i := range r.compiler.closings {
		if end := &r.compiler.closings[i]; int(r.compiler.numbers[end.vertex]) == vertex {
			return r.compiler.vertices[end.opener].name
		}
	}
	panic("internal error: a gate provides something")
}

func described(argument Argument) string {
	if argument.Name == argument.Reference() {
		return `"` + argument.Name + `"`
	}
	return `"` + argument.Reference() + `" (as its argument "` + argument.Name + `")`
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
