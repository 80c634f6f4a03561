// Package flow defines flows: their steps, the order of the steps, and where each
// step's arguments come from.
//
// A Step is a named Task with what it requires and provides. A Flow orders
// steps and other flows, nested to any depth: Linear one after another,
// Unordered all at once, Graph by the values that they need. Compile turns a
// flow into a Plan, which package engine runs; it resolves every argument to
// its source and reports every fault of the flow at once, before anything
// runs. A Registry builds flows by name, so that a logbook holds names and
// arguments but never code.
//
// A flow of two steps. The first can be undone. The fields of their structs
// tie them together: city comes from the job's store, and room from the step before.
//
//	type order struct{ City string `json:"city"` }
//	type booked struct{ Room string `json:"room"` }
//	type paid struct{ Receipt string `json:"receipt"` }
//
//	func book(ctx context.Context, in order) (booked, error)
//	func cancel(ctx context.Context, in order, out *booked) error
//	func pay(ctx context.Context, in booked) (paid, error)
//
//	func trip(struct{}) (*flow.Flow, error) {
//		return flow.Linear("trip", flow.FuncRevert("book", book, cancel), flow.Func("pay", pay)), nil
//	}
//
// A worker registers it by flow.Register(registry, "trip", trip), and runs it by
// conductor.Run. A program posts it by jobs.NewPosting, with the kind "trip".
//
// # When a step fails
//
// A flow may have a Retrier: Times, ForEach and others, or one with a Controller
// of your own. When a step has failed for good (the attempts of its Retry option are used up),
// the innermost retry around it decides: undo its flow and begin it again,
// perhaps after a pause and with another value; leave the decision to the retry
// around it; or revert everything. Without a retry that tries again, everything
// is undone. OpenStack TaskFlow, when the outermost retry gives up, undoes only
// that retry's flow and calls the whole flow reverted, although the rest of it
// stays done.
//
// # Steps that do not run
//
// A Link of a graph may have a decider (Decide): a named predicate over the
// results so far. It decides whether the node behind the link runs or is ignored,
// with as much of what follows as Reaching says.
//
// # Where an argument comes from
//
// A step sees the values of all steps that must finish before it starts, in any
// flow, and never those of a step that may run at the same time. The first of
// these sources that has the argument counts:
//
//	1  injected values      Inject: visible to this step alone
//	2  the nearest provider among the steps before it
//	3  the store            the flow's values, overlaid by the job's
//	4  nothing              if the argument is optional; else ErrMissing
//
// Of several providers of one name, the nearest is the one that comes after all
// the others. If there is no such one, that is an error (ErrAmbiguous). A provider
// hides a value of the same name in the store; (*Plan).Shadowed reports that. This
// is the opposite of OpenStack TaskFlow, where a value given to the flow hides
// what steps produce: there, adding an input to a job silently disconnects steps
// from each other.
//
// # Once for each element of a list
//
// Each runs a part of a flow once for each element of a list that is known
// only when the flow runs. Compile checks it with one instance, the template.
// When the list is recorded, the plan grows: see Grown.
//
// # Plans
//
// (*Plan).Targeted is the plan of what must be done for some of the steps only.
// Flows and steps are not changed after Compile; a Plan is never changed and may
// be shared by many runs.
package flow

import (
	"fmt"
	"slices"
)

// Node is a part of a flow: a *Step or a *Flow.
type Node interface {
	// Name names the node among its siblings; the name of a step also names
	// it in the whole flow and in its logbook.
	Name() string
	node()
}

// Pattern is how a flow orders its children.
type Pattern string

// The patterns.
const (
	PatternLinear    Pattern = "linear"
	PatternUnordered Pattern = "unordered"
	PatternGraph     Pattern = "graph"
)

// Flow is an ordered set of steps and flows. Make one with Linear, Unordered
// or Graph.
type Flow struct {
	name     string
	pattern  Pattern
	children []Node
	links    []link
	retries  []*Retrier // more than one is a fault
	each     *each      // of one that Each has made; else nil

	onTakeover TakeoverPolicy // empty: that of the flow around it
}

type link struct {
	from, to string
	name     string // of the decider
	decider  Decider
	decides  bool // it was given a decider, nil or not
	depth    Depth
	reaches  bool // it was given a depth
}

// Linear runs its children one after another, each when all of the one before has finished.
func Linear(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternLinear, children: slices.Clone(children)}
}

// Unordered runs its children at once. No child sees the values that another provides.
func Unordered(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternUnordered, children: slices.Clone(children)}
}

// Graph runs a child when the children that provide what it requires have finished, and those
// that Link puts before it. A name that several children provide is ErrAmbiguous for a child that
// requires it, unless links put one of them before that child.
func Graph(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternGraph, children: slices.Clone(children)}
}

// Add appends children, and returns the flow.
func (f *Flow) Add(children ...Node) *Flow {
	f.children = append(f.children, children...)
	return f
}

// Link makes one child of a graph wait for another, by their names, and returns the graph. With the
// option Decide, it also decides whether the waiting child runs at all. Compile reports unknown
// names.
func (f *Flow) Link(from, to string, options ...LinkOption) *Flow {
	l := link{from: from, to: to}
	for _, option := range options {
		if option == nil {
			option = func(l *link) { l.decides = true } // and has no decider, as Compile will say
		}
		option(&l)
	}
	f.links = append(f.links, l)
	return f
}

// WithRetry puts the flow under a retry, and returns the flow. When a step in the flow, at any
// depth, fails, the innermost retry around the step decides about the flow under that retry. A
// retry without a name is named after the flow, with RetrySuffix.
func (f *Flow) WithRetry(r *Retrier) *Flow {
	if r != nil && r.step.name == "" {
		r.step.name = f.name + RetrySuffix
	}
	f.retries = append(f.retries, r)
	return f
}

// Retrier is the flow's own retry; nil if it has none.
func (f *Flow) Retrier() *Retrier {
	if len(f.retries) == 0 {
		return nil
	}
	return f.retries[0]
}

// Name is the flow's name.
func (f *Flow) Name() string { return f.name }

// Pattern is how the flow orders its children.
func (f *Flow) Pattern() Pattern { return f.pattern }

// Children are the flow's nodes in the order in which they were given.
func (f *Flow) Children() []Node { return slices.Clone(f.children) }

// String describes the flow in logs.
func (f *Flow) String() string {
	return fmt.Sprintf("%s flow %q of %d", f.pattern, f.name, len(f.children))
}

func (*Flow) node() {}
