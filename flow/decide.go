package flow

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Depth says how far the word of a decider reaches.
type Depth int

// The depths, from the widest. Where several deciders say no, the widest counts.
const (
	// DepthAll: the node, and every step that waits for it, through nested
	// flows and those around; but not beyond the flow of the retry around
	// the graph, which may begin again and decide otherwise.
	DepthAll Depth = iota
	// DepthFlow: the node, and those that wait for it in the same graph.
	DepthFlow
	// DepthNeighbors: the node, and those in the same graph that wait for it
	// directly.
	DepthNeighbors
	// DepthAtom: the node only; if it is a flow, all of it.
	DepthAtom
)

// String is the depth in words.
func (d Depth) String() string {
	if d < DepthAll || d > DepthAtom {
		return fmt.Sprintf("depth %d", int(d))
	}
	return [...]string{"all", "flow", "neighbors", "atom"}[d]
}

// Decider is a predicate over results: it says whether the node at the end of
// a link is run. Results are those of the steps at the beginnings of all links
// into the node that have deciders, by the names of the steps; steps that were
// ignored are left out. It is called by the loop that drives the flow when
// everything before the node is done, must not block, and should say the same
// of the same results: what it says is recorded with what follows from it, and
// is not asked again after a crash, but for one that came before the record.
// An error or a panic is a failure of the node's first step.
type Decider func(results logbook.Values) (bool, error)

// LinkOption describes a link.
type LinkOption func(*link)

// Decide puts a decider on a link, under a name by which people know it. A
// node that it turns down is ignored: never run, never reverted, and done as
// far as those behind it are concerned. To them what it provides is absent:
// an optional argument is left out, and a required one is a failure. A decider
// all of whose steps were ignored themselves is not asked, and has no say.
func Decide(name string, decider Decider) LinkOption {
	return func(l *link) { l.name, l.decider, l.decides = name, decider, true }
}

// Reaching says how far a no reaches; DepthAll if this is left out.
func Reaching(depth Depth) LinkOption { return func(l *link) { l.depth, l.reaches = depth, true } }

// Steps are the steps of a node, by their numbers: from the first to before End.
type Steps struct{ First, End int }

func (s Steps) holds(step int) bool { return step >= s.First && step < s.End }

// described says in a note to the first of the steps which they are.
func (s Steps) described() string {
	if n := s.End - s.First; n > 1 {
		return fmt.Sprintf("this and %d more", n-1)
	}
	return "this"
}

// Choice is a gate before a node that has deciders.
type Choice struct {
	// Gate is the vertex behind which nothing of the node begins before it
	// is decided.
	Gate int
	// Target is the node.
	Target Steps
	// Voices are its deciders, in the order of the links.
	Voices []Voice

	graph *choiceGraph
	child int // of the graph
	room  int // of the plan
	place ChoicePlace
}

// ChoicePlace tells a choice from all others of its flow, also in plans that
// have grown from the same one.
type ChoicePlace struct {
	graph *Flow
	at    string
	child int
}

// Place is where in the flow the choice stands.
func (c *Choice) Place() ChoicePlace { return c.place }

// Calls is the name by which the deciders of the choice know a step: without
// the numbers of the instance in which they stand together.
func (c *Choice) Calls(step *Step) string { return step.base() + step.at[len(c.place.at):] }

// choiceGraph is what choices in one graph share: who waits for whom among its
// children, and which steps these are.
type choiceGraph struct {
	next   [][]int
	places []Steps
}

// behind are the children that wait for one, directly or not.
func (g *choiceGraph) behind(child int) []int {
	seen := map[int]bool{child: true}
	stack, found := []int{child}, []int(nil)
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range g.next[top] {
			if !seen[next] {
				seen[next] = true
				stack, found = append(stack, next), append(found, next)
			}
		}
	}
	return found
}

// Voice is one decider of a choice.
type Voice struct {
	Name  string
	Depth Depth
	// From are the steps at the beginning of its link.
	From Steps

	decider Decider
}

// described names the deciders of a choice.
func (c *Choice) described() string {
	names := make([]string, len(c.Voices))
	for i := range c.Voices {
		names[i] = fmt.Sprintf("%s (else %s)", c.Voices[i].Name, c.Voices[i].Depth)
	}
	return strings.Join(names, " and ")
}

// Ask calls the decider.
func (v *Voice) Ask(results logbook.Values) (yes bool, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			yes, err = false, &PanicError{Value: caught, Stack: string(debug.Stack())}
		}
	}()
	return v.decider(results)
}

// Choices are the choices of the plan. The slice is the plan's own: do not
// write to it.
func (p *Plan) Choices() []Choice { return p.choices }

// ChoiceAt is the index of the choice of a gate.
func (p *Plan) ChoiceAt(gate int) (int, bool) {
	choice, ok := p.choiceAt[gate]
	return choice, ok
}

// Ignored are the steps that a no of this depth makes ignored, in order.
func (p *Plan) Ignored(choice int, depth Depth) []int {
	c := &p.choices[choice]
	children := []int{c.child}
	switch depth {
	case DepthAll:
		return p.behind(c)
	case DepthFlow:
		children = append(children, c.graph.behind(c.child)...)
	case DepthNeighbors:
		children = append(children, c.graph.next[c.child]...)
	}
	var steps []int
	for _, child := range children {
		part := c.graph.places[child]
		for step := part.First; step < part.End; step++ {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps
}

// behind are all steps that come after a choice, in the scope, or the instance
// of an each, in which it stands.
func (p *Plan) behind(c *Choice) []int {
	within := &Scope{End: p.Len(), GateFrom: p.Len(), GateEnd: len(p.next)}
	for i := range p.scopes {
		if p.scopes[i].Holds(c.Gate) {
			within = &p.scopes[i] // the innermost: those come last
		}
	}
	if instance := &p.rooms[c.room]; c.room > 0 && (within.Retry < instance.Retry || within.End > instance.End) {
		within = instance
	}
	seen := make(map[int]bool)
	var steps []int
	stack := []int{c.Gate}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range p.next[top] {
			v := int(next)
			if seen[v] || !within.Holds(v) {
				continue
			}
			seen[v] = true
			stack = append(stack, v)
			if v < p.Len() {
				steps = append(steps, v)
			}
		}
	}
	slices.Sort(steps)
	return steps
}

// placedGraph is a graph with deciders by the vertices that were placed for it.
type placedGraph struct {
	flow     *Flow
	at       string // the numbers of the instance
	room     int32
	deciding map[string][]link
	next     [][]int
	gates    []int32 // by child; of those that have deciders. Below 0: pruned
	places   []span
}

// decidingLinks are the links of a graph that have deciders, by whom they lead to.
func decidingLinks(flow *Flow) map[string][]link {
	var found map[string][]link
	for _, l := range flow.links {
		if l.decides {
			if found == nil {
				found = make(map[string][]link)
			}
			found[l.to] = append(found[l.to], l)
		}
	}
	return found
}

// checkLink finds what is wrong with a link by itself.
func (c *compiler) checkLink(flow *Flow, l link) {
	switch {
	case !l.decides && l.reaches:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q says how far a no reaches, and has nobody to say it", flow.name, l.from, l.to)
	case l.depth < DepthAll || l.depth > DepthAtom:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has the %s, which there is not", flow.name, l.from, l.to, l.depth)
	case l.decides && l.decider == nil:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has no decider", flow.name, l.from, l.to)
	case l.decides:
		if err := c.limits.CheckName("decider", l.name); err != nil {
			c.fault(ErrInvalid, "the link of graph %q from %q to %q: %w", flow.name, l.from, l.to, err)
		}
	}
}

// numberChoices gives choices the numbers of their steps.
func (c *compiler) numberChoices(numbers []int32) {
	p := c.plan
	p.choiceAt = make(map[int]int)
	for _, placed := range c.graphs {
		graph := &choiceGraph{next: placed.next, places: make([]Steps, len(placed.places))}
		index := make(map[string]int, len(placed.places))
		for i, place := range placed.places {
			graph.places[i] = stepsOf(place, numbers, p.Len())
			index[placed.flow.children[i].Name()] = i
		}
		for i, child := range placed.flow.children {
			links := placed.deciding[child.Name()]
			if len(links) == 0 || placed.gates[i] < 0 {
				continue
			}
			if target := graph.places[i]; target.First == target.End {
				continue // no target needs it
			}
			choice := Choice{Gate: int(numbers[placed.gates[i]]), Target: graph.places[i], graph: graph, child: i,
				room: int(placed.room), place: ChoicePlace{graph: placed.flow, at: placed.at, child: i}}
			for _, l := range links {
				choice.Voices = append(choice.Voices, Voice{Name: l.name, Depth: l.depth, From: graph.places[index[l.from]], decider: l.decider})
			}
			p.choiceAt[choice.Gate] = len(p.choices)
			p.choices = append(p.choices, choice)
		}
	}
}

// stepsOf are the steps among the vertices of a span: their numbers follow on
// each other.
func stepsOf(s span, numbers []int32, steps int) Steps {
	var found Steps
	for v := s.from; v < s.end; v++ {
		number := int(numbers[v])
		if number >= steps {
			continue
		}
		if found.End == 0 {
			found.First = number
		}
		found.End = number + 1
	}
	return found
}
