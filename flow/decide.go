package flow

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Depth limits the steps that the no of a decider excludes.
type Depth int

// The depths, widest first. If several deciders say no, the widest depth applies. A no does not spread to a step
// through an ignored provider of a value while another provider of the value is not ignored.
const (
	// DepthAll ignores everything downstream, as far as the enclosing retry. That retry may start
	// its flow again; the decider then decides again.
	DepthAll Depth = iota
	// DepthFlow ignores the node, and the steps of the same graph that wait for it.
	DepthFlow
	// DepthNeighbors ignores the node, and the steps of the same graph that wait for it
	// directly.
	DepthNeighbors
	// DepthAtom ignores only the node; if the node is a flow, all of it.
	DepthAtom
)

// String is the depth in words.
func (d Depth) String() string {
	if d < DepthAll || d > DepthAtom {
		return fmt.Sprintf("depth %d", int(d))
	}
	return [...]string{"all", "flow", "neighbors", "atom"}[d]
}

// Decider is a predicate over results: it decides whether the node at the end of a link runs. It gets
// the results of all steps whose links to the node have a decider, by step name. Ignored steps have no
// result. If the failure of a step is ignored, the step's default result, if any, is its result, and
// the failure is under FailureName of the step.
//
// The loop that drives the flow calls the decider when everything before the node is done, so it
// must not block. It should return the same answer for the same results. The answer is recorded
// with its consequence, and the decider is called again only after a crash before the record. An
// error or a panic is a failure of the node's first step.
type Decider func(results logbook.Values) (bool, error)

// LinkOption configures a link.
type LinkOption func(*link)

// Decide puts a decider on a link, under a name for display. If the answer is no, the node is
// ignored: it never runs and is never reverted. Later steps treat it as done. They get its values
// from another provider, or not at all: an optional argument is absent, and a missing required
// argument is a failure. A decider whose steps were all ignored is not called, and does not apply.
func Decide(name string, decider Decider) LinkOption {
	return func(l *link) { l.name, l.decider, l.decides = name, decider, true }
}

// Otherwise makes a link the alternative to a condition: the node at its end runs exactly if the
// deciders of the node at its start have said no. It does not wait for that node, but for the
// steps that decide about it. If that node is an alternative itself, it needs a decider too: then
// only one node of the chain runs. If no decider applies, because all their steps were ignored, the
// node is ignored.
func Otherwise() LinkOption { return func(l *link) { l.otherwise = true } }

// Reaching sets how far a no reaches. Default: DepthAll.
func Reaching(depth Depth) LinkOption { return func(l *link) { l.depth, l.reaches = depth, true } }

// Steps are the steps of a node, with numbers from First to End-1.
type Steps struct{ First, End int }

// all are the numbers of the steps.
func (s Steps) all() (steps []int) {
	for step := s.First; step < s.End; step++ {
		steps = append(steps, step)
	}
	return steps
}

func (s Steps) holds(step int) bool { return step >= s.First && step < s.End }

// Choice is a gate before a node that has deciders.
type Choice struct {
	// Gate is the vertex before the node. No step of the node starts before the decision.
	Gate   int
	Target Steps
	// Deciders are the deciders of the links into the node, in the order of the links.
	Deciders []LinkDecider

	graph    *choiceGraph
	child    int // of the graph
	instance int // of the plan
	id       ChoiceID
}

// ChoiceID identifies a choice in its flow, even across plans that grew from the same plan.
type ChoiceID struct {
	graph *Flow
	at    string
	child int
}

// ID identifies the choice.
func (c *Choice) ID() ChoiceID { return c.id }

// NameOf is the name of a step as the deciders of the choice see it: without the indexes of the
// instance that contains both the step and the choice.
func (c *Choice) NameOf(step *Step) string {
	return step.base() + step.at[min(len(step.at), len(c.id.at)):]
}

// choiceGraph is shared by the choices of one graph: the edges between its children, and
// their steps.
type choiceGraph struct {
	next   [][]int
	places []Steps
}

// behind returns the children that wait for a child, directly or indirectly.
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

// LinkDecider is a decider on a link into the node of a choice.
type LinkDecider struct {
	Name  string
	Depth Depth
	// From are the steps at the start of its link, or the steps of a Question.
	From []Steps
	// Values are the values of a Question.
	Values []Wire
	// Of are the deciders of another node. If there are any, the answer is yes if one of them says
	// no, and From and Values are empty: see Otherwise.
	Of []LinkDecider

	decider  Decider
	question *Question
	outside  []int // steps outside the graph that the question asks
}

// Ask calls the decider.
func (v *LinkDecider) Ask(found Found) (yes bool, err error) {
	defer CatchPanic(&err)
	if v.question != nil {
		return v.question.Decide(found)
	}
	return v.decider(found.Steps)
}

// Choices are the choices of the plan. The slice belongs to the plan: do not write to it.
func (p *Plan) Choices() []Choice { return p.choices }

// ChoiceAt returns the index of the choice at a gate.
func (p *Plan) ChoiceAt(gate int) (int, bool) {
	choice, ok := p.choiceAt[gate]
	return choice, ok
}

// Ignored returns the steps that a no of this depth ignores, in order, if no step was ignored
// before.
func (p *Plan) Ignored(choice int, depth Depth) []int {
	return p.IgnoredBeside(choice, depth, func(int) bool { return false })
}

// IgnoredBeside is Ignored when other steps were ignored before. A step stays if each of its required values has a
// provider that is not ignored.
func (p *Plan) IgnoredBeside(choice int, depth Depth, ignored func(step int) bool) []int {
	if len(p.joins) == 0 || depth == DepthAtom {
		return p.reached(choice, depth)
	}
	return p.spread(choice, depth, ignored)
}

// reached returns the steps that a no reaches, in order, as if each step had one provider of each
// value.
func (p *Plan) reached(choice int, depth Depth) []int {
	c := &p.choices[choice]
	if depth == DepthAll {
		_, vertices := p.behind(c)
		return p.withoutLate(vertices[:sort.SearchInts(vertices, p.Len())])
	}
	var steps []int
	for _, child := range append([]int{c.child}, c.reached(depth)...) {
		part := c.graph.places[child]
		for step := part.First; step < part.End; step++ {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return p.withoutLate(steps)
}

// reached are the other children of the graph that a no reaches which is not DepthAll.
func (c *Choice) reached(depth Depth) []int {
	switch depth {
	case DepthFlow:
		return c.graph.behind(c.child)
	case DepthNeighbors:
		return c.graph.next[c.child]
	}
	return nil
}

// behind returns the vertices downstream of a choice, within its scope or its instance of an each,
// whichever is smaller: as flags by number, and as an ascending list.
func (p *Plan) behind(c *Choice) (seen []bool, vertices []int) {
	within := &Scope{End: p.Len(), GateFrom: p.Len(), GateEnd: len(p.next)}
	for i := range p.scopes {
		if p.scopes[i].Holds(c.Gate) {
			within = &p.scopes[i] // the innermost: those come last
		}
	}
	if instance := &p.instances[c.instance]; c.instance > 0 && (within.Retry < instance.Retry || within.End > instance.End) {
		within = instance
	}
	seen = make([]bool, len(p.next))
	stack := []int{c.Gate}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, next := range p.next[top] {
			if v := int(next); !seen[v] && within.Holds(v) {
				seen[v] = true
				stack = append(stack, v)
			}
		}
	}
	for v, found := range seen {
		if found {
			vertices = append(vertices, v)
		}
	}
	return seen, vertices
}

// placedGraph is a graph with deciders, and the vertices placed for it.
type placedGraph struct {
	flow     *Flow
	at       string // the numbers of the instance
	instance int32
	deciding map[string][]link
	next     [][]int
	gates    []int32 // by child, for children with deciders. Below 0: pruned
	places   []span
}

// decidingLinks are the links of a graph that have deciders, by the node they lead to. A link with
// Otherwise is one link for each node that must not run, without a start.
func decidingLinks(flow *Flow) map[string][]link {
	var found map[string][]link
	var alternatives []link
	for _, l := range flow.links {
		switch {
		case l.otherwise:
			alternatives = append(alternatives, l)
		case l.decides || l.question != nil:
			if found == nil {
				found = make(map[string][]link)
			}
			found[l.to] = append(found[l.to], l)
		}
	}
	chained := make(map[string][]link, len(alternatives))
	for _, l := range alternatives {
		seen := map[string]bool{l.to: true}
		for at := []string{l.from}; len(at) > 0; at = at[1:] {
			if of := found[at[0]]; len(of) > 0 && !seen[at[0]] {
				names := make([]string, len(of))
				for i := range of {
					names[i] = of[i].name
				}
				chained[l.to] = append(chained[l.to], link{to: l.to, name: "not (" + strings.Join(names, " and ") + ")", decides: true, depth: l.depth, of: of})
			}
			seen[at[0]] = true
			for _, earlier := range alternatives {
				if earlier.to == at[0] && !seen[earlier.from] {
					at = append(at, earlier.from)
				}
			}
		}
	}
	for to, links := range chained { // found is not nil: they are alternatives to something in it
		found[to] = append(found[to], links...)
	}
	return found
}

// checkLink reports the faults of one link.
func (c *compiler) checkLink(flow *Flow, l link) {
	switch {
	case l.question != nil:
		c.checkQuestion(flow, l)
	case l.otherwise && l.decides:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has both a decider and Otherwise; use one of them", flow.name, l.from, l.to)
	case l.otherwise:
		c.checkOtherwise(flow, l)
	case !l.decides && l.reaches:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has the option Reaching without a decider", flow.name, l.from, l.to)
	case l.depth < DepthAll || l.depth > DepthAtom:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has the unknown %s", flow.name, l.from, l.to, l.depth)
	case l.decides && l.decider == nil:
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has no decider", flow.name, l.from, l.to)
	case l.decides:
		if err := c.limits.CheckName("decider", l.name); err != nil {
			c.fault(ErrInvalid, "the link of graph %q from %q to %q: %w", flow.name, l.from, l.to, err)
		}
	}
}

// checkOtherwise reports an alternative to itself, or to a node without a decider.
func (c *compiler) checkOtherwise(flow *Flow, l link) {
	conditional, alternative, next := false, false, map[string][]string{}
	for _, other := range flow.links {
		conditional = conditional || other.to == l.from && (other.decides || other.question != nil)
		if other.otherwise {
			alternative = alternative || other.to == l.from
			next[other.to] = append(next[other.to], other.from)
		}
	}
	seen := map[string]bool{}
	for at := []string{l.from}; len(at) > 0; at = at[1:] {
		if at[0] == l.to {
			c.fault(ErrCycle, "in graph %q, %q is an alternative to itself", flow.name, l.to)
			return
		}
		if !seen[at[0]] {
			seen[at[0]] = true
			at = append(at, next[at[0]]...)
		}
	}
	switch {
	case conditional:
	case alternative: // both would be alternatives to the same conditions
		c.fault(ErrInvalid, "in graph %q, %q is an alternative to %q, which has no condition except Otherwise, so both would run: "+
			"give %q a decider too, or make %q an alternative to the same node as %q", flow.name, l.to, l.from, l.from, l.to, l.from)
	default:
		c.fault(ErrInvalid, "in graph %q, %q is an alternative to %q, which has no condition", flow.name, l.to, l.from)
	}
	if l.depth < DepthAll || l.depth > DepthAtom {
		c.fault(ErrInvalid, "the link of graph %q from %q to %q has the unknown %s", flow.name, l.from, l.to, l.depth)
	}
}

// numberChoices makes the choices of the plan.
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
				instance: int(placed.instance), id: ChoiceID{graph: placed.flow, at: placed.at, child: i}}
			choice.Deciders = decidersOf(links, graph, index)
			p.choiceAt[choice.Gate] = len(p.choices)
			p.choices = append(p.choices, choice)
		}
	}
}

// decidersOf are the deciders of links into one node of a graph.
func decidersOf(links []link, graph *choiceGraph, index map[string]int) []LinkDecider {
	deciders := make([]LinkDecider, len(links))
	for i, l := range links {
		deciders[i] = LinkDecider{Name: l.name, Depth: l.depth, decider: l.decider, question: l.question}
		switch {
		case len(l.of) > 0:
			deciders[i].Of = decidersOf(l.of, graph, index)
		case l.question != nil:
			deciders[i].From = l.question.inside(graph, index)
		default:
			deciders[i].From = []Steps{graph.places[index[l.from]]}
		}
	}
	return deciders
}

// leaves returns the deciders to evaluate: the choice's own deciders, and those of its
// alternatives.
func (c *Choice) leaves() []*LinkDecider {
	var leaves []*LinkDecider
	for i := range c.Deciders {
		leaves = append(leaves, c.Deciders[i].Leaves()...)
	}
	return leaves
}

// Leaves are the deciders that are evaluated: the deciders in Of, or without Of the decider itself.
func (v *LinkDecider) Leaves() []*LinkDecider {
	if len(v.Of) == 0 {
		return []*LinkDecider{v}
	}
	leaves := make([]*LinkDecider, len(v.Of)) // deciders of links, without alternatives
	for i := range v.Of {
		leaves[i] = &v.Of[i]
	}
	return leaves
}

// stepsOf returns the steps among the vertices of a span; their numbers are consecutive.
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
