package flow

// TakeoverPolicy decides what happens before a flow that was cut off continues under a new claim. A
// flow was cut off if its last owner died, lost its claim, or handed the job over while steps were
// still running. A flow that was suspended, or that only waited, was not cut off.
type TakeoverPolicy string

// The policies.
const (
	// TakeoverContinue continues from the record.
	TakeoverContinue TakeoverPolicy = "continue"
	// UndoLast first reverts the last steps, then executes them again. The last steps are the steps
	// that were cut off without a result, and the successful steps after which no other step has
	// started. TakeoverContinue applies to steps that cannot be reverted, that run at most once, or
	// that started before an operator last intervened. A step that was offered to step workers, or
	// has returned NotYet, continues, and is not cut off.
	UndoLast TakeoverPolicy = "undo_last"
)

// TakeoverPolicies are all policies.
var TakeoverPolicies = []TakeoverPolicy{TakeoverContinue, UndoLast}

// OnTakeover sets the policy of the flow and of its nested flows without a policy, and returns
// the flow. Default: TakeoverContinue.
func (f *Flow) OnTakeover(policy TakeoverPolicy) *Flow {
	f.onTakeover = policy
	return f
}

// UndoesLast reports whether the policy for a step is UndoLast.
func (p *Plan) UndoesLast(step int) bool { return p.undoLast[p.steps[step].name] }

// UndoesAnyLast reports whether the policy for any step is UndoLast.
func (p *Plan) UndoesAnyLast() bool { return len(p.undoLast) > 0 }
