package engine

import "github.com/conductord/conductord/flow"

// order counts, for each vertex of a plan (steps, then gates), the vertices that it waits for. A
// run crosses each edge once forwards and once backwards.
type order []place

// place is a vertex in the order. The counts are int32, because each vertex has three of them.
type place struct {
	before   int32 // previous vertices that are not released: it may execute at 0
	after    int32 // during an undo: number of next vertices that are not undone; at 0 it may revert
	behind   int32 // used only by countUndone
	released bool  // it counts as done: its next vertices do not wait for it
	undone   bool  // during an undo: the undo has passed it
}

func newOrder(plan *flow.Plan) order { return make(order, plan.Vertices()) }

// count counts the unreleased predecessors of each vertex. It releases a vertex whose previous
// vertices are released, if passes returns true.
func (o order) count(plan *flow.Plan, passes func(vertex int) bool) {
	var reached []int
	for v := range o {
		if o[v].before = int32(len(plan.Previous(v))); o[v].before == 0 {
			reached = append(reached, v)
		}
	}
	for len(reached) > 0 {
		top := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		if o[top].released = passes(top); !o[top].released {
			continue
		}
		for _, next := range plan.Next(top) {
			if o[next].before--; o[next].before == 0 {
				reached = append(reached, int(next))
			}
		}
	}
}

// countUndone sets place.after for the vertices of a scope, from back to front, and returns how
// many steps are undone. Nothing downstream of the scope has started, so only its own vertices count.
// isUndone may use place.after of its vertex.
func (o order) countUndone(plan *flow.Plan, bounds *flow.Scope, isUndone func(vertex int) bool) int {
	var last []int
	eachVertex(bounds, func(v int) {
		o[v].after, o[v].behind = 0, 0
		for _, next := range plan.Next(v) {
			if bounds.Holds(int(next)) {
				o[v].behind++
			}
		}
		if o[v].behind == 0 {
			last = append(last, v)
		}
	})
	count := 0
	for len(last) > 0 {
		v := last[len(last)-1]
		last = last[:len(last)-1]
		gone := isUndone(v)
		o[v].undone = gone
		if gone && v < plan.Len() {
			count++
		}
		for _, previous := range plan.Previous(v) {
			if !bounds.Holds(int(previous)) {
				continue
			}
			if !gone {
				o[previous].after++
			}
			if o[previous].behind--; o[previous].behind == 0 {
				last = append(last, int(previous))
			}
		}
	}
	return count
}

// withdraw makes all successors of a vertex wait for that vertex again. None of the successors
// has started.
func (o order) withdraw(plan *flow.Plan, vertex int) {
	stack := []int{vertex}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !o[top].released {
			continue
		}
		o[top].released = false
		for _, next := range plan.Next(top) {
			o[next].before++
			stack = append(stack, int(next))
		}
	}
}

// reset restores the counts of a scope's vertices to their values before the start of its retry.
// Everything downstream of the scope waits for these vertices again.
func (o order) reset(plan *flow.Plan, bounds *flow.Scope) {
	eachVertex(bounds, func(v int) {
		if o[v].released {
			for _, next := range plan.Next(v) {
				if !bounds.Holds(int(next)) {
					o[next].before++
				}
			}
			o[v].released = false
		}
		if v != bounds.Retry {
			o[v].before = int32(len(plan.Previous(v)))
		}
	})
}

// eachVertex visits the steps and gates of a scope.
func eachVertex(bounds *flow.Scope, visit func(vertex int)) {
	for v := bounds.Retry; v < bounds.End; v++ {
		visit(v)
	}
	for v := bounds.GateFrom; v < bounds.GateEnd; v++ {
		visit(v)
	}
}
