package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxElements bounds the list of one each: as many as a flow may have steps.
const MaxElements = 10_000

// maxSuffix is how long the number of an instance makes the names of its steps.
const maxSuffix = len("[9999]")

// PatternEach is that of a flow that Each makes.
const PatternEach Pattern = "each"

// Each is a flow that runs its body once for each element of the JSON array
// under the symbol over, which the store holds or a step before provides. The
// steps of the body find the element under the symbol as. All instances run at
// once, unless AtOnce or InOrder says otherwise; who waits for the flow waits
// for all of them. An empty list is done at once.
//
// The flow opens with an atom of its own name, whose result is the list. It is
// taken from there ever after, whatever its source says by then: so a resume
// sees the same instances. A retry around the flow takes the list anew in each
// round; one inside the body is one for each instance.
//
// The steps of an instance are named after their place in the list, from 0:
// step[3], and step[3][0] where one each stands in another. What they provide
// is seen in their own instance only. Gather makes lists of it for the steps
// behind. A decider in the body is given the names that the body gave, and the
// no of one reaches no further than its instance.
//
// Taking a list costs as much as the flow is large by then, a few microseconds
// a step: an each that stands in another one, whose thousands of instances run
// one after another, is better made a flow of its own.
//
// A list that is none, that has more than MaxElements, or for which the flow
// would have more steps than it may, is a failure of the opening atom, of kind
// logbook.FailureArgument.
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
		e.opener.fault("it runs over a list without a name")
	}
	if as == "" {
		e.opener.fault("it gives its elements without a name")
	}
	if e.place != "" && e.place == as {
		e.opener.fault("it gives its elements and their places the same name, %q", as)
	}
	return f
}

// each is what a flow that Each made has besides.
type each struct {
	opener  *Step
	as      string
	place   string
	atOnce  int // 0: all
	gathers []gather
	faults  []error
}

// gather is a list of what the instances provide under a symbol.
type gather struct{ symbol, as string }

// EachOption describes an Each.
type EachOption func(*each)

// Gather provides, behind an Each, the list of what its instances provide
// under a symbol, in the order of the elements: under another name, or under
// the same if that is empty. The value is null where the step that provides it
// was ignored, or gave no such field.
func Gather(symbol, as string) EachOption {
	return func(e *each) {
		if as == "" {
			as = symbol
		}
		if symbol == "" || slices.ContainsFunc(e.gathers, func(g gather) bool { return g.as == as }) {
			e.faults = append(e.faults, fmt.Errorf("%w: an each gathers %q twice, or something without a name", ErrInvalid, as))
		}
		e.gathers = append(e.gathers, gather{symbol: symbol, as: as})
	}
}

// Place gives the steps of an instance its place in the list, from 0.
func Place(as string) EachOption { return func(e *each) { e.place = as } }

// AtOnce bounds the instances of an Each that run at once: each waits for the
// one so many places before it.
func AtOnce(n int) EachOption {
	return func(e *each) {
		if n < 1 {
			e.faults = append(e.faults, fmt.Errorf("%w: an each runs %d instances at once", ErrInvalid, n))
		}
		e.atOnce = n
	}
}

// InOrder runs the instances of an Each one after another.
func InOrder() EachOption { return AtOnce(1) }

// fingerprint is that of what the each gives to its instances, and provides.
func (e *each) fingerprint() uint64 {
	sum := fingerprint("element", e.as) + fingerprint("place", e.place)
	for _, g := range e.gathers {
		sum += fingerprint("gathers", g.symbol, g.as)
	}
	return sum
}

// IsEach reports whether the step stands for the beginning of an Each in a plan.
// It has no task then: its result is the list, which the engine takes.
func (s *Step) IsEach() bool { return s.opens != nil }

// base is the name of the step in the flow as it was written.
func (s *Step) base() string { return strings.TrimSuffix(s.name, s.at) }

// room is where values are seen: the flow as a whole, or one instance of an
// each in the room in which that stands.
type room struct {
	parent int32 // -1: none
	opener int32 // vertex
	index  int   // of the element
	each   *each
	span   span
}

// closing is the vertex behind all instances of an each that gathers.
type closing struct {
	vertex, opener int32
	each           *each
	rooms          []int32
}

// own gives the step that stands for one of the flow in the instance that is
// being placed.
func (c *compiler) own(step *Step) *Step {
	if c.at == "" {
		return step
	}
	clone := *step
	clone.name, clone.at = step.name+c.at, c.at
	return &clone
}

// surveyEach looks at the parts of an each, which stands at the end of a path.
func (c *compiler) surveyEach(flow *Flow, path []Node) {
	c.survey(flow.each.opener, path)
	if len(flow.children) != 1 {
		c.fault(ErrInvalid, "%s has %d bodies; put them into one flow", quoted(flow), len(flow.children))
	}
}

// checkInstanceName finds names that would be too long with the number of an
// instance, for a step that stands in so many.
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
		c.fault(ErrTooLarge, "the name of step %q would have %d bytes with the numbers of its instances, and at most %d are allowed",
			step.name, long, c.limits.Name)
	}
}

// standsOver reports whether a step is the retry of a flow.
func standsOver(f *Flow, step *Step) bool {
	return slices.ContainsFunc(f.retries, func(r *Retrier) bool { return r != nil && r.step == step })
}

// checkNumberedNames finds steps that are named like an instance of another.
func (c *compiler) checkNumberedNames() {
	if len(c.inner) == 0 {
		return
	}
	for _, name := range sortedKeys(c.names) {
		for base, _, ok := cutNumber(name); ok; base, _, ok = cutNumber(base) {
			if c.inner[base] {
				c.fault(ErrDuplicate, "step %q has the name of an instance of step %q", name, base)
			}
		}
	}
}

// cutNumber takes the last number of an instance from a name.
func cutNumber(name string) (base string, number int, ok bool) {
	open := strings.LastIndexByte(name, '[')
	if open < 0 || !strings.HasSuffix(name, "]") {
		return name, 0, false
	}
	digits := name[open+1 : len(name)-1]
	number, err := strconv.Atoi(digits)
	if err != nil || strconv.Itoa(number) != digits || number < 0 {
		return name, 0, false
	}
	return name[:open], number, true
}

// placeEach adds an each: its opening, and the instances that it is known to
// have. In the plan of the flow as it was written there is one, without a number.
func (c *compiler) placeEach(flow *Flow, before []int32) []int32 {
	e := flow.each
	if !c.leaves(e.opener) {
		return before
	}
	opener := c.vertex(c.own(e.opener), before)
	start, count := []int32{opener}, 1
	if c.sizes != nil {
		count = c.sizes[c.vertices[opener].name]
	}
	ends, rooms := make([][]int32, count), make([]int32, count)
	outer, at := c.room, c.at
	for i := range count {
		c.room, rooms[i] = int32(len(c.rooms)), int32(len(c.rooms))
		c.rooms = append(c.rooms, room{parent: outer, opener: opener, index: i, each: e, span: span{from: len(c.vertices)}})
		if c.sizes != nil {
			c.at = at + "[" + strconv.Itoa(i) + "]"
		}
		behind := start
		if e.atOnce > 0 && i >= e.atOnce {
			behind = ends[i-e.atOnce]
		}
		ends[i] = c.place(flow.children[0], behind)
		c.rooms[rooms[i]].span.end = len(c.vertices)
		c.room, c.at = outer, at
	}
	end := start
	if count > 0 {
		end = union(ends)
	}
	if len(e.gathers) > 0 && (c.template == nil || c.template.gathering[e.opener.name]) {
		end = []int32{c.vertex(nil, end)}
		c.closings = append(c.closings, closing{vertex: end[0], opener: opener, each: e, rooms: rooms})
	} else {
		end = c.gate(end)
	}
	c.ends[opener] = end
	return end
}

// eachInterface is what an each needs from outside, and provides: of its body,
// only what is gathered is seen.
func (c *compiler) eachInterface(flow *Flow) *interfaceOf {
	e := flow.each
	whole := stepInterface(e.opener)
	for symbol := range c.interfaceOf(flow.children[0]).requires {
		if symbol != e.as && symbol != e.place {
			whole.requires[symbol] = true
		}
	}
	for _, g := range e.gathers {
		whole.provides[g.as] = true
	}
	return whole
}

// numberRooms notes which steps of a plan stand in which each.
func (c *compiler) numberRooms(numbers []int32) {
	p := c.plan
	p.rooms = make([]Scope, len(c.rooms))
	p.depths, p.gathering = make([]int, p.Len()), make(map[string]bool)
	if len(c.rooms) == 1 {
		return
	}
	for i := range c.closings {
		p.gathering[c.closings[i].each.opener.name] = true
	}
	p.grows = slices.ContainsFunc(p.steps, (*Step).IsEach)
	depths := make([]int, len(c.rooms))
	for i := 1; i < len(c.rooms); i++ {
		p.rooms[i] = boundsOf(c.rooms[i].span, numbers, p.Len())
		depths[i] = depths[c.rooms[i].parent] + 1
	}
	for v, step := range c.vertices {
		if step == nil {
			continue
		}
		p.depths[numbers[v]] = depths[c.roomOf[v]]
		if r := &c.rooms[c.roomOf[v]]; c.sizes == nil && r.each != nil {
			if p.bodies == nil {
				p.bodies = make(map[string][]string)
			}
			p.bodies[r.each.opener.name] = append(p.bodies[r.each.opener.name], step.name)
		}
	}
}

// Template is the plan of the flow as it was written, in which the body of an
// each stands once, under the names that it was given. Compile gives such a
// plan; it is what there is to be shown and compared.
func (p *Plan) Template() *Plan {
	if p.how.template != nil {
		return p.how.template
	}
	return p
}

// Grows reports whether there is an each in the flow: what is run then is not
// the plan itself but what Grown makes of it.
func (p *Plan) Grows() bool { return p.Template().grows }

// Grown is the plan in which the opening of an each is followed by so many
// instances, by its name; without any, where the number is not known. A plan
// without an each is its own. ErrTooLarge if it would have too many steps. The
// map must not be changed afterwards.
func (p *Plan) Grown(elements map[string]int) (*Plan, error) {
	if !p.Grows() {
		return p, nil
	}
	template := p.Template()
	for name, n := range elements {
		if n < 0 || n > MaxElements {
			return nil, fmt.Errorf("%w: %q has %d elements, and at most %d are allowed", ErrTooLarge, name, n, MaxElements)
		}
	}
	how := template.how
	how.template, how.sizes = template, elements
	if how.sizes == nil {
		how.sizes = make(map[string]int)
	}
	return how.Compile(template.root)
}

// Elements are the instances that the plan has, by the names of the openings.
// The map is the plan's own: do not write to it.
func (p *Plan) Elements() map[string]int { return p.how.sizes }

// Instance are the names of the steps of one instance, by the number of the
// opening: of those in an each inside it, only the openings.
func (p *Plan) Instance(opening, element int) []string {
	step := p.steps[opening]
	bodies := p.Template().bodies[step.base()]
	names := make([]string, len(bodies))
	for i, base := range bodies {
		names[i] = base + step.at + "[" + strconv.Itoa(element) + "]"
	}
	return names
}

// Instantiated finds the step of the template that a name would belong to in
// some instance, whether the plan has that or not.
func (p *Plan) Instantiated(name string) (*Step, bool) {
	template := p.Template()
	depth := 0
	for base, _, ok := cutNumber(name); ok; base, _, ok = cutNumber(base) {
		depth++
		if number, found := template.index[base]; found && template.depths[number] == depth {
			return template.steps[number], true
		}
	}
	return nil, false
}

// Openings are those that a step of this name stands behind in some instance,
// whether the plan has that or not: of the innermost each first. None for one
// that stands in no each, or that no instance has.
func (p *Plan) Openings(name string) []string {
	step, ok := p.Instantiated(name)
	if !ok {
		return nil
	}
	var openings []string
	base, at := step.name, name[len(step.name):]
	for at != "" {
		at, _, _ = cutNumber(at)
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

// Gathered is a list that an each provides: what each of its instances
// provides under one symbol.
type Gathered struct {
	// Each is the number of the opening.
	Each int
	// Items are the sources of the values, in the order of the elements.
	Items []Wire
}

// Gathering is a list that an each provides to the flow.
type Gathering struct {
	Symbol string
	Gate   int // the vertex that provides it, behind all instances
	List   *Gathered
}

// Gatherings are the lists that are provided outside of every instance. The
// slice is the plan's own: do not write to it.
func (p *Plan) Gatherings() []Gathering { return p.gathers }

// Part is what of the result of an opening a wire takes.
type Part int

// The parts.
const (
	PartWhole   Part = iota // the list
	PartElement             // the element with the wire's Index
	PartPlace               // that Index itself
)
