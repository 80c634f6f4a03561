package flow

import "slices"

// MaxFinals limits the finally steps of one flow.
const MaxFinals = 100

// Finally adds steps that run exactly once in each run of the flow, after all its other steps, and returns the
// flow. They run one after another, in the order given, whether the flow succeeded, failed or was cancelled:
//
//   - If the other steps have ended, and the flow has not failed, the steps of Finally run next. Steps after the
//     flow wait for them.
//   - If the flow reverts, they run after its revert, and before the revert of the steps that come before the flow.
//     Steps of Finally that ended before the revert started do not run again.
//   - They do not run between the rounds of the flow's own retry, while the flow is held, or if no step of the
//     flow has run.
//
// The failure of such a step is ignored, as with IgnoreFailure, and the step is not undone. Call.Cause has the cause of
// the revert; after a success it is empty. The steps also get the results of reverted steps. Values that can be absent
// must be optional, or have a default in the store: a step of the flow may not have run.
//
// A step of Finally cannot be a Reverter, a PointOfNoReturn, AtMostOnce or Repeatable.
func (f *Flow) Finally(steps ...*Step) *Flow {
	for _, step := range steps {
		if step != nil {
			step.final, step.ignoresFailure = true, true
		}
	}
	f.finals = append(f.finals, steps...)
	return f
}

// Finals are the steps given to Finally.
func (f *Flow) Finals() []*Step { return slices.Clone(f.finals) }

// IsFinal reports whether the step was given to Finally.
func (s *Step) IsFinal() bool { return s.final }

// Final is the part of a plan that a flow with Finally or OnError makes:
//
//	Start ──► steps of the flow ──► gate ──► on_error steps ──► First ──► … ──► End-1
//
// Forwards, the gate waits for the steps of the flow. A revert executes the on_error steps before it passes the gate.
// It passes Start, the gate before the flow, only when the final steps have ended.
type Final struct {
	Flow   string
	Start  int   // the gate
	Body   Steps // the other steps, with the on_error and final steps of flows inside
	Errors Steps // the on_error steps; none: an empty range that ends at First
	Steps        // the final steps; none: an empty range at the end of Errors
	Parent int   // the index of the Final around this one; -1: none
}

// word is the key of the late steps of a flow in a document.
func (f *Final) word() string {
	if f.First == f.End {
		return "on_error"
	}
	return "finally"
}

// Finals are the parts that flows with Finally or OnError make, inner flows before outer ones. The slice belongs to the
// plan: do not write to it.
func (p *Plan) Finals() []Final { return p.finals }

// FinalOf is the index in Finals of an on_error or final step, or of a gate Start; false: the vertex is none of
// these.
func (p *Plan) FinalOf(vertex int) (int, bool) {
	final, ok := p.finalOf[vertex]
	return final, ok
}

// surveyLate checks the on_error or final steps of a flow, the last one of the path. word is their key in a document.
func (c *compiler) surveyLate(flow *Flow, path []Node, word string, steps []*Step) {
	each := map[string]string{"on_error": "an on_error step", "finally": "a finally step"}[word]
	for _, step := range steps {
		if step == nil {
			c.fatal(ErrInvalid, "%s has %s that is nil", quoted(flow), each)
			return
		}
		c.survey(step, path)
		_, reverts := step.Reverter()
		for _, fault := range []struct {
			bad    bool
			reason string
		}{
			{reverts, "has a revert; " + each + " is never undone"},
			{step.noReturn, "is a point of no return; its flow has ended before it runs"},
			{step.atMostOnce, "runs at most once; " + each + " runs again after a crash"},
			{step.repeatable, "is repeatable; " + each + " waits for the record of the steps before it"},
			{step.sameWorkerAs != "", "runs on the worker of another step, and that step may not have run"},
		} {
			if fault.bad {
				c.fault(ErrInvalid, "%s step %q %s", word, step.name, fault.reason)
			}
		}
	}
	if len(steps) > MaxFinals {
		c.fault(ErrTooLarge, "%s has %d %s steps; the limit is %d", quoted(flow), len(steps), word, MaxFinals)
	}
	if len(steps) > 0 && len(flow.children) == 0 {
		c.fault(ErrInvalid, "%s has only %s steps: add another step", quoted(flow), word)
	}
}

// placedFinal is a Final while it is placed.
type placedFinal struct {
	flow        string
	start, gate int32 // vertices
	first       int   // the vertex of the first final step, or end
	end         int   // one more than the last vertex
}

// openFinals places the gate before a flow with on_error or final steps.
func (c *compiler) openFinals(flow *Flow, before []int32) []int32 {
	if !slices.ContainsFunc(flow.late(), c.keeps) {
		return before
	}
	start := c.vertex(nil, before)
	c.openFinal = append(c.openFinal, start)
	return []int32{start}
}

// closeFinals places the on_error steps of a flow after its other steps, and the final steps after the on_error steps.
func (c *compiler) closeFinals(flow *Flow, ends []int32) []int32 {
	if !slices.ContainsFunc(flow.late(), c.keeps) {
		return ends
	}
	last := len(c.openFinal) - 1
	placed := placedFinal{flow: flow.name + c.at, start: c.openFinal[last], gate: c.vertex(nil, ends)}
	c.openFinal = c.openFinal[:last]
	ends = []int32{placed.gate}
	for _, steps := range [][]*Step{flow.onError, flow.finals} {
		placed.first = len(c.vertices)
		for _, step := range steps {
			if c.keeps(step) {
				ends = []int32{c.vertex(c.own(step), ends)}
			}
		}
	}
	placed.end = len(c.vertices)
	c.finals = append(c.finals, placed)
	return ends
}

// keepFinals keeps the on_error and final steps of each flow with a remaining step: a target, or a step before a
// target. They wait for the remaining steps.
func (c *compiler) keepFinals(kept []bool) {
	for i := range c.finals {
		f := &c.finals[i]
		left := false
		for v := f.start + 1; v < f.gate; v++ {
			left = left || kept[v] && c.vertices[v] != nil
			isBefore := func(next int32) bool { return next == f.gate || next < f.gate && kept[next] }
			if kept[v] && !slices.ContainsFunc(c.edges[v], isBefore) {
				c.edges[v] = append(c.edges[v], f.gate)
			}
		}
		if !left {
			continue
		}
		kept[f.start] = true
		for v := int(f.gate); v < f.end; v++ {
			kept[v] = true
		}
	}
}

// pruneFinals renumbers the kept finals, and drops the others.
func (c *compiler) pruneFinals(kept []bool, rank []int) {
	var finals []placedFinal
	for _, f := range c.finals {
		if kept[f.gate] {
			f.start, f.gate, f.first, f.end = int32(rank[f.start]), int32(rank[f.gate]), rank[f.first], rank[f.end]
			finals = append(finals, f)
		}
	}
	c.finals = finals
}

// numberFinals makes the finals of the plan.
func (c *compiler) numberFinals(numbers []int32) {
	p := c.plan
	p.finalOf = make(map[int]int)
	for i, f := range c.finals {
		final := Final{Flow: f.flow, Start: int(numbers[f.start]), Parent: -1,
			Body: stepsOf(span{from: int(f.start), end: int(f.gate)}, numbers, p.Len())}
		late := stepsOf(span{from: int(f.gate), end: f.end}, numbers, p.Len())
		final.Errors, final.Steps = Steps{First: late.First, End: late.End - (f.end - f.first)}, Steps{First: late.End - (f.end - f.first), End: late.End}
		p.finalOf[final.Start] = i
		for step := late.First; step < late.End; step++ {
			p.finalOf[step] = i
		}
		for inner := range p.finals {
			if in := &p.finals[inner]; in.Parent < 0 && final.Body.First <= in.First && in.First < final.Body.End {
				in.Parent = i
			}
		}
		p.finals = append(p.finals, final)
	}
}

// withoutLate removes the on_error and final steps from steps that a no ignores. They are skipped with their flow.
func (p *Plan) withoutLate(steps []int) []int {
	if len(p.finals) == 0 {
		return steps
	}
	return slices.DeleteFunc(steps, func(step int) bool { return p.steps[step].IsLate() })
}

// lateSource prepares a wire into an on_error or final step: the wire takes the results of reverted steps, and the
// value of the store if a step has not run. It reports a required value that can be absent.
func (r *resolver) lateSource(step int, instance int32, wire *Wire) {
	p := r.compiler.plan
	final, ok := p.finalOf[step]
	if !ok {
		return
	}
	r.earlier(step, instance, wire)
	body := p.finals[final].Body
	for wire := range slices.Values(wire.Sources()) {
		provider, isStep := wire.Provider()
		if !isStep || provider < body.First || provider >= body.End || wire.Part == PartFailure {
			continue
		}
		if !p.inputs[wire.Symbol] && !wire.Optional {
			r.compiler.fault(ErrInvalid, "%s step %q requires %s of %s, which may not have run: make it optional, or give it a default in the store",
				p.steps[step].lateWord(), p.steps[step].name, described(wire.Argument), quoted(p.steps[provider]))
		}
	}
	wire.Late = true
	if p.inputs[wire.Symbol] && wire.From != FromStore && !slices.ContainsFunc(wire.Others, func(w Wire) bool { return w.From == FromStore }) {
		wire.Others = append(wire.Others, Wire{Argument: wire.Argument, From: FromStore})
	}
	for i := range wire.Others {
		wire.Others[i].Late = true
	}
}

// earlier adds the providers of a value that come before the nearest one: they replace it if it has not run.
func (r *resolver) earlier(step int, instance int32, wire *Wire) {
	for ; instance >= 0 && wire.From != FromStep; instance = r.compiler.instances[instance].parent {
		list := r.providers[source{instance: instance, symbol: wire.Symbol}]
		for i := len(list) - 1; i >= 0 && len(wire.Others) < MaxSources; i-- {
			other := Wire{Argument: wire.Argument}
			list[i].lead(&other)
			known := slices.ContainsFunc(wire.Sources(), func(w Wire) bool {
				return w.From == other.From && w.Field == other.Field && w.Gathered == other.Gathered
			})
			if !known && r.before[step].has(r.column[list[i].vertex]) {
				wire.Others = append(wire.Others, other)
			}
		}
	}
}
