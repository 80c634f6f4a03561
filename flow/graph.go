package flow

import (
	"maps"
	"slices"
	"strings"
)

// interfaceOf is the set of values that a node requires from outside and provides.
type interfaceOf struct {
	requires map[string]bool
	provides map[string]bool
}

// wiring holds the edges between the children of a graph, by index.
type wiring struct {
	next     [][]int
	previous [][]int
}

func (w *wiring) connect(from, to int) {
	if !slices.Contains(w.next[from], to) {
		w.next[from] = append(w.next[from], to)
		w.previous[to] = append(w.previous[to], from)
	}
}

// wire returns the edges of a graph: its links, then one from the provider of each name
// to each child that requires it.
func (c *compiler) wire(flow *Flow) *wiring {
	n := len(flow.children)
	w := &wiring{next: make([][]int, n), previous: make([][]int, n)}
	c.connectLinks(flow, w)
	// A copy: only links are used, not the edges that are added below.
	linked := reach(slices.Clone(w.previous))
	providers := make(map[string][]int)
	for i, child := range flow.children {
		for symbol := range c.interfaceOf(child).provides {
			providers[symbol] = append(providers[symbol], i)
		}
	}
	var joined []func()
	asked := c.asked(flow)
	for i, child := range flow.children {
		for _, symbol := range sortedKeys(c.interfaceOf(child).with(asked[child.Name()]).requires) {
			candidates := slices.DeleteFunc(slices.Clone(providers[symbol]), func(provider int) bool { return provider == i })
			switch {
			case len(candidates) == 1:
				w.connect(candidates[0], i)
			case len(candidates) > 1 && !slices.ContainsFunc(candidates, func(provider int) bool { return linked(i, provider) }):
				joined = append(joined, func() { c.connectProviders(flow, w, linked, i, symbol, candidates) })
			}
		}
	}
	for _, connect := range joined { // last: what is conditional depends on the other edges
		connect()
	}
	return w
}

func (c *compiler) connectLinks(flow *Flow, w *wiring) {
	index := make(map[string]int, len(flow.children))
	for i, child := range flow.children {
		if _, twice := index[child.Name()]; twice && len(flow.links) > 0 {
			c.fault(ErrDuplicate, "two children of graph %q have the name %q, so links to this name are ambiguous", flow.name, child.Name())
		}
		index[child.Name()] = i
	}
	for _, l := range flow.links {
		if l.question != nil {
			c.connectQuestion(flow, w, index, l)
			continue
		}
		from, okFrom := index[l.from]
		to, okTo := index[l.to]
		if !okFrom || !okTo {
			c.fault(ErrUnknownNode, "graph %q links %q to %q, and one of them is not in the graph", flow.name, l.from, l.to)
			continue
		}
		c.checkLink(flow, l)
		if !l.otherwise {
			w.connect(from, to)
		}
	}
	deciding := decidingLinks(flow)
	for i, child := range flow.children {
		for _, l := range deciding[child.Name()] {
			for _, of := range l.of {
				for _, name := range of.starts() {
					if from, ok := index[name]; ok {
						w.connect(from, i)
					}
				}
			}
		}
	}
}

// connectProviders adds edges from several children that provide a name to a child that requires it. Only the first
// provider can be unconditional. The resolver checks that the conditions of the others differ.
func (c *compiler) connectProviders(flow *Flow, w *wiring, linked func(int, int) bool, child int, symbol string, candidates []int) {
	earlier := slices.DeleteFunc(slices.Clone(candidates), func(candidate int) bool { return linked(candidate, child) })
	conditional := w.conditional(flow)
	fits := len(earlier) > 0
	for _, candidate := range earlier {
		first := !slices.ContainsFunc(earlier, func(other int) bool { return other != candidate && !linked(other, candidate) })
		fits = fits && (first || conditional(candidate))
	}
	if fits {
		for _, candidate := range earlier {
			w.connect(candidate, child)
		}
		return
	}
	names := make([]string, len(candidates))
	for i, candidate := range candidates {
		names[i] = flow.children[candidate].Name()
	}
	c.fault(ErrAmbiguous, "%s of graph %q requires %q, which %s provide: make it wait for one of them, with after (in Go: Link)",
		quoted(flow.children[child]), flow.name, symbol, strings.Join(names, " and "))
}

// conditional returns a function that reports whether a decider may have a child ignored, or
// something in it: a decider before it, or in it.
func (w *wiring) conditional(flow *Flow) func(child int) bool {
	deciding := decidingLinks(flow)
	before := reach(w.previous)
	return func(child int) bool {
		if decides(flow.children[child]) {
			return true
		}
		for i, other := range flow.children {
			if len(deciding[other.Name()]) > 0 && (i == child || before(child, i)) {
				return true
			}
		}
		return false
	}
}

// decides reports whether there is a decider in a node.
func decides(node Node) bool {
	flow, ok := node.(*Flow)
	return ok && (len(decidingLinks(flow)) > 0 || slices.ContainsFunc(flow.children, decides))
}

// reach returns a function that reports whether one node can be reached from another. It
// caches the answers for the last node only: all of them could be a hundred million.
func reach(edges [][]int) func(from, to int) bool {
	last, found := -1, make([]bool, len(edges))
	return func(from, to int) bool {
		if from == last || len(edges[from]) == 0 {
			return from == last && found[to]
		}
		last = from
		clear(found)
		stack := slices.Clone(edges[from])
		for len(stack) > 0 {
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if !found[top] {
				found[top] = true
				stack = append(stack, edges[top]...)
			}
		}
		return found[to]
	}
}

// sort orders the children of a graph so that each comes after the children that it waits for.
// Otherwise the given order stays. A cycle is reported as a fault that names its children.
func (c *compiler) sort(flow *Flow, w *wiring) ([]int, bool) {
	missing := make([]int, len(flow.children))
	var ready []int
	for i := range flow.children {
		missing[i] = len(w.previous[i])
		if missing[i] == 0 {
			ready = append(ready, i)
		}
	}
	order := make([]int, 0, len(flow.children))
	for len(ready) > 0 {
		first := ready[0]
		ready = ready[1:]
		order = append(order, first)
		for _, later := range w.next[first] {
			if missing[later]--; missing[later] == 0 {
				ready = append(ready, later)
			}
		}
	}
	if len(order) < len(flow.children) {
		c.fault(ErrCycle, "in graph %q: %s", flow.name, cyclePath(flow, w, missing))
		return nil, false
	}
	return order, true
}

// cyclePath walks backwards among the children that could not be ordered, until a child
// repeats. Each such child waits for another such child.
func cyclePath(flow *Flow, w *wiring, missing []int) string {
	at := slices.IndexFunc(missing, func(count int) bool { return count > 0 })
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		before := slices.IndexFunc(w.previous[at], func(i int) bool { return missing[i] > 0 })
		at = w.previous[at][before]
	}
	path = append(path[slices.Index(path, at):], at)
	slices.Reverse(path)
	names := make([]string, len(path))
	for i, child := range path {
		names[i] = flow.children[child].Name()
	}
	return strings.Join(names, " → ")
}

// interfaceOf computes the values that a node requires from outside and provides.
func (c *compiler) interfaceOf(node Node) *interfaceOf {
	flow, ok := node.(*Flow)
	if !ok {
		return c.stepInterface(node.(*Step))
	}
	if known, ok := c.symbols[flow]; ok {
		return known
	}
	if flow.each != nil {
		return c.underRetry(flow, c.eachInterface(flow))
	}
	whole := &interfaceOf{requires: make(map[string]bool), provides: make(map[string]bool)}
	var later []*interfaceOf
	asked := c.asked(flow)
	for _, child := range flow.children {
		part := c.interfaceOf(child).with(asked[child.Name()])
		for symbol := range part.requires {
			if flow.pattern != PatternLinear || !whole.provides[symbol] {
				whole.requires[symbol] = true
			}
		}
		for symbol := range part.provides {
			whole.provides[symbol] = true
		}
		later = append(later, part)
	}
	if flow.pattern == PatternGraph {
		satisfyInside(whole, later)
	}
	return c.underRetry(flow, whole)
}

// underRetry adds what a flow's retry requires and provides to the flow's interface, and
// caches that.
func (c *compiler) underRetry(flow *Flow, whole *interfaceOf) *interfaceOf {
	value := &interfaceOf{}
	if retry := flow.Retrier(); retry != nil {
		value = c.stepInterface(retry.step)
	}
	c.addLate(flow, whole)
	maps.DeleteFunc(whole.requires, func(_ string, required bool) bool { return !required })
	// A retry runs before the rest of its flow. Values that it provides are not required from
	// outside; values that it requires are.
	for symbol := range value.provides {
		delete(whole.requires, symbol)
		whole.provides[symbol] = true
	}
	for symbol := range value.requires {
		whole.requires[symbol] = true
	}
	c.symbols[flow] = whole
	return whole
}

// addLate adds what the on_error and final steps of a flow require and provide. The values of on_error steps are not
// seen outside.
func (c *compiler) addLate(flow *Flow, whole *interfaceOf) {
	given := maps.Clone(whole.provides)
	for _, step := range flow.late() {
		late := c.stepInterface(step)
		for symbol := range late.requires {
			whole.requires[symbol] = whole.requires[symbol] || !given[symbol]
		}
		for symbol := range late.provides {
			if given[symbol] = true; step.final {
				whole.provides[symbol] = true
			}
		}
	}
}

// satisfyInside removes the names that children of a graph require from each other.
func satisfyInside(whole *interfaceOf, children []*interfaceOf) {
	providers := make(map[string]int)
	for _, child := range children {
		for symbol := range child.provides {
			providers[symbol]++
		}
	}
	clear(whole.requires)
	for _, child := range children {
		for symbol := range child.requires {
			others := providers[symbol]
			if child.provides[symbol] {
				others--
			}
			if others == 0 {
				whole.requires[symbol] = true
			}
		}
	}
}

func (c *compiler) stepInterface(step *Step) *interfaceOf {
	s := &interfaceOf{requires: make(map[string]bool), provides: make(map[string]bool)}
	for _, symbol := range step.needs() {
		name, _ := c.cut(symbol)
		s.requires[name] = true
	}
	for _, provision := range step.provides {
		s.provides[provision.Symbol] = true
	}
	if step.ignoresFailure {
		s.provides[FailureName(step.name)] = true
	}
	return s
}
