package flow

import "github.com/conductord/conductord/logbook"

// FailurePolicy decides what a flow does after a step has failed permanently, and no retry runs the
// step again.
type FailurePolicy = logbook.FailurePolicy

// The policies.
const (
	// RevertOnFailure reverts the whole flow.
	RevertOnFailure = logbook.RevertOnFailure
	// HoldOnFailure ends the flow in the state failure, and reverts nothing. Running steps finish,
	// and no other step starts. Finished steps keep their results. An operator continues the flow
	// with an intervention. A cancelled flow reverts anyway.
	HoldOnFailure = logbook.HoldOnFailure
)

// FailurePolicies are all policies.
var FailurePolicies = logbook.FailurePolicies

// OnFailure sets the policy for the steps of the flow and of its nested flows without a policy, and returns the flow.
// The policy of the failed step applies to the whole flow. Default: RevertOnFailure.
func (f *Flow) OnFailure(policy FailurePolicy) *Flow {
	f.onFailure = policy
	return f
}

// PassesPoints reports whether some step is a PointOfNoReturn.
func (p *Plan) PassesPoints() bool { return p.noReturn }

// Holds reports whether the policy for a step is HoldOnFailure.
func (p *Plan) Holds(step int) bool { return p.holds[p.steps[step].name] }
