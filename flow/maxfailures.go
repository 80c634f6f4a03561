package flow

import (
	"fmt"
	"slices"
)

// tolerance is the number of elements of an each that may fail.
type tolerance struct {
	given          bool
	count, percent int // one of them is 0
}

// of is the number for a list of elements.
func (m tolerance) of(elements int) int { return m.count + elements*m.percent/100 }

// MaxFailures lets up to n elements of an Each fail: their failures are ignored. When a step of an element has failed
// permanently, and no retry inside the element runs it again, the steps of the element that wait for it are skipped.
// Other steps of the element finish. Nothing is undone, and the other elements continue. With one more failed element,
// the Each fails as without MaxFailures.
//
// In the lists of Gather, the values that a failed element did not provide are null. The failure of a decider is not
// ignored. An Each inside the body cannot have MaxFailures.
func MaxFailures(n int) EachOption {
	return func(e *each) {
		if n < 0 || n > MaxElements {
			e.faults = append(e.faults, fmt.Errorf("%w: flow.MaxFailures is out of range: %d", ErrInvalid, n))
		}
		e.ignores = tolerance{given: true, count: n}
	}
}

// MaxFailurePercent is MaxFailures for a share of the elements, rounded down.
func MaxFailurePercent(percent int) EachOption {
	return func(e *each) {
		if percent < 0 || percent > 100 {
			e.faults = append(e.faults, fmt.Errorf("%w: flow.MaxFailurePercent must be 0 to 100, not %d", ErrInvalid, percent))
		}
		e.ignores = tolerance{given: true, percent: percent}
	}
}

// Failures provides, after an Each with MaxFailures, the list of the ignored failures under a symbol: for
// each failed element an object with its index in the list, the failed step, and the fields of
// IgnoreFailure.
func Failures(as string) EachOption {
	return func(e *each) {
		if e.told = as; as == "" {
			e.faults = append(e.faults, fmt.Errorf("%w: flow.Failures requires a name", ErrInvalid))
		}
	}
}

// surveyMaxFailures checks an each, the last flow of the path.
func (c *compiler) surveyMaxFailures(flow *Flow, path []Node) {
	e := flow.each
	if e.told != "" && !e.ignores.given {
		c.fault(ErrInvalid, "%s has a name for ignored failures, but no maximum of failures", quoted(flow))
	}
	if slices.ContainsFunc(e.gathers, func(g gather) bool { return g.as == e.told }) {
		c.fault(ErrInvalid, "%s uses the name %q for a gathered list and for the ignored failures", quoted(flow), e.told)
	}
}

// Element is a member of a Group: an instance of an each, or a part of a flow with Enough.
type Element struct {
	Group  int // in Groups
	Index  int // of the instance in the list, or of the part in the flow
	Bounds Scope
}

// ElementOf is the index in TolerantElements of the member that contains a vertex; false: there is none.
func (p *Plan) ElementOf(vertex int) (int, bool) {
	if len(p.elements) == 0 || p.elementOf[vertex] < 0 {
		return 0, false
	}
	return int(p.elementOf[vertex]), true
}

// TolerantElements are the members of all Groups. Those of one group follow each other. The slice belongs to
// the plan: do not write to it.
func (p *Plan) TolerantElements() []Element { return p.elements }
