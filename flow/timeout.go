package flow

import "time"

// Timeout limits one run of the flow, from the start of its job's attempt to the end of the flow, and returns the flow.
// When the time is over, running executions are interrupted and the flow reverts, even with the policy HoldOnFailure.
// The failure has the kind "timeout", and no retry inside the flow decides about it. The time continues while the flow
// is suspended or has no conductor. Only the outermost flow can have a timeout. 0: none.
func (f *Flow) Timeout(d time.Duration) *Flow {
	f.timeout = d
	return f
}

// Timeout is the limit of one run; 0: none.
func (p *Plan) Timeout() time.Duration {
	if root, ok := p.root.(*Flow); ok {
		return root.timeout
	}
	return 0
}

// checkTimeout reports a timeout that a flow cannot have.
func (c *compiler) checkTimeout(f *Flow, nested bool) {
	switch {
	case f.timeout < 0:
		c.fault(ErrInvalid, "the timeout of %s is negative: %s", quoted(f), f.timeout)
	case f.timeout > 0 && nested:
		c.fault(ErrInvalid, "%s is a flow within a flow and cannot have a timeout; give its steps a timeout, or the outermost flow", quoted(f))
	}
}
