package flow

import (
	"fmt"
	"slices"
	"strings"
)

// MaxSources limits the sources of one argument: a plan keeps them for each step that requires
// the value.
const MaxSources = 100

// join is a step or a flow that requires a value with several earlier providers. A no that spreads through one provider
// stops at the join while another provider is not ignored: see Plan.spread.
type join struct{ part Scope }

// spread returns the steps that a no ignores, in order. It visits what the no reaches from front
// to back: all providers of a join come before it.
func (p *Plan) spread(choice int, depth Depth, ignored func(step int) bool) []int {
	s := &spread{plan: p, before: ignored, now: make([]bool, p.Len())}
	c := &p.choices[choice]
	if depth == DepthAll {
		s.vertices(c)
	} else {
		s.children(c, depth)
	}
	var steps []int
	for step, now := range s.now {
		if now {
			steps = append(steps, step)
		}
	}
	return p.withoutLate(steps)
}

// spread finds the steps that a no ignores.
type spread struct {
	plan   *Plan
	before func(step int) bool // it was ignored by an earlier no
	now    []bool              // by step: this no ignores it
}

// vertices spreads to everything downstream of the choice.
func (s *spread) vertices(c *Choice) {
	p := s.plan
	_, reached := p.behind(c)
	slices.SortFunc(reached, func(a, b int) int { return int(p.made[a] - p.made[b]) })
	passed := make([]bool, len(p.next))
	passed[c.Gate] = true
	for _, v := range reached {
		passed[v] = slices.ContainsFunc(p.previous[v], func(previous int32) bool { return passed[previous] })
		for _, j := range p.joinedAt[v] {
			passed[v] = passed[v] && !s.spares(&p.joins[j].part)
		}
		if v < p.Len() {
			passed[v] = passed[v] || s.lacks(v, &Scope{Retry: v, End: v + 1}) || s.lacksRetry(v)
			s.now[v] = passed[v]
		}
	}
}

// lacksRetry reports whether the retry around a step is ignored. The step is ignored with it, even if the step has
// another provider: nothing could decide about its failure.
func (s *spread) lacksRetry(step int) bool {
	for scope := s.plan.Governor(step); scope >= 0; scope = s.plan.scopes[scope].Parent {
		if s.now[s.plan.scopes[scope].Retry] {
			return true
		}
	}
	return false
}

// children spreads to the children of the graph, each as a whole.
func (s *spread) children(c *Choice, depth Depth) {
	graph := c.graph
	s.ignore(graph.places[c.child])
	passed := map[int]bool{c.child: true}
	others := slices.Clone(c.reached(depth))
	slices.SortFunc(others, func(a, b int) int { return graph.places[a].First - graph.places[b].First })
	for _, child := range others {
		place := graph.places[child]
		part := &Scope{Retry: place.First, End: place.End}
		reached := false
		for from := range passed {
			reached = reached || slices.Contains(graph.next[from], child)
		}
		joined := slices.ContainsFunc(s.plan.joins, func(j join) bool { return j.part.Retry == place.First && j.part.End == place.End })
		if reached && !(joined && s.spares(part)) || s.lacksAny(part) {
			passed[child] = true
			s.ignore(place)
		}
	}
}

func (s *spread) ignore(steps Steps) {
	for step := steps.First; step < steps.End; step++ {
		s.now[step] = true
	}
}

// spares reports whether a part stays although the no has reached it: one of its arguments, or a
// value by which it is decided, has lost a provider and has another, and no required argument has lost all.
func (s *spread) spares(part *Scope) bool {
	spared := false
	for step := part.Retry; step < part.End; step++ {
		if s.lacks(step, part) {
			return false
		}
		spared = spared || s.any(step, func(wire *Wire) bool {
			lost, left := s.count(wire, part)
			return lost && left
		})
		for i := range s.plan.asked[step] {
			lost, left := s.count(&s.plan.asked[step][i], part)
			spared = spared || lost && left
		}
	}
	return spared
}

// lacks reports whether this no has taken the last provider of a value that a step of a part
// requires from outside it.
func (s *spread) lacks(step int, part *Scope) bool {
	return s.any(step, func(wire *Wire) bool {
		lost, left := s.count(wire, part)
		return lost && !left && !wire.Optional
	})
}

func (s *spread) lacksAny(part *Scope) bool {
	for step := part.Retry; step < part.End; step++ {
		if s.lacks(step, part) {
			return true
		}
	}
	return false
}

func (s *spread) any(step int, is func(wire *Wire) bool) bool {
	for _, wires := range [][]Wire{s.plan.wires[step], s.plan.reverts[step]} {
		for i := range wires {
			if is(&wires[i]) {
				return true
			}
		}
	}
	return false
}

// count reports whether this no ignores a provider of an argument, and whether a provider is left.
// The store is no provider: its value is a default.
func (s *spread) count(wire *Wire, part *Scope) (lost, left bool) {
	see := func(source *Wire) {
		step, ok := source.Provider()
		switch {
		case !ok:
		case part.Holds(step):
			left = true
		case s.now[step]:
			lost = true
		default:
			left = left || !s.before(step)
		}
	}
	see(wire)
	for i := range wire.Others {
		see(&wire.Others[i])
	}
	return lost, left
}

// noes are the steps that each no of the plan reaches: one set for each choice and each depth of
// its deciders.
type noes struct {
	sets []Steps  // what each set decides about
	of   []bitset // by step: the sets that it is in; nil: none
}

// noes collects what the noes of the plan reach.
func (p *Plan) noes(reached func(choice int, depth Depth) []int) *noes {
	n := &noes{of: make([]bitset, p.Len())}
	var steps [][]int
	for choice := range p.choices {
		var depths []Depth
		for i := range p.choices[choice].Deciders {
			if depth := p.choices[choice].Deciders[i].Depth; !slices.Contains(depths, depth) {
				depths = append(depths, depth)
				n.sets, steps = append(n.sets, p.choices[choice].Target), append(steps, reached(choice, depth))
			}
		}
	}
	for i := range p.elements { // a member of a flow with Enough can be dropped
		bounds := &p.elements[i].Bounds
		if group := &p.groups[p.elements[i].Group]; group.Enough > 0 && group.Opening < 0 {
			member := Steps{First: bounds.Retry, End: bounds.End}
			n.sets, steps = append(n.sets, member), append(steps, member.all())
		}
	}
	for set := range steps {
		for _, step := range steps[set] {
			if n.of[step] == nil {
				n.of[step] = make(bitset, (len(steps)+63)/64)
			}
			n.of[step].set(set)
		}
	}
	return n
}

// separates reports whether a no ignores one provider and leaves the other, and does not decide
// about the vertex that uses them.
func (r *resolver) separates(vertex, one, other int) bool {
	for i, word := range r.noes.of[one] {
		if r.noes.of[other] != nil {
			word &^= r.noes.of[other][i]
		}
		for bit := 0; word != 0; bit, word = bit+1, word>>1 {
			if word&1 != 0 && !r.noes.sets[i*64+bit].holds(vertex) {
				return true
			}
		}
	}
	return false
}

// skips reports whether steps of the plan can be skipped, so that a value needs several providers.
func (r *resolver) skips() bool {
	return len(r.compiler.plan.choices) > 0 || len(r.compiler.plan.groupAt) > 0
}

// know collects the noes of the plan, at the first use.
func (r *resolver) know() {
	if r.noes == nil {
		r.noes = r.compiler.plan.noes(r.compiler.plan.reached)
	}
}

// others adds the providers in one instance that supply the value if the providers in found were skipped,
// nearest first. Of two unordered providers, the one with the higher number comes first; each must be
// skippable without the other.
func (r *resolver) others(vertex int, at source, found []*provider) []*provider {
	list := r.providers[at]
	for i := len(list) - 1; i >= 0 && len(found) <= MaxSources; i-- {
		p := &list[i]
		if !r.before[vertex].has(r.column[p.vertex]) || slices.Contains(found, p) {
			continue
		}
		last := found[len(found)-1]
		if r.noes.of[last.step()] == nil {
			break
		}
		fits := r.separates(vertex, last.step(), p.step())
		for _, q := range found {
			if !r.before[q.vertex].has(r.column[p.vertex]) {
				fits = fits && r.separates(vertex, q.step(), p.step()) && r.separates(vertex, p.step(), q.step())
			}
		}
		if fits {
			found = append(found, p)
		}
	}
	return found
}

// sources returns the providers of a symbol for a vertex, the nearest first; rival is another
// provider in the instance of the nearest one that is not ordered with it, -1: none.
func (r *resolver) sources(vertex int, at source) (found []*provider, rival int) {
	nearest, rival := r.nearestIn(vertex, at)
	if nearest == nil {
		return nil, -1
	}
	if found = []*provider{nearest}; !r.skips() || len(r.providers[at]) == 1 {
		return found, rival
	}
	r.know()
	if found = r.others(vertex, at, found); rival >= 0 {
		rival = r.rival(vertex, found, at)
	}
	return found, rival
}

// outer adds the sources of an argument outside the instance of those found: the providers in the
// instances around it, and the store.
func (r *resolver) outer(step int, instance int32, symbol string, found []*provider) (all []*provider, stored bool) {
	c := r.compiler
	if !r.skips() {
		return found, false
	}
	for instance = c.instances[instance].parent; instance >= 0; instance = c.instances[instance].parent {
		if at := (source{instance: instance, symbol: symbol}); len(r.providers[at]) > 0 {
			r.know()
			found = r.others(step, at, found)
		}
	}
	if !c.plan.inputs[symbol] {
		return found, false
	}
	r.know()
	last := found[len(found)-1].step()
	return found, r.noes.of[last] != nil && r.skippable(step, last)
}

// skippable reports whether a no ignores a provider and does not decide about the step.
func (r *resolver) skippable(step, provider int) bool {
	for set, target := range r.noes.sets {
		if r.noes.of[provider].has(set) && !target.holds(step) {
			return true
		}
	}
	return false
}

// join records that a step has an argument with several providers: a join of the largest part that
// has the step and none of the providers.
func (r *resolver) join(step int, found []*provider) {
	c := r.compiler
	vertex := int(c.plan.made[step])
	holds := func(node int) bool {
		return slices.ContainsFunc(found, func(p *provider) bool {
			v := int(c.plan.made[p.vertex])
			return c.nodes[node].from <= v && v < c.nodes[node].end
		})
	}
	node, _ := slices.BinarySearchFunc(c.nodes, vertex+1, func(s span, vertex int) int { return s.from - vertex })
	for node--; c.nodes[node].end <= vertex; {
		node = c.nodes[node].parent
	}
	for above := c.nodes[node].parent; above >= 0 && !holds(above); above = c.nodes[above].parent {
		node = above
	}
	if r.joined[node] {
		return
	}
	r.joined[node] = true
	p := c.plan
	part := boundsOf(c.nodes[node], c.numbers, p.Len())
	number := len(p.joins)
	p.joins = append(p.joins, join{part: part})
	if p.joinedAt == nil {
		p.joinedAt = make(map[int][]int)
	}
	for v := c.nodes[node].from; v < c.nodes[node].end; v++ {
		entered := int(c.numbers[v])
		if slices.ContainsFunc(p.previous[entered], func(previous int32) bool { return !part.Holds(int(previous)) }) {
			p.joinedAt[entered] = append(p.joinedAt[entered], number)
		}
	}
}

// checkSkips reports the required values that a step cannot have although it runs: all their
// providers are skipped by one no, and the step is not.
func (r *resolver) checkSkips() {
	p := r.compiler.plan
	if !r.skips() {
		return
	}
	r.checkMembers()
	noes := p.noes(p.Ignored)
	for step := range p.steps {
		for _, wires := range [][]Wire{p.wires[step], p.reverts[step]} {
			for i := range wires {
				if group, yes := r.dropped(step, &wires[i]); yes && !wires[i].Optional {
					r.compiler.fault(ErrMissing, "step %q requires %s, which can be absent because flow %q continues when %d of its members have succeeded (%s): provide it in every member, add a default, or make it optional",
						p.steps[step].name, described(wires[i].Argument), group.Name, group.Enough, p.Source(wires[i]))
				} else if !wires[i].Optional && noes.take(step, &wires[i]) {
					r.compiler.fault(ErrMissing, "step %q requires %s, which conditions can leave without a provider (%s): add a provider, or make the argument optional",
						p.steps[step].name, described(wires[i].Argument), p.Source(wires[i]))
				}
			}
			if _, both := p.steps[step].Reverter(); !both || p.steps[step].revertRequires == nil {
				break // the same wires
			}
		}
	}
}

// take reports whether a no ignores all sources of a wire, and not its step.
func (n *noes) take(step int, wire *Wire) bool {
	sources := wire.Sources()
	first, ok := sources[0].Provider()
	if !ok {
		return false
	}
	for i, word := range n.of[first] {
		if n.of[step] != nil {
			word &^= n.of[step][i]
		}
		for _, source := range sources[1:] {
			if other, ok := source.Provider(); ok && n.of[other] != nil {
				word &= n.of[other][i]
			} else {
				word = 0
			}
		}
		if word != 0 {
			return true
		}
	}
	return false
}

// sourceNames names the sources of an argument in the order of the plan, the store last.
func (p *Plan) sourceNames(wire Wire) string {
	sources := wire.Sources()
	slices.SortStableFunc(sources, func(a, b Wire) int { return p.position(&a) - p.position(&b) })
	names := make([]string, len(sources))
	for i := range sources {
		names[i] = p.Source(sources[i])
	}
	return strings.Join(names, " or ")
}

func (p *Plan) position(source *Wire) int {
	if step, ok := source.Provider(); ok {
		return step
	}
	return p.Len()
}

// SkippedProviders names the steps that provide an argument, for the failure of a step whose providers were all
// skipped; empty: no step provides it.
func (p *Plan) SkippedProviders(wire *Wire) string {
	var names []string
	for _, source := range wire.Sources() {
		if step, ok := source.Provider(); ok {
			names = append(names, p.steps[step].name)
		}
	}
	slices.Reverse(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("step %q provides it and was skipped", names[0])
	}
	return fmt.Sprintf("the steps %s provide it and were skipped", strings.Join(names, " and "))
}
