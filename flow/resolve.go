package flow

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// resolver finds the source of every argument. Who comes before whom is kept
// as one bit for each pair of a vertex and a step that provides something: a
// flow of 10,000 steps needs 12 MB for the time of its compilation, and every
// question is then answered by comparing words.
type resolver struct {
	compiler  *compiler
	before    []bitset // by vertex: the providers that must have finished before it
	column    []int    // by step: its bit; -1 if it provides nothing
	providers map[string][]provider
	masks     map[string]bitset // by symbol, of those that have several providers
}

type provider struct {
	step  int
	field string
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
	for number, step := range p.steps {
		p.wires[number] = r.wires(number, step.requires, "")
		switch _, ok := step.Reverter(); {
		case ok && step.revertRequires == nil:
			p.reverts[number] = p.wires[number]
		case ok:
			p.reverts[number] = r.wires(number, step.revertRequires, " to be reverted")
		}
	}
	for number := range p.consumed {
		slices.Sort(p.consumed[number])
		p.consumed[number] = slices.Compact(p.consumed[number])
	}
}

func newResolver(c *compiler) *resolver {
	r := &resolver{compiler: c, providers: make(map[string][]provider), masks: make(map[string]bitset)}
	r.column = make([]int, c.plan.Len())
	columns := 0
	for number, step := range c.plan.steps {
		r.column[number] = -1
		if len(step.provides) > 0 {
			r.column[number] = columns
			columns++
		}
		for _, provision := range step.provides {
			r.providers[provision.Symbol] = append(r.providers[provision.Symbol], provider{step: number, field: provision.Field})
		}
	}
	words := (columns + 63) / 64
	r.reach(words)
	for symbol, list := range r.providers {
		if len(list) > 1 {
			mask := make(bitset, words)
			for _, each := range list {
				mask.set(r.column[each.step])
			}
			r.masks[symbol] = mask
		}
	}
	return r
}

// reach fills in who comes before whom, from front to back.
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
			if v < p.Len() && r.column[v] >= 0 {
				r.before[w].set(r.column[v])
			}
			if waiting[w]--; waiting[w] == 0 {
				ready = append(ready, int(w))
			}
		}
	}
}

func (r *resolver) wires(step int, arguments []Argument, purpose string) []Wire {
	var list []Wire
	p := r.compiler.plan
	for _, argument := range arguments {
		wire := Wire{Argument: argument, From: FromNowhere}
		if _, own := p.steps[step].Injected(argument.Name); own {
			wire.From = FromStep
			list = append(list, wire)
			continue
		}
		found, ok := r.nearest(step, argument)
		switch {
		case ok:
			wire.From, wire.Field = found.step, found.field
			if wire.Field != "" && !wire.Optional {
				p.consumed[found.step] = append(p.consumed[found.step], wire.Field)
			}
		case p.inputs[argument.Symbol]:
			wire.From = FromStore
		case !argument.Optional:
			r.compiler.fault(ErrMissing, "step %q requires %s%s, which nothing before it provides and the store does not hold",
				p.steps[step].name, described(argument), purpose)
		}
		list = append(list, wire)
	}
	return list
}

// nearest finds the provider that must have finished before the step and that
// comes after all other such.
func (r *resolver) nearest(step int, argument Argument) (provider, bool) {
	list := r.providers[argument.Symbol]
	for i := len(list) - 1; i >= 0; i-- {
		if !r.before[step].has(r.column[list[i].step]) {
			continue
		}
		// Steps are numbered in topological order: none that comes later in
		// the list comes before this one, so this one is nearest or nobody is.
		if rival, ok := r.rival(step, list[i].step, argument.Symbol); ok {
			names := []string{r.compiler.plan.steps[rival].name, r.compiler.plan.steps[list[i].step].name}
			r.compiler.fault(ErrAmbiguous, "step %q requires %s, which steps %s provide, neither after the other",
				r.compiler.plan.steps[step].name, described(argument), strings.Join(names, " and "))
		}
		return list[i], true
	}
	return provider{}, false
}

// rival finds another visible provider that does not come before the chosen one.
func (r *resolver) rival(step, chosen int, symbol string) (int, bool) {
	for i, word := range r.masks[symbol] {
		left := word & r.before[step][i] &^ r.before[chosen][i]
		if own := r.column[chosen]; own/64 == i {
			left &^= 1 << (own % 64)
		}
		if left != 0 {
			column := i*64 + bits.TrailingZeros64(left)
			return slices.Index(r.column, column), true
		}
	}
	return 0, false
}

func described(argument Argument) string {
	if argument.Name == argument.Symbol {
		return `"` + argument.Name + `"`
	}
	return `"` + argument.Symbol + `" (as its argument "` + argument.Name + `")`
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
