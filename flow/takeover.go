package flow

// TakeoverPolicy is what happens before a flow goes on under a new claim, when its last owner has
// ended neither the flow nor its own work in order: the owner died, its claim ended, or steps were
// still running when it handed the job over. A flow that was suspended, or that only waited, was
// not cut off.
type TakeoverPolicy string

// The policies.
const (
	// TakeoverContinue goes on with what is recorded.
	TakeoverContinue TakeoverPolicy = "continue"
	// UndoLast first reverts the last steps: those that were cut off, without a result, and those in
	// success after which no step has begun. Then it executes them again. Steps that cannot be
	// reverted, that run at most once, or that began before an operator last intervened, are treated
	// as with TakeoverContinue. A step goes on, and is not cut off, if it was offered to step workers
	// or has said "not yet".
	UndoLast TakeoverPolicy = "undo_last"
)

// TakeoverPolicies are all policies.
var TakeoverPolicies = []TakeoverPolicy{TakeoverContinue, UndoLast}

// OnTakeover sets the policy of the flow and of the flows in it that have none of their own, and
// returns the flow. Without it, the policy is TakeoverContinue.
func (f *Flow) OnTakeover(policy TakeoverPolicy) *Flow {
	f.onTakeover = policy
	return f
}

// UndoesLast reports whether the policy for a step is UndoLast.
func (p *Plan) UndoesLast(step int) bool { return p.undoLast[p.steps[step].name] }

// UndoesAnyLast reports whether the policy for any step is UndoLast.
func (p *Plan) UndoesAnyLast() bool { return len(p.undoLast) > 0 }
