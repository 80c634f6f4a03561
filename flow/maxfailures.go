package flow

import (
	"fmt"
	"slices"
)

// tolerance is how many elements of an each may fail.
type tolerance struct {
	given          bool
	count, percent int // one of them is 0
}

// of is the number for a list of elements.
func (m tolerance) of(elements int) int { return m.count + elements*m.percent/100 }

// MaxFailures lets up to n elements of an Each fail: their failures are ignored. When a step of an element
// has failed permanently, and no retry inside the element runs it again, the steps of the element that
// wait for it are left out. Other steps of the element finish. Nothing is undone, and the other elements
// continue. With one more failed element, the Each fails as without MaxFailures.
//
// In the lists of Gather, the values that a failed element did not provide are null. The failure of a
// decider is not ignored. An Each inside the body can have no MaxFailures of its own.
func MaxFailures(n int) EachOption {
	return func(e *each) {
		if n < 0 || n > MaxElements {
			e.faults = append(e.faults, fmt.Errorf("%w: an each ignores %d failures", ErrInvalid, n))
		}
		e.ignores = tolerance{given: true, count: n}
	}
}

// MaxFailurePercent is MaxFailures for a share of the elements, rounded down.
func MaxFailurePercent(percent int) EachOption {
	return func(e *each) {
		if percent < 0 || percent > 100 {
			e.faults = append(e.faults, fmt.Errorf("%w: an each ignores the failures of %d%% of its elements", ErrInvalid, percent))
		}
		e.ignores = tolerance{given: true, percent: percent}
	}
}

// Failures provides, behind an Each with MaxFailures, the list of the ignored failures under a symbol: for
// each failed element an object with its index in the list, the failed step, and the fields of
// IgnoreFailure.
func Failures(as string) EachOption {
	return func(e *each) {
		if e.told = as; as == "" {
			e.faults = append(e.faults, fmt.Errorf("%w: an each lists its failures without a name", ErrInvalid))
		}
	}
}

// surveyMaxFailures checks an each, the last flow of the path.
func (c *compiler) surveyMaxFailures(flow *Flow, path []Node) {
	e := flow.each
	if e.told != "" && !e.ignores.given {
		c.fault(ErrInvalid, "%s lists its failures, and ignores none", quoted(flow))
	}
	if slices.ContainsFunc(e.gathers, func(g gather) bool { return g.as == e.told }) {
		c.fault(ErrInvalid, "%s gathers %q, and lists its failures under that name", quoted(flow), e.told)
	}
	for _, around := range path[:len(path)-1] {
		if outer, ok := around.(*Flow); ok && outer.each != nil && outer.each.ignores.given && e.ignores.given {
			c.fault(ErrInvalid, "%s ignores failures, and stands in %s, which does too", quoted(flow), quoted(outer))
		}
	}
}

// checkPoint reports a point of no return in an each that ignores failures.
func (c *compiler) checkPoint(step *Step, path []Node) {
	for _, around := range path {
		if e, ok := around.(*Flow); ok && step.noReturn && e.each != nil && e.each.ignores.given {
			c.fault(ErrInvalid, "step %q is a point of no return in %s, which ignores failures; an unknown outcome could hide that the flow has passed it", step.name, quoted(e))
		}
	}
}

// Element is an instance of an each with MaxFailures.
type Element struct {
	Each   int // the number of its opening
	Index  int // in the list
	Most   int // elements of the each that may fail
	Bounds Scope
}

// ElementOf is the index in Elements of the instance that contains a step; false: there is none.
func (p *Plan) ElementOf(step int) (int, bool) {
	if len(p.elements) == 0 || p.elementOf[step] < 0 {
		return 0, false
	}
	return int(p.elementOf[step]), true
}

// TolerantElements are the instances of all each with MaxFailures. Those of one each follow each other. The
// slice belongs to the plan: do not write to it.
func (p *Plan) TolerantElements() []Element { return p.elements }

// numberElements records in the plan which steps are in which instance of an each with MaxFailures.
func (c *compiler) numberElements(numbers []int32) {
	p := c.plan
	counts := make(map[int32]int) // by opener: its instances
	for i := 1; i < len(c.instances); i++ {
		counts[c.instances[i].opener]++
	}
	of := make([]int32, len(c.instances)) // by instance: the index of its element
	for i := range c.instances {
		r := &c.instances[i]
		if of[i] = -1; i > 0 {
			of[i] = of[r.parent]
		}
		if r.each == nil || !r.each.ignores.given || r.span.from == r.span.end { // without steps, it is pruned
			continue
		}
		of[i] = int32(len(p.elements))
		p.elements = append(p.elements, Element{Each: int(numbers[r.opener]), Index: r.index, Most: r.each.ignores.of(counts[r.opener]),
			Bounds: boundsOf(r.span, numbers, p.Len())})
	}
	p.elementOf = make([]int32, p.Len())
	for v, step := range c.vertices {
		if step != nil {
			p.elementOf[numbers[v]] = of[c.instanceOf[v]]
		}
	}
}
