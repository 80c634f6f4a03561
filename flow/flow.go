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
// # Where an argument comes from
//
// A step sees what is provided by the steps that are finished before it may
// start, in whichever flow they stand, and never what a step beside it
// provides. Of several such providers of one name the nearest counts: the one
// that comes after all the others. Two of which neither comes after the other
// are an error (ErrAmbiguous), never a choice. Only a name that no visible
// step provides is looked for in the store: a provider hides a store value of
// the same name. This is the opposite of OpenStack TaskFlow, where a value
// given to the flow hides what steps produce: there, adding an input to a job
// silently disconnects steps from each other.
//
// Flows and steps are built once and not changed after Compile; a Plan is
// never changed and may be shared by many runs.
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
}

type link struct{ from, to string }

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
// returns the graph. Compile reports names that are not there.
func (f *Flow) Link(from, to string) *Flow {
	f.links = append(f.links, link{from: from, to: to})
	return f
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
