// Package graph draws a flow as SVG: a box for each step, an arrow from each step to each step
// that waits for it.
//
// Its nouns: a Part is a step, or a flow with its own parts. A Picture is a Part that is laid out:
// Boxes and Lines with coordinates. A part is open or folded. An open part shows its parts in a
// frame; a folded part is one box that counts steps by state. A part with too many parts groups them
// in folds.
//
// The coordinates depend only on the structure and on the open parts: the same flow has the same
// picture, and a change of a state moves nothing. Nothing here reads a clock or keeps anything.
package graph

import (
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// Kind is the kind of a Part.
type Kind int

// The kinds.
const (
	Step  Kind = iota
	Retry      // the atom that makes decisions for its flow
	List       // the atom with the list of an each
	Flow       // a flow in the flow
	Each       // a flow that runs once for each element of a list
	Fold       // parts that are combined only because there are too many
)

// kinds are the kinds of atoms; other atoms have kind Step.
var kinds = map[logbook.AtomKind]Kind{logbook.KindRetry: Retry, logbook.KindEach: List}

// Part is a step of a flow, or a flow.
type Part struct {
	Name     string
	Kind     Kind
	Only     string                // the conditions under which it, or the part that it opens, runs; empty: always
	Atoms    []*logbook.AtomDetail // of a step: its record, or the records of its instances; none: it has not started
	Parts    []*Part
	NoReturn bool // it is a point of no return
	OnError  bool // it is an on_error step
	Finally  bool // it is a finally step
	// Edges are between Parts, by index: To waits for From. They form no cycle: an edge that
	// closes one is not drawn.
	Edges []Edge

	counts Counts // of all steps in it; set by Draw
}

// Edge leads from one part to another.
type Edge struct{ From, To int }

// Counts are numbers of steps by the index of their state in States.
type Counts [len(States)]int

// Status describes a state of steps for display.
type Status struct {
	State logbook.AtomState
	Sign  string
	Name  string // and the class in the picture
}

// States are the states of steps, the most urgent first.
var States = [...]Status{
	{logbook.AtomRevertFailure, "‼", "revert-failure"},
	{logbook.AtomFailure, "✕", "failure"},
	{logbook.AtomReverting, "◀", "reverting"},
	{logbook.AtomRetrying, "↻", "retrying"},
	{logbook.AtomRunning, "▶", "running"},
	{AwaitsWorker, "·", "waits-for-worker"},
	{logbook.AtomPending, "○", "pending"},
	{logbook.AtomReverted, "↶", "reverted"},
	{nothingToUndo, "-", "nothing-to-undo"},
	{notNeeded, "-", "not-needed"},
	{failureIgnored, "✕", "failure-ignored"},
	{logbook.AtomSuccess, "✓", "success"},
	{logbook.AtomIgnored, "⊘", "ignored"},
}

// AwaitsWorker is shown as the state of a step that no worker has taken.
const AwaitsWorker logbook.AtomState = "waits for a worker"

// nothingToUndo is shown as the state of a step that counts as reverted without a revert.
const nothingToUndo logbook.AtomState = "nothing to undo"

// notNeeded is shown as the state of a step whose member was dropped, because enough others have succeeded.
const notNeeded logbook.AtomState = "not needed"

// failureIgnored is shown as the state of a step that has failed, and whose flow continues.
const failureIgnored logbook.AtomState = "failure ignored"

// PlaceOf is the index in States of what is shown as the state of a step.
func PlaceOf(atom *logbook.AtomDetail) int {
	if atom.AwaitsWorker() {
		return Place(AwaitsWorker)
	}
	if atom.IsDropped() && atom.State == logbook.AtomReverted {
		return Place(notNeeded)
	}
	if atom.NothingUndone() {
		return Place(nothingToUndo)
	}
	if atom.FailureIgnored() {
		return Place(failureIgnored)
	}
	return Place(atom.State)
}

// Place is the index of a state in States. A step without a state is pending.
func Place(state logbook.AtomState) int {
	for i := range States {
		if States[i].State == state {
			return i
		}
	}
	return Place(logbook.AtomPending)
}

// Of makes the parts of a flow. With a plan, the result has all steps in their order. Without a
// plan, the order is unknown: the result has the recorded steps, without edges.
func Of(detail *logbook.FlowDetail, plan *flow.Plan) *Part {
	b := builder{leaves: map[string]*Part{}}
	root := &Part{Name: detail.Name, Kind: Flow}
	if plan == nil {
		b.recorded(root, detail)
	} else {
		b.planned(root, plan.Template())
	}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		if leaf := b.leaf(atom.Name); leaf != nil {
			leaf.Atoms = append(leaf.Atoms, atom)
		}
	}
	return root
}

// count counts the steps of a part, by state. Retries and lists are counted only in their own box.
func (p *Part) count() {
	p.counts = Counts{}
	for _, part := range p.Parts {
		part.count()
		p.counts.add(part)
	}
	if p.Kind != Step && !p.decides() {
		return
	}
	for _, atom := range p.Atoms {
		p.counts[PlaceOf(atom)]++
	}
	if len(p.Atoms) == 0 {
		p.counts[Place("")]++
	}
}

// decides reports whether a part is the retry of its flow, or the list of an each. Such parts are no steps.
func (p *Part) decides() bool { return p.Kind == Retry || p.Kind == List }

// add adds the steps of a part.
func (c *Counts) add(part *Part) {
	if part.decides() {
		return
	}
	for i, n := range part.counts {
		c[i] += n
	}
}

// builder makes the parts of one flow.
type builder struct {
	plan   *flow.Plan
	leaves map[string]*Part // by step name
	around map[*Part]*Part  // the containing part of each
	index  map[*Part]int    // in the containing part
	first  map[*Part]int    // the number of its first step
}

// leaf is the part for a step, or for an instance of a step.
func (b *builder) leaf(name string) *Part {
	for ok := true; ok; name, ok = logbook.CutInstance(name) {
		if leaf := b.leaves[name]; leaf != nil {
			return leaf
		}
	}
	return nil
}

func (b *builder) recorded(root *Part, detail *logbook.FlowDetail) {
	points, errors, finals := detail.Definition.Points(), detail.Definition.ErrorSteps(), detail.Definition.Finals()
	add := func(name string, kind logbook.AtomKind) {
		if b.leaf(name) == nil {
			leaf := &Part{Name: name, Kind: kinds[kind], NoReturn: logbook.IsPoint(points, name), OnError: logbook.IsPoint(errors, name), Finally: logbook.IsPoint(finals, name)}
			root.Parts, b.leaves[name] = append(root.Parts, leaf), leaf
		}
	}
	if detail.Definition != nil {
		if steps, err := detail.Definition.Steps(); err == nil { // otherwise only the started steps are known
			for i := range steps {
				add(steps[i].Name, steps[i].Kind)
			}
		}
	}
	for i := range detail.Atoms {
		add(detail.Atoms[i].Name, detail.Atoms[i].Kind)
	}
}

func (b *builder) planned(root *Part, plan *flow.Plan) {
	b.plan, b.around, b.index, b.first = plan, map[*Part]*Part{}, map[*Part]int{}, map[*Part]int{}
	b.parts(root, plan.Tree())
	b.connect(root)
}

// parts adds the parts of a flow.
func (b *builder) parts(p *Part, t *flow.Tree) {
	for _, inner := range t.Visible() {
		part := &Part{Name: inner.Name(), Only: inner.Only, Kind: Flow}
		b.around[part], b.index[part], b.first[part] = p, len(p.Parts), inner.First
		p.Parts = append(p.Parts, part)
		if inner.Step != nil {
			part.Kind, b.leaves[part.Name] = kinds[inner.Step.Kind()], part
			part.NoReturn, part.OnError, part.Finally = inner.Step.PointOfNoReturn(), inner.Step.IsOnError(), inner.Step.IsFinal()
			continue
		}
		if inner.Flow.Pattern() == flow.PatternEach {
			part.Kind = Each
		}
		b.parts(part, inner)
	}
}

// connect makes the edges in a part. A flow waits as a whole for its predecessors, so the
// predecessors of its first step are the predecessors of the flow.
func (b *builder) connect(p *Part) {
	for i, part := range p.Parts {
		for _, before := range b.plan.Predecessors(b.first[part]) {
			up := b.leaves[b.plan.Step(before).Name()]
			for up != nil && b.around[up] != p {
				up = b.around[up]
			}
			if up != nil {
				p.Edges = append(p.Edges, Edge{b.index[up], i})
			}
		}
		b.connect(part)
	}
}

// Find returns the step with a name, or the step of an instance with this name; nil: none.
func (p *Part) Find(name string) *Part {
	for {
		if found := p.find(name); found != nil {
			return found
		}
		base, ok := logbook.CutInstance(name)
		if !ok {
			return nil
		}
		name = base
	}
}

func (p *Part) find(name string) *Part {
	if len(p.Parts) == 0 && p.Name == name {
		return p
	}
	for _, part := range p.Parts {
		if found := part.find(name); found != nil {
			return found
		}
	}
	return nil
}

// Walk calls a function for the record of each step in a part.
func (p *Part) Walk(do func(*logbook.AtomDetail)) {
	for _, atom := range p.Atoms {
		do(atom)
	}
	for _, part := range p.Parts {
		part.Walk(do)
	}
}
