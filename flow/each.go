package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// MaxElements limits the list of one each: to the maximum number of steps in a flow.
const MaxElements = 10_000

// maxSuffix is the maximum length that an index adds to the name of a step.
const maxSuffix = len("[9999]")

// PatternEach is the pattern of a flow made by Each.
const PatternEach Pattern = "each"

// Each is a flow that runs its body once for each element of the JSON array under the symbol over.
// The store holds the array, or an earlier step provides it. Like the symbols of Rebind, over can
// lead to an array inside another value: order.items. The steps of the body find the element under
// the symbol as. All instances run in parallel, unless AtOnce or InOrder limits them. Later steps
// wait for all instances. With an empty list, the flow is done at once.
//
// The flow opens with an atom of the same name, whose result is the list. From then on the list
// comes from that record: a resumed flow has the same instances even if the source has changed. A
// retry around the flow takes the list again in each round. A retry inside the body exists once
// for each instance.
//
// The steps of an instance are named with its index in the list, from 0: step[3], and step[3][0]
// for an each inside an each. Their values are visible only in their own instance; Gather makes
// lists of them for later steps. A decider in the body sees the names that the body gave, and its
// no stays within its instance.
//
// Taking a list costs time in proportion to the flow's size, a few microseconds per step. If
// thousands of instances of an inner each run one after another, make the inner each a separate
// flow.
//
// The opening atom fails with kind logbook.FailureArgument when the value is not a list, has more
// than MaxElements, or would give the flow too many steps.
func Each(name, over, as string, body Node, options ...EachOption) *Flow {
	e := &each{as: as}
	f := &Flow{name: name, pattern: PatternEach, children: []Node{body}, each: e}
	for i, option := range options {
		if option == nil {
			e.faults = append(e.faults, fmt.Errorf("%w: flow %q: its option %d is nil", ErrInvalid, name, i+1))
			continue
		}
		option(e)
	}
	e.opener = &Step{name: name, opens: e, requires: []Argument{{Name: over, Symbol: over}}, faults: e.faults}
	if over == "" {
		e.opener.fault("the list of the loop has no name")
	}
	if as == "" {
		e.opener.fault("the element of the loop has no name")
	}
	if e.place != "" && e.place == as {
		e.opener.fault("the element and its index have the same name, %q", as)
	}
	return f
}

// each is the part of a Flow that only Each uses.
type each struct {
	opener  *Step
	as      string
	place   string
	atOnce  int // 0: all
	gathers []gather
	ignores tolerance
	enough  int    // see Flow.Enough
	told    string // the symbol of the list of failures; empty: none
	faults  []error
}

// gather is a list of the values that the instances provide under a symbol.
type gather struct{ symbol, as string }

// EachOption configures an Each.
type EachOption func(*each)

// Gather provides, after an Each, the list of the values that its instances provide under a
// symbol, in the order of the elements. The list is named as; empty: like the symbol. A value is
// null if the step that provides it was ignored or gave no such field.
func Gather(symbol, as string) EachOption {
	return func(e *each) {
		if as == "" {
			as = symbol
		}
		if symbol == "" || slices.ContainsFunc(e.gathers, func(g gather) bool { return g.as == as }) {
			e.faults = append(e.faults, fmt.Errorf("%w: flow.Each gathers %q twice, or gathers a value without a name", ErrInvalid, as))
		}
		e.gathers = append(e.gathers, gather{symbol: symbol, as: as})
	}
}

// Place gives the steps of an instance its index in the list, from 0, under the symbol as.
func Place(as string) EachOption { return func(e *each) { e.place = as } }

// AtOnce limits the instances of an Each that run in parallel. They start in the order
// of the list; whenever one ends, the next one starts. A revert takes them in reverse
// order, with the same limit.
func AtOnce(n int) EachOption {
	return func(e *each) {
		if n < 1 {
			e.faults = append(e.faults, fmt.Errorf("%w: flow.AtOnce must be at least 1, not %d", ErrInvalid, n))
		}
		e.atOnce = n
	}
}

// InOrder runs the instances of an Each one after another.
func InOrder() EachOption { return AtOnce(1) }

// fingerprint covers the inputs of the each's instances, and its outputs.
func (e *each) fingerprint() uint64 {
	sum := fingerprint("element", e.as) + fingerprint("place", e.place)
	for _, g := range e.gathers {
		sum += fingerprint("gathers", g.symbol, g.as)
	}
	if e.told != "" {
		sum += fingerprint("failures", e.told)
	}
	return sum
}

// IsEach reports whether the step is the opening of an Each in a plan. Such a step has no task:
// its result is the list, which the engine takes.
func (s *Step) IsEach() bool { return s.opens != nil }

// Enough is the number of instances that must succeed, for the opening of an Each
// with Flow.Enough; else 0.
func (s *Step) Enough() int {
	if s.opens == nil {
		return 0
	}
	return s.opens.enough
}

// AtOnce is how many instances may run in parallel, for the opening of an Each; 0: all.
func (s *Step) AtOnce() int {
	if s.opens == nil {
		return 0
	}
	return s.opens.atOnce
}

// base is the name of the step in the flow as it was written.
func (s *Step) base() string { return strings.TrimSuffix(s.name, s.at) }

// removed is the opening of an instance that no target needs.
const removed = -1

// instance is where values are visible: the flow as a whole, or one instance of an each.
type instance struct {
	parent int32 // -1: none
	opener int32 // vertex, or removed
	index  int   // of the element
	each   *each
	span   span
}

// closing is the vertex after all instances of an each that gathers.
type closing struct {
	vertex, opener int32
	each           *each
	instances      []int32
}

// own returns the step for the instance that is being placed.
func (c *compiler) own(step *Step) *Step {
	if c.at == "" {
		return step
	}
	clone := *step
	clone.name, clone.at = step.name+c.at, c.at
	return &clone
}

// surveyEach checks an each, the last flow of the path.
func (c *compiler) surveyEach(flow *Flow, path []Node) {
	c.survey(flow.each.opener, path)
	c.values[flow.each.as], c.values[flow.each.place] = true, true
	for _, g := range flow.each.gathers {
		c.values[g.as] = true
	}
	if flow.each.told != "" {
		c.values[flow.each.told] = true
	}
	if len(flow.children) != 1 {
		c.fault(ErrInvalid, "%s has %d bodies; put them into one flow", quoted(flow), len(flow.children))
	}
	c.surveyMaxFailures(flow, path)
}

// checkInstanceName reports a name that would be too long with the indexes of its
// instances.
func (c *compiler) checkInstanceName(step *Step, path []Node) {
	depth := 0
	for i, node := range path {
		if f, ok := node.(*Flow); ok && f.each != nil && (i < len(path)-1 || step != f.each.opener && !standsOver(f, step)) {
			depth++
		}
	}
	if depth == 0 {
		return
	}
	c.inner[step.name] = true
	if long := len(step.name) + depth*maxSuffix; long > c.limits.Name {
		c.fault(ErrTooLarge, "the name of step %q would have %d bytes with the indexes of its instances; the limit is %d",
			step.name, long, c.limits.Name)
	}
}

// standsOver reports whether a step is the retry of a flow.
func standsOver(f *Flow, step *Step) bool {
	return slices.ContainsFunc(f.retries, func(r *Retrier) bool { return r != nil && r.step == step })
}

// checkNumberedNames reports steps named like an instance of another step.
func (c *compiler) checkNumberedNames() {
	if len(c.inner) == 0 {
		return
	}
	for _, name := range sortedKeys(c.names) {
		for base, ok := logbook.CutInstance(name); ok; base, ok = logbook.CutInstance(base) {
			if c.inner[base] {
				c.fault(ErrDuplicate, "step %q has the name of an instance of step %q", name, base)
			}
		}
	}
}

// placeEach places an each: its opening, and its known instances. The template has one
// instance, without an index.
func (c *compiler) placeEach(flow *Flow, before []int32) []int32 {
	e := flow.each
	if !c.keeps(e.opener) {
		return before
	}
	opener := c.vertex(c.own(e.opener), before)
	start, count := []int32{opener}, 1
	if c.sizes != nil {
		count = c.sizes[c.vertices[opener].name]
	}
	ends, instances := make([][]int32, count), make([]int32, count)
	outer, at := c.instance, c.at
	number := len(c.turns)
	// With Enough, an instance never waits for another, which can be undone alone.
	limited := (e.atOnce > 1 || e.atOnce == 1 && c.isSelecting(flow)) && count > e.atOnce
	if limited {
		c.turns = append(c.turns, placedTurns{opener: opener, atOnce: e.atOnce, elements: make([]span, count)})
	}
	for i := range count {
		behind, from := start, len(c.vertices)
		switch {
		case limited:
			behind = []int32{c.vertex(nil, start)}
		case e.atOnce == 1 && i > 0:
			behind = ends[i-1]
		}
		c.instance, instances[i] = int32(len(c.instances)), int32(len(c.instances))
		c.instances = append(c.instances, instance{parent: outer, opener: opener, index: i, each: e, span: span{from: len(c.vertices)}})
		if c.sizes != nil {
			c.at = at + "[" + strconv.Itoa(i) + "]"
		}
		ends[i] = c.place(flow.children[0], behind)
		c.instances[instances[i]].span.end = len(c.vertices)
		c.instance, c.at = outer, at
		if limited {
			ends[i] = []int32{c.vertex(nil, ends[i])}
			c.turns[number].elements[i] = span{from: from, end: len(c.vertices)}
		}
	}
	end := start
	if count > 0 {
		end = union(ends)
	}
	if e.ignores.given || c.isSelecting(flow) {
		end = c.placeEachGroup(flow, opener, instances, end)
	}
	if (len(e.gathers) > 0 || e.told != "") && (c.template == nil || c.template.gathering[e.opener.name]) {
		end = []int32{c.vertex(nil, end)}
		c.closings = append(c.closings, closing{vertex: end[0], opener: opener, each: e, instances: instances})
	} else {
		end = c.gate(end)
	}
	c.ends[opener] = end
	return end
}

// eachInterface is the interface of an each. Of the body's values, only gathered ones are
// visible.
func (c *compiler) eachInterface(flow *Flow) *interfaceOf {
	e := flow.each
	whole := c.stepInterface(e.opener)
	for symbol := range c.interfaceOf(flow.children[0]).requires {
		if symbol != e.as && symbol != e.place {
			whole.requires[symbol] = true
		}
	}
	for _, g := range e.gathers {
		whole.provides[g.as] = true
	}
	if e.told != "" {
		whole.provides[e.told] = true
	}
	return whole
}

// numberInstances records in the plan which steps are in which each.
func (c *compiler) numberInstances(numbers []int32) {
	p := c.plan
	p.instances, p.openers = make([]Scope, len(c.instances)), make([]int, len(c.instances))
	p.openers[0] = removed // the flow as a whole
	p.depths, p.gathering = make([]int, p.Len()), make(map[string]bool)
	if len(c.instances) == 1 {
		return
	}
	for i := range c.closings {
		p.gathering[c.closings[i].each.opener.name] = true
	}
	p.grows = slices.ContainsFunc(p.steps, (*Step).IsEach)
	depths := make([]int, len(c.instances))
	for i := 1; i < len(c.instances); i++ {
		p.openers[i] = removed
		if opener := c.instances[i].opener; opener != removed {
			p.openers[i] = int(numbers[opener])
		}
		p.instances[i] = boundsOf(c.instances[i].span, numbers, p.Len())
		depths[i] = depths[c.instances[i].parent] + 1
	}
	for v, step := range c.vertices {
		if step == nil {
			continue
		}
		p.depths[numbers[v]] = depths[c.instanceOf[v]]
		if r := &c.instances[c.instanceOf[v]]; c.sizes == nil && r.each != nil {
			if p.bodies == nil {
				p.bodies = make(map[string][]string)
			}
			p.bodies[r.each.opener.name] = append(p.bodies[r.each.opener.name], step.name)
		}
	}
}

// Template is the plan of the flow as written: the body of an each occurs once, under its own
// names. Compile returns such a plan. Use it to show and compare plans.
func (p *Plan) Template() *Plan {
	if p.how.template != nil {
		return p.how.template
	}
	return p
}

// Grows reports whether the flow has an each. If so, a run uses the plans that Grown makes.
func (p *Plan) Grows() bool { return p.Template().grows }

// Grown is the plan with a number of instances for each opening, by name; an opening that is not
// in the map has none. A plan without an each is returned unchanged. The error is ErrTooLarge if
// the plan would have too many steps. Do not change the map afterwards.
func (p *Plan) Grown(elements map[string]int) (*Plan, error) {
	if !p.Grows() {
		return p, nil
	}
	template := p.Template()
	for name, n := range elements {
		if n < 0 || n > MaxElements {
			return nil, fmt.Errorf("%w: %q has %d elements; the limit is %d", ErrTooLarge, name, n, MaxElements)
		}
	}
	how := template.how
	how.template, how.sizes = template, elements
	if how.sizes == nil {
		how.sizes = make(map[string]int)
	}
	return how.Compile(template.root)
}

// Elements are the numbers of instances in the plan, by opening. The map belongs to the plan: do
// not write to it.
func (p *Plan) Elements() map[string]int { return p.how.sizes }

// Instance returns the names of the steps of one instance. The opening is given by its number. If
// the instance contains an each, only its opening is listed.
func (p *Plan) Instance(opening, element int) []string {
	step := p.steps[opening]
	bodies := p.Template().bodies[step.base()]
	names := make([]string, len(bodies))
	for i, base := range bodies {
		names[i] = base + step.at + "[" + strconv.Itoa(element) + "]"
	}
	return names
}

// Instances returns the steps of each instance of an opening, in the order of the list, including the steps of inner
// instances.
func (p *Plan) Instances(opening int) (steps []Steps) {
	for i := range p.instances {
		if p.openers[i] == opening {
			steps = append(steps, Steps{First: p.instances[i].Retry, End: p.instances[i].End})
		}
	}
	return steps
}

// Instantiated returns the step of the template for the name of an instance's step, even if the
// plan does not have that instance.
func (p *Plan) Instantiated(name string) (*Step, bool) {
	template := p.Template()
	depth := 0
	for base, ok := logbook.CutInstance(name); ok; base, ok = logbook.CutInstance(base) {
		depth++
		if number, found := template.index[base]; found && template.depths[number] == depth {
			return template.steps[number], true
		}
	}
	return nil, false
}

// Openings returns the openings around a step of this name, the innermost first, even if the plan
// does not have that instance. A step outside every each has none.
func (p *Plan) Openings(name string) []string {
	step, ok := p.Instantiated(name)
	if !ok {
		return nil
	}
	var openings []string
	base, at := step.name, name[len(step.name):]
	for at != "" {
		at, _ = logbook.CutInstance(at)
		for opening, body := range p.Template().bodies {
			if slices.Contains(body, base) {
				base = opening
				break
			}
		}
		openings = append(openings, base+at)
	}
	return openings
}

// Gathered is a list that an each provides: the values of its instances under one symbol.
type Gathered struct {
	// Each is the number of the opening.
	Each int
	// Items are the sources of the values, in the order of the elements.
	Items []Wire
	// Failures is set instead of Items in the list of the failures that the each ignores.
	Failures bool
}

// Part is the part of the provider's record that a wire takes.
type Part int

// The parts.
const (
	PartWhole   Part = iota // the list
	PartElement             // the element with the wire's Index
	PartIndex               // that Index itself
	PartFailure             // of any step: its failure, or null
)
