package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/conductord/conductord/logbook"
)

// MaxNesting limits the depth of nested flows, and so the recursion over documents from outside.
const MaxNesting = 100

// Compilation configures how a flow is compiled. Its zero value compiles a whole flow
// with an empty store, within the largest limits.
type Compilation struct {
	// Limits must not exceed logbook.MaxLimits. Zero: logbook.MaxLimits.
	Limits logbook.Limits
	// Inputs are the names that the store will hold.
	Inputs []string
	// Targets limit the plan to these steps and what they need: see Plan.Targeted. None: the
	// whole flow.
	Targets []string

	// Set by Grown: the plan to grow, and the number of elements of each opening.
	template *Plan
	sizes    map[string]int
}

// Compile makes a plan of a flow, or of a single step. The inputs are the names that the
// store will hold. All faults are reported at once, joined: see the errors of this
// package.
func Compile(root Node, inputs ...string) (*Plan, error) {
	return Compilation{Inputs: inputs}.Compile(root)
}

// CompileWithin is Compile with lower limits.
func CompileWithin(limits logbook.Limits, root Node, inputs ...string) (*Plan, error) {
	return Compilation{Limits: limits, Inputs: inputs}.Compile(root)
}

// Compile makes a plan of a flow, or of a single step.
func (o Compilation) Compile(root Node) (*Plan, error) {
	if root == nil {
		return nil, fmt.Errorf("cannot compile: %w: no flow", ErrInvalid)
	}
	if o.Limits == (logbook.Limits{}) {
		o.Limits = logbook.MaxLimits
	}
	c := newCompiler(o, root)
	// Without a sound tree, the other stages have no meaning.
	if c.survey(root, nil); c.broken {
		return nil, c.failed(root)
	}
	c.checkNumberedNames()
	c.checkFailureNames()
	c.place(root, nil)
	for _, stage := range []func(){c.prune, c.number, c.resolve} {
		if len(c.faults) > 0 {
			return nil, c.failed(root)
		}
		stage()
	}
	if len(c.faults) > 0 {
		return nil, c.failed(root)
	}
	c.plan.definition = sync.OnceValue(c.plan.define)
	return c.plan, nil
}

// compiler holds one compilation. Its stages: survey (is the tree sound?), place (make
// vertices and edges), prune (remove what no target needs), number (topological order),
// resolve (find the sources of arguments).
type compiler struct {
	Compilation
	limits logbook.Limits
	plan   *Plan
	faults []error
	broken bool // the tree cannot be placed

	seen    map[Node]bool
	names   map[string]bool
	symbols map[*Flow]*interfaceOf
	values  map[string]bool // the names of all values that the flow provides and the store holds

	// Vertices while they are placed: gates have no step.
	vertices []*Step
	edges    [][]int32
	spans    []span // of retries
	open     []int  // the spans that are being placed, outermost first
	takeover TakeoverPolicy
	failure  FailurePolicy
	graphs   []placedGraph // those with deciders
	nodes    []span        // steps and flows in the order in which they are placed
	node     int           // the node that is placed

	// Of each: the instance that is placed, and where values are seen.
	at         string     // the numbers of the instance
	instance   int32      // of the instance
	instances  []instance // the first is the flow
	instanceOf []int32    // by vertex
	turns      []placedTurns
	closings   []closing         // of openings that gather
	groups     []placedGroup     // flows whose members may fail
	ends       map[int32][]int32 // by opening: the vertices at the end of the each
	inner      map[string]bool   // the steps inside an each
	continues  string            // the step that continues the job; empty: none
	ignoring   map[string]bool   // the steps whose failure is ignored
	numbers    []int32           // by vertex, once it is numbered
	openFinal  []int32           // the gates of flows with on_error or final steps that are being placed
	finals     []placedFinal     // inner ones first
}

func newCompiler(o Compilation, root Node) *compiler {
	c := &compiler{Compilation: o, limits: o.Limits, plan: &Plan{root: root, how: o, index: make(map[string]int), inputs: make(map[string]bool), undoLast: make(map[string]bool), holds: make(map[string]bool)},
		seen: make(map[Node]bool), names: make(map[string]bool), symbols: make(map[*Flow]*interfaceOf), values: make(map[string]bool),
		node: -1, instances: []instance{{parent: -1}}, ends: make(map[int32][]int32), inner: make(map[string]bool), ignoring: make(map[string]bool)}
	for _, input := range o.Inputs {
		c.plan.inputs[input], c.values[input] = true, true
	}
	return c
}

// cut splits the symbol of an argument into the name of a value and a path inside it.
func (c *compiler) cut(symbol string) (name, path string) {
	return CutPath(symbol, func(name string) bool { return c.values[name] })
}

func (c *compiler) fault(kind error, format string, arguments ...any) {
	c.faults = append(c.faults, fmt.Errorf("%w: "+format, append([]any{kind}, arguments...)...))
}

// fatal reports a fault after which the tree cannot be examined further.
func (c *compiler) fatal(kind error, format string, arguments ...any) {
	c.broken = true
	c.fault(kind, format, arguments...)
}

func (c *compiler) failed(root Node) error {
	name := "nil"
	if !isNil(root) {
		name = root.Name()
	}
	return fmt.Errorf("cannot compile flow %q: %w", name, errors.Join(c.faults...))
}

func isNil(node Node) bool {
	switch n := node.(type) {
	case *Step:
		return n == nil
	case *Flow:
		return n == nil
	}
	return true
}

// survey walks the tree once, and checks names, sizes, and that no node occurs twice.
func (c *compiler) survey(node Node, path []Node) {
	switch {
	case isNil(node):
		c.fatal(ErrInvalid, "%s contains nil in place of a step or flow", pathNames(path))
		return
	case len(path) > MaxNesting:
		c.fatal(ErrTooLarge, "flows are nested more than %d levels deep", MaxNesting)
		return
	case c.seen[node]:
		c.fatal(repeatKind(node, path), "%s occurs twice in the flow: at %s", quoted(node), pathNames(append(path, node)))
		return
	}
	c.seen[node] = true
	if err := c.limits.CheckName(nodeKind(node)+" name", node.Name()); err != nil {
		c.fault(ErrInvalid, "%s: %w", pathNames(append(path, node)), err)
	}
	switch n := node.(type) {
	case *Step:
		c.surveyStep(n)
		c.checkInstanceName(n, path)
		c.checkMember(n, path)
		c.surveyAgain(n, path)
	case *Flow:
		c.checkTimeout(n, len(path) > 0)
		path = append(path, n)
		c.surveyRetries(n, path)
		if n.onTakeover != "" && !slices.Contains(TakeoverPolicies, n.onTakeover) {
			c.fault(ErrInvalid, "%s has the unknown takeover policy %.64q; use one of %s", quoted(n), n.onTakeover, TakeoverPolicies)
		}
		if n.onFailure != "" && !slices.Contains(FailurePolicies, n.onFailure) {
			c.fault(ErrInvalid, "%s has the unknown failure policy %.64q; use one of %s", quoted(n), n.onFailure, FailurePolicies)
		}
		if n.each != nil {
			c.surveyEach(n, path)
		}
		c.surveyEnough(n, path)
		for _, child := range n.children {
			c.survey(child, path)
		}
		c.surveyLate(n, path, "on_error", n.onError)
		c.surveyLate(n, path, "finally", n.finals)
	}
}

// surveyRetries checks the retry of a flow. A retry may govern one flow only, and a flow
// may have one retry only.
func (c *compiler) surveyRetries(flow *Flow, path []Node) {
	if len(flow.retries) > 1 {
		c.fatal(ErrDuplicate, "%s has %d retries; put a flow around it for each further retry", quoted(flow), len(flow.retries))
	}
	for _, retry := range flow.retries {
		switch {
		case retry == nil || retry.step == nil:
			c.fatal(ErrInvalid, "%s has a nil retry", quoted(flow))
		case c.seen[retry.step]:
			c.fatal(ErrDuplicate, "retry %q belongs to two flows, the second at %s", retry.Name(), pathNames(path))
		default:
			c.survey(retry.step, path)
		}
	}
}

func (c *compiler) surveyStep(step *Step) {
	c.faults = append(c.faults, step.faults...)
	if step.version != "" {
		if err := c.limits.CheckName("version", step.version); err != nil {
			c.fault(ErrInvalid, "step %q: %w", step.name, err)
		}
	}
	if err := c.limits.CheckValues("injected value", step.injected); err != nil {
		c.fault(ErrInvalid, "step %q: %w", step.name, err)
	}
	if c.ignoring[step.name] = step.ignoresFailure; step.ignoresFailure {
		c.surveyIgnored(step)
		c.values[FailureName(step.name)] = true
	}
	if c.names[step.name] {
		c.fault(ErrDuplicate, "two steps are named %q", step.name)
	}
	c.names[step.name] = true
	for _, provision := range step.provides {
		c.values[provision.Symbol] = true
	}
	if len(c.names) == c.limits.Steps+1 {
		c.fatal(ErrTooLarge, "it has more than %d steps", c.limits.Steps)
	}
}

// repeatKind distinguishes a flow that contains itself from a node in two places.
func repeatKind(node Node, path []Node) error {
	for _, above := range path {
		if above == node {
			return ErrCycle
		}
	}
	return ErrDuplicate
}

func pathNames(path []Node) string {
	if len(path) == 0 {
		return "the flow"
	}
	names := make([]string, len(path))
	for i, node := range path {
		names[i] = node.Name()
	}
	return fmt.Sprintf("%q", strings.Join(names, " / "))
}

func quoted(node Node) string {
	if _, ok := node.(*Step); ok {
		return fmt.Sprintf("step %q", node.Name())
	}
	return fmt.Sprintf("flow %q", node.Name())
}

// place adds a node's vertices after the vertices in before, and returns the node's last vertices.
func (c *compiler) place(node Node, before []int32) []int32 {
	number := len(c.nodes)
	c.nodes, c.node = append(c.nodes, span{from: len(c.vertices), parent: c.node}), number
	defer func() { c.nodes[number].end, c.node = len(c.vertices), c.nodes[number].parent }()
	flow, ok := node.(*Flow)
	if !ok {
		if !c.keeps(node.(*Step)) {
			return before
		}
		return []int32{c.vertex(c.own(node.(*Step)), before)}
	}
	if len(flow.links) > 0 && flow.pattern != PatternGraph {
		c.fault(ErrInvalid, "flow %q is %s and has links; only a graph can have links", flow.name, flow.pattern)
	}
	takeover, failure := c.takeover, c.failure
	c.takeover, c.failure = cmp.Or(flow.onTakeover, takeover), cmp.Or(flow.onFailure, failure)
	defer func() { c.takeover, c.failure = takeover, failure }()
	before = c.enter(flow, c.openFinals(flow, before))
	ends := c.placeBody(flow, before)
	c.leave(flow)
	return c.closeFinals(flow, ends)
}

// placeBody places the children of a flow, and returns the vertices at their end.
func (c *compiler) placeBody(flow *Flow, before []int32) []int32 {
	switch flow.pattern {
	case PatternLinear:
		for _, child := range flow.children {
			before = c.place(child, before)
		}
		return before
	case PatternUnordered:
		return c.placeUnordered(flow, before)
	case PatternEach:
		return c.placeEach(flow, before)
	default:
		return c.placeGraph(flow, before)
	}
}

// holdsStep reports whether a step is among the vertices of a span.
func (c *compiler) holdsStep(s span) bool {
	return slices.ContainsFunc(c.vertices[s.from:s.end], func(step *Step) bool { return step != nil })
}

func (c *compiler) placeUnordered(flow *Flow, before []int32) []int32 {
	if len(flow.children) == 0 {
		return before
	}
	if len(flow.children) > 1 {
		before = c.gate(before)
	}
	ends, places := make([][]int32, len(flow.children)), make([]span, len(flow.children))
	for i, child := range flow.children {
		places[i].from = len(c.vertices)
		ends[i] = c.place(child, before)
		places[i].end = len(c.vertices)
	}
	return c.placeGroup(flow, places, union(ends))
}

func (c *compiler) placeGraph(flow *Flow, before []int32) []int32 {
	wiring := c.wire(flow)
	order, ok := c.sort(flow, wiring)
	if !ok || len(order) == 0 {
		return before
	}
	if len(order) > 1 {
		before = c.gate(before)
	}
	ends := make([][]int32, len(flow.children))
	gates, places := make([]int32, len(flow.children)), make([]span, len(flow.children))
	deciding := decidingLinks(flow)
	var last [][]int32
	for _, child := range order {
		behind := before
		if previous := wiring.previous[child]; len(previous) > 0 {
			if flow.selects {
				c.fault(ErrInvalid, "%s has enough, and its member %q waits for member %q; members run in parallel: put both into one member", quoted(flow), flow.children[child].Name(), flow.children[previous[0]].Name())
			}
			sets := make([][]int32, len(previous))
			for i, earlier := range previous {
				sets[i] = ends[earlier]
			}
			behind = union(sets)
		}
		if len(deciding[flow.children[child].Name()]) > 0 {
			behind = []int32{c.vertex(nil, behind)}
		}
		gates[child], places[child].from = int32(len(c.vertices)-1), len(c.vertices)
		ends[child] = c.place(flow.children[child], behind)
		places[child].end = len(c.vertices)
		if links := deciding[flow.children[child].Name()]; len(links) > 0 && c.template == nil && !c.holdsStep(places[child]) {
			c.fault(ErrInvalid, "decider %q decides about a flow without steps", links[0].name)
		}
		switch len(wiring.next[child]) {
		case 0:
			last = append(last, ends[child])
		case 1:
		default:
			ends[child] = c.gate(ends[child])
		}
	}
	if len(deciding) > 0 {
		c.graphs = append(c.graphs, placedGraph{flow: flow, at: c.at, instance: c.instance, deciding: deciding, next: wiring.next, gates: gates, places: places})
	}
	return c.placeGroup(flow, places, union(last))
}

// gate adds one vertex after all vertices of before. With a gate, n steps can wait for m steps
// with n+m edges instead of n×m.
func (c *compiler) gate(before []int32) []int32 {
	if len(before) < 2 {
		return before
	}
	return []int32{c.vertex(nil, before)}
}

func (c *compiler) vertex(step *Step, before []int32) int32 {
	id := int32(len(c.vertices))
	if step != nil && (step.atMostOnce || step.repeatable) && len(c.open) > 0 {
		c.fault(ErrInvalid, "step %q %s, and is in a flow with retry %q, which could run the step again", step.name,
			map[bool]string{true: "runs at most once", false: "is repeatable"}[step.atMostOnce], c.vertices[c.spans[c.open[len(c.open)-1]].from].name)
	}
	if step != nil && c.takeover == UndoLast {
		c.plan.undoLast[step.name] = true
	}
	if step != nil && c.failure == HoldOnFailure {
		c.plan.holds[step.name] = true
	}
	c.plan.noReturn = c.plan.noReturn || step != nil && step.noReturn
	c.vertices, c.instanceOf = append(c.vertices, step), append(c.instanceOf, c.instance)
	c.edges = append(c.edges, nil)
	for _, v := range before {
		c.edges[v] = append(c.edges[v], id)
	}
	return id
}

// union joins sets of vertices in one pass, because wide flows have thousands of them. Sets
// may overlap: the end of an empty flow is the set of vertices before that flow.
func union(sets [][]int32) []int32 {
	if len(sets) == 1 {
		return sets[0]
	}
	var joined []int32
	seen := make(map[int32]bool)
	for _, set := range sets {
		for _, v := range set {
			if !seen[v] {
				seen[v] = true
				joined = append(joined, v)
			}
		}
	}
	return joined
}

// number gives steps their numbers. Each vertex is made after the vertices that it waits for,
// so the order is topological already. number only moves the gates after the steps.
func (c *compiler) number() {
	steps := 0
	for _, step := range c.vertices {
		if step != nil {
			steps++
		}
	}
	if steps > c.limits.Steps {
		c.fault(ErrTooLarge, "with the elements of its lists, it has %d steps; the limit is %d", steps, c.limits.Steps)
		return
	}
	numbers := make([]int32, len(c.vertices))
	c.numbers = numbers
	step, gate := 0, steps
	c.plan.steps = make([]*Step, steps)
	for v, s := range c.vertices {
		if s == nil {
			numbers[v] = int32(gate)
			gate++
			continue
		}
		numbers[v] = int32(step)
		c.plan.steps[step], c.plan.index[s.name] = s, step
		step++
	}
	c.plan.made = make([]int32, len(numbers))
	for v, number := range numbers {
		c.plan.made[number] = int32(v)
	}
	c.numberScopes(numbers)
	c.numberInstances(numbers)
	c.numberGroups(numbers)
	c.numberTurns(numbers)
	c.numberChoices(numbers)
	c.numberFinals(numbers)
	c.plan.next = make([][]int32, len(c.vertices))
	c.plan.previous = make([][]int32, len(c.vertices))
	for v, edges := range c.edges {
		for _, w := range edges {
			from, to := numbers[v], numbers[w]
			c.plan.next[from] = append(c.plan.next[from], to)
			c.plan.previous[to] = append(c.plan.previous[to], from)
		}
	}
}

// nodeKind is the kind of a node for display.
func nodeKind(node Node) string {
	step, ok := node.(*Step)
	switch {
	case !ok:
		return "flow"
	case step.Kind() == logbook.KindTask:
		return "step"
	}
	return string(step.Kind())
}
