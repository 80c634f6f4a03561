// Package flow defines flows: their steps, the order of the steps, and the source of each
// argument.
//
// A Step is a named Task with the values that it requires and provides. A Flow orders steps and
// nested flows: Linear runs them one after another, Unordered in parallel, Graph by the values
// that they need. Compile turns a flow into a Plan, which package engine runs. It resolves every
// argument to its source, and reports all faults of the flow at once, before anything runs. A
// Registry builds flows by name: a logbook holds names and arguments, but never code.
//
// The example is a flow of two steps; the first can be undone. The fields of the structs
// connect the steps: city comes from the job's store, room from the first step.
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
// A worker registers the flow with flow.Register(registry, "trip", trip), and runs it with
// conductor.Run. A program posts it with jobs.NewPosting, as the kind "trip".
//
// # When a step fails
//
// A flow can have a Retrier: Times, ForEach and others, or one with a Controller of your own.
// When a step has failed permanently (the attempts of its Retry option are used up), the
// innermost retry around the step decides. It can
//
//   - revert its flow and start it again, possibly after a pause and with another value;
//   - leave the decision to the retry around it;
//   - or revert everything.
//
// If no retry starts its flow again, everything is reverted. OpenStack TaskFlow differs: when the
// outermost retry gives up, it reverts only that retry's flow. It then calls the whole flow
// reverted, although the rest of the flow stays done.
//
// # Steps that do not run
//
// A Link of a graph can have a decider (Decide): a named predicate over the results so far. The
// decider chooses whether the node at the end of the link runs or is ignored. Reaching sets how many of
// the following steps are ignored with the node.
//
// # Where an argument comes from
//
// A step sees the values of all steps that must finish before it starts, in any flow. It never
// sees the values of a step that can run at the same time. The first source that has the argument
// wins:
//
//	1  injected values      Inject: visible to this step alone
//	2  the nearest provider among the steps before it
//	3  the store            the flow's values, overlaid by the job's
//	4  nothing              if the argument is optional; else ErrMissing
//
// If several steps provide one name, the nearest is the step that comes after all the others. If
// no step does, Compile reports ErrAmbiguous. A provider hides a value of the same name in the
// store; (*Plan).Shadowed reports hidden values. OpenStack TaskFlow does the opposite: a value
// given to the flow hides the values of steps. An input added to a job can then disconnect steps
// without a warning.
//
// # Once for each element of a list
//
// Each runs a part of a flow once for each element of a list that is known only when the flow
// runs. Compile checks that part with one instance, the template. When the list is recorded, the
// plan grows: see Grown.
//
// # Plans
//
// (*Plan).Targeted is the plan of some of the steps and everything that they need. Flows and
// steps do not change after Compile. A Plan never changes, and many runs can share it.
package flow

import (
	"fmt"
	"slices"
	"time"
)

// Node is a part of a flow: a *Step or a *Flow.
type Node interface {
	// Name identifies the node among its siblings. The name of a step also identifies the step in
	// the whole flow and in its logbook.
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
	each     *each      // set for a flow made by Each; otherwise nil
	finals   []*Step    // see Finally
	onError  []*Step    // see OnError
	enough   int        // members that must succeed, if selects
	selects  bool       // Enough was called

	onTakeover TakeoverPolicy // empty: the policy of the flow around it
	onFailure  FailurePolicy  // the same
	timeout    time.Duration  // see Timeout
}

type link struct {
	from, to string
	name     string // of the decider
	decider  Decider
	decides  bool // a decider was set, nil or not
	depth    Depth
	reaches  bool      // a depth was set
	question *Question // instead of from and decider

	otherwise bool   // see Otherwise
	of        []link // of an otherwise: the links that decide about the other node
}

// Linear runs its children one after another: a child starts when the previous child has finished completely.
func Linear(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternLinear, children: slices.Clone(children)}
}

// Unordered runs its children in parallel. No child sees the values that another provides.
func Unordered(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternUnordered, children: slices.Clone(children)}
}

// Graph orders its children by values and links. A child starts when the children that provide
// its required values, and the children that Link puts before it, have finished. If several
// children provide a name that a child requires, Compile reports ErrAmbiguous, unless links put
// one of them before that child.
func Graph(name string, children ...Node) *Flow {
	return &Flow{name: name, pattern: PatternGraph, children: slices.Clone(children)}
}

// Add appends children, and returns the flow.
func (f *Flow) Add(children ...Node) *Flow {
	f.children = append(f.children, children...)
	return f
}

// Link makes the child named to wait for the child named from, and returns the graph. With the
// option Decide, the link also decides whether the waiting child runs. Compile reports unknown
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

// WithRetry puts the flow under a retry, and returns the flow. When a step fails, at any depth,
// the innermost retry around the step decides about that retry's flow. A retry without a name
// gets the name of the flow with RetrySuffix.
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
