// Package flow says what is to be run: steps, how they are ordered, and where
// each one's arguments come from.
//
// A Step is a named Task with what it requires and provides. A Flow orders
// steps and other flows, nested to any depth: Linear one after another,
// Unordered all at once, Graph by who needs whose result. Compile turns a
// flow into a Plan, which package engine runs; it resolves every argument to
// its source and reports every fault of the flow at once, before anything
// runs. A Registry builds flows by name, so that a logbook holds names and
// arguments but never code.
//
// # When a step fails
//
// A flow may stand under a Retrier: Times, ForEach and others, or one that
// asks a Controller of your own. When a step has failed for good (its own
// RetryPolicy used up), the innermost retry around it decides: to undo its
// flow and begin it again, perhaps after a pause and with another value; to
// leave it to the retry around; or to revert everything. Without a retry, or
// with none that wants to try again, everything that was done is undone.
// OpenStack TaskFlow undoes only the innermost flow where its retry gives up
// and none stands around it, and calls the whole REVERTED: a flow that is
// half done and says it is not.
//
// # When a step is not to run
//
// A Link of a graph may have a decider (Decide): a named predicate over the
// results so far that says whether the node it leads to is run, or ignored
// with as much of what follows as Reaching says.
//
// # Where an argument comes from
//
// A step sees what is provided by the steps that are finished before it may
// start, in whichever flow they stand, and never what a step beside it
// provides. What it is given for an argument is the first of these that there is:
//
//	1  what it injects      Inject: seen by this step alone
//	2  the nearest provider among the steps before it
//	3  the store            the flow's values, and over them those of the job
//	4  nothing              if the argument is optional; else ErrMissing
//
// Of several providers of one name the nearest is the one that comes after all
// the others. Two of which neither comes after the other are an error
// (ErrAmbiguous), never a choice. A provider hides a value of the same name in
// the store, and (*Plan).Shadowed tells where. This is the opposite of
// OpenStack TaskFlow, where a value given to the flow hides what steps
// produce: there, adding an input to a job silently disconnects steps from
// each other.
//
// # Once for each element of a list
//
// Each runs a part of a flow once for each element of a list that is known
// only when the flow runs. Compile checks it with one instance, the template;
// the plan grows, from what is recorded, when the list is there: see Grown.
//
// # What is built, and what is run
//
// (*Plan).Targeted is the plan of what must be done for some of the steps, and
// of nothing else. Flows and steps are built once and not changed after
// Compile; a Plan is never changed and may be shared by many runs.
package flow

import (
	"fmt"
	"slices"
)

// Node is what a flow holds: a *Step or a *Flow.
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
}

type link struct {
	from, to string
	name     string // of the decider
	decider  Decider
	decides  bool // it was given a decider, nil or not
	depth    Depth
	reaches  bool // it was given a depth
}

// Linear runs its children one after another, each when the one before has
// finished as a whole.
func Linear(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternLinear, children: slices.Clone(children)}
}

// Unordered runs its children at once. What one of them provides is not
// visible to the others.
func Unordered(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternUnordered, children: slices.Clone(children)}
}

// Graph runs a child when the children that provide what it requires have
// finished, and those that Link puts before it. A name that several children
// provide is ErrAmbiguous to whoever requires it, unless links already put
// one of them before it.
func Graph(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternGraph, children: slices.Clone(children)}
}

// Add puts further children after those that the flow has, and returns the flow.
func (f *Flow) Add(children ...Node) *Flow {
	f.children = append(f.children, children...)
	return f
}

// Link makes one child of a graph wait for another, by their names, and
// returns the graph. With the option Decide, it also decides whether that one
// is run at all. Compile reports names that are not there.
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

// WithRetry puts the flow under a retry, and returns the flow. When one of its
// steps fails, in whichever flow inside it, the innermost retry around the
// step decides what becomes of the flow under that retry. One without a name is
// named after the flow, with RetrySuffix.
func (f *Flow) WithRetry(r *Retrier) *Flow {
	if r != nil && r.step.name == "" {
		r.step.name = f.name + RetrySuffix
	}
	f.retries = append(f.retries, r)
	return f
}

// Retrier is the retry that the flow stands under by itself; nil if none.
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
