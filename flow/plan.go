package flow

import (
	"maps"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Plan is a compiled flow: its steps in a possible order of execution, the steps that each one
// waits for, and the source of each argument. A Plan does not change and may be read
// concurrently.
//
// Each retry is a step too, the first of its flow: see Scope. Steps are numbered from 0 in that order. The graph of the
// plan also has *gates* as vertices. If all steps of one part wait for all steps of another part, a gate is between the
// two parts. This keeps the number of edges near the number of steps. Gates have the numbers from Len() on. A gate is
// done when all vertices before it are done. A Choice is at a gate.
type Plan struct {
	root      Node
	how       Compilation
	steps     []*Step
	index     map[string]int
	next      [][]int32 // by vertex
	previous  [][]int32
	inputs    map[string]bool // the names that the store was said to hold
	wires     [][]Wire        // by step
	reverts   [][]Wire
	scopes    []Scope
	scopeOf   map[int]int // by the step of the retry
	governors []int32     // by step
	choices   []Choice
	choiceAt  map[int]int                    // by gate
	workerOf  map[int]int                    // by step: the earlier step on whose worker it runs
	instances []Scope                        // the instances of each; the first is unused
	openers   []int                          // by instance: the number of its opening
	turns     []Turns                        // of each that limits its instances
	turnAt    map[int]TurnPlace              // by gate
	groups    []Group                        // flows whose members may fail
	groupAt   map[int]int                    // by gate: the group with Enough that ends there
	selecting map[*Flow]bool                 // of a template: the flows with Enough whose gate is left
	elements  []Element                      // the members of the groups
	elementOf []int32                        // by vertex: the index in elements; -1: none
	depths    []int                          // by step: the number of each flows around it
	grows     bool                           // there is an each
	undoLast  map[string]bool                // steps whose policy is UndoLast, by name
	holds     map[string]bool                // steps whose policy is HoldOnFailure, by name
	noReturn  bool                           // some step is a point of no return
	finals    []Final                        // of flows with on_error or final steps
	finalOf   map[int]int                    // by on_error or final step, and by the gate Start
	bodies    map[string][]string            // of a template: the steps of an instance, by the opening
	gathering map[string]bool                // of a template: the openings of each that gathers something
	provided  map[int][]logbook.DefinedValue // of a template: the values that the flow as a whole provides, by step
	consumed  [][]string                     // by step: fields of its result that others cannot do without
	joins     []join                         // the parts with an argument of several providers
	asked     map[int][]Wire                 // by the first step of a node: the values by which the node is decided
	joinedAt  map[int][]int                  // by vertex: the joins that are entered there
	made      []int32                        // by vertex: its place in the order in which vertices are made

	definition func() logbook.Definition // made at the first use
}

// The sources of wires other than steps.
const (
	FromStore   = -1
	FromNowhere = -2 // an optional argument without a provider
	FromStep    = -3 // a constant of the step: see Inject
	FromEach    = -4 // the list in Gathered
)

// Wire is an argument with its source.
type Wire struct {
	Argument
	// From is the number of the step that provides the argument, FromStore, FromNowhere, FromStep
	// or FromEach.
	From int
	// Field is the field of the provider's result; empty: the whole result.
	Field string
	// Part is the part of the provider's record. Index is set in a wire from the opening of an each
	// into an instance: the index of the element.
	Part  Part
	Index int
	// Gathered is the list of an each, with FromEach; else nil.
	Gathered *Gathered
	// Others are the sources to use if the step in From was skipped: the first one that was not
	// skipped supplies the value. The last one can be FromStore.
	Others []Wire
	// Late is set in the wires of on_error and final steps, which also take the results of reverted steps. If the step
	// in From has no result, Others apply.
	Late bool
}

// Sources are all sources of the argument, the preferred one first.
func (w *Wire) Sources() []Wire {
	first := *w
	first.Others = nil
	return append([]Wire{first}, w.Others...)
}

// Provider is the step whose skipping leaves the source without a value: the provider, or the opening of an each that
// gathers. False: the source is not a step.
func (w *Wire) Provider() (step int, ok bool) {
	if w.From == FromEach {
		return w.Gathered.Each, true
	}
	return w.From, w.From >= 0
}

// Name is the flow's name.
func (p *Plan) Name() string { return p.root.Name() }

// Root is the compiled node.
func (p *Plan) Root() Node { return p.root }

// Len is the number of steps.
func (p *Plan) Len() int { return len(p.steps) }

// Step is the step with a number.
func (p *Plan) Step(number int) *Step { return p.steps[number] }

// Steps are all steps, in the order of their numbers.
func (p *Plan) Steps() []*Step { return slices.Clone(p.steps) }

// Find returns the number of a step.
func (p *Plan) Find(name string) (number int, ok bool) {
	number, ok = p.index[name]
	return number, ok
}

// Arguments are the arguments of a step's execution with their sources. The slice belongs to the
// plan: do not write to it.
func (p *Plan) Arguments(step int) []Wire { return p.wires[step] }

// RevertArguments are the arguments of a step's revert with their sources.
func (p *Plan) RevertArguments(step int) []Wire { return p.reverts[step] }

// Consumed are the fields of a step's result that other steps require. The slice belongs to the
// plan: do not write to it.
func (p *Plan) Consumed(step int) []string { return p.consumed[step] }

// Inputs are the names that steps and deciders take from the store, sorted, optional ones included.
func (p *Plan) Inputs() []string {
	names := make(map[string]bool)
	for step := range p.steps {
		for _, wire := range slices.Concat(p.wires[step], p.reverts[step]) {
			for _, source := range wire.Sources() {
				if source.From == FromStore {
					names[wire.Symbol] = true
				}
			}
		}
	}
	for i := range p.choices {
		for _, decider := range p.choices[i].leaves() {
			for _, wire := range decider.Values {
				for _, source := range wire.Sources() {
					if source.From == FromStore {
						names[wire.Symbol] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Vertices is the number of steps and gates.
func (p *Plan) Vertices() int { return len(p.next) }

// Next are the vertices that wait for this one. The slice belongs to the plan: do not write to
// it.
func (p *Plan) Next(vertex int) []int32 { return p.next[vertex] }

// Previous are the vertices that this one waits for. The slice belongs to the plan: do not write
// to it.
func (p *Plan) Previous(vertex int) []int32 { return p.previous[vertex] }

// Predecessors are the steps that a step waits for, directly or through gates.
func (p *Plan) Predecessors(step int) []int { return p.through(step, p.previous) }

// Successors are the steps that wait for a step, directly or through gates.
func (p *Plan) Successors(step int) []int { return p.through(step, p.next) }

func (p *Plan) through(step int, edges [][]int32) []int {
	seen := make(map[int]bool)
	stack := []int{step}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, vertex := range edges[top] {
			if v := int(vertex); !seen[v] {
				seen[v] = true
				if v >= len(p.steps) {
					stack = append(stack, v)
				}
			}
		}
	}
	maps.DeleteFunc(seen, func(v int, _ bool) bool { return v >= len(p.steps) })
	return slices.Sorted(maps.Keys(seen))
}
