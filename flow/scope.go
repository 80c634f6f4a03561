package flow

// Scope is the part of a plan that a retry governs: the retry's own step, and the steps and gates of its flow. The
// steps have consecutive numbers, and so have the gates. A step outside waits for the whole scope, never for a part of
// it. So no step downstream of a scope has started while a step of the scope can still fail.
type Scope struct {
	// Retry is the number of the retry's own step, the first of the scope. End is one more
	// than the number of its last step.
	Retry, End int
	// The gates of the scope are GateFrom to GateEnd-1.
	GateFrom, GateEnd int
	// Parent is the index of the scope around this one; -1: none.
	Parent int
}

// Holds reports whether a vertex is in the scope.
func (s *Scope) Holds(vertex int) bool {
	return vertex >= s.Retry && vertex < s.End || vertex >= s.GateFrom && vertex < s.GateEnd
}

// Scopes are the scopes of all retries, outer ones before inner ones. The slice belongs to the
// plan: do not write to it.
func (p *Plan) Scopes() []Scope { return p.scopes }

// Governor is the index of the innermost scope whose retry decides about a failure of
// the step; -1: none. A retry's own governor is the scope around its scope.
func (p *Plan) Governor(step int) int { return int(p.governors[step]) }

// ScopeOf is the index of a retry's scope, by the number of the retry's step.
func (p *Plan) ScopeOf(retry int) (int, bool) {
	scope, ok := p.scopeOf[retry]
	return scope, ok
}

// enter opens the scope of a flow's retry, if the flow has one, and returns the vertices that
// the children wait for.
func (c *compiler) enter(flow *Flow, before []int32) []int32 {
	if len(flow.retries) == 0 || !c.keeps(flow.retries[0].step) {
		return before
	}
	parent := -1
	if len(c.open) > 0 {
		parent = c.open[len(c.open)-1]
	}
	from := len(c.vertices)
	before = []int32{c.vertex(c.own(flow.retries[0].step), before)}
	c.open = append(c.open, len(c.spans))
	c.spans = append(c.spans, span{from: from, parent: parent})
	return before
}

// leave closes the scope that enter opened.
func (c *compiler) leave(flow *Flow) {
	if len(flow.retries) == 0 || !c.keeps(flow.retries[0].step) {
		return
	}
	last := len(c.open) - 1
	c.spans[c.open[last]].end = len(c.vertices)
	c.open = c.open[:last]
}

// boundsOf returns the steps and gates of a span as a scope.
func boundsOf(s span, numbers []int32, steps int) Scope {
	found := stepsOf(s, numbers, steps)
	bounds := Scope{Retry: found.First, End: found.End, GateFrom: len(numbers), GateEnd: len(numbers), Parent: -1}
	for v := s.from; v < s.end; v++ {
		if number := int(numbers[v]); number >= steps {
			bounds.GateFrom, bounds.GateEnd = min(bounds.GateFrom, number), number+1
		}
	}
	return bounds
}

// span is a range of vertices; for a scope it also has the index of the scope around it.
type span struct{ from, end, parent int }

// numberScopes converts scopes from vertices to the numbers of steps and gates; numbers
// maps one to the other.
func (c *compiler) numberScopes(numbers []int32) {
	p := c.plan
	p.scopeOf, p.governors = make(map[int]int, len(c.spans)), make([]int32, p.Len())
	for step := range p.governors {
		p.governors[step] = -1
	}
	for i, s := range c.spans {
		scope := boundsOf(s, numbers, p.Len())
		scope.Parent = s.parent
		for step := scope.Retry + 1; step < scope.End; step++ {
			p.governors[step] = int32(i) // inner scopes come later
		}
		p.scopes = append(p.scopes, scope)
		p.scopeOf[scope.Retry] = i
	}
}
