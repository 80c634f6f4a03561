package logbook

import "fmt"

// FlowState is the state of a flow. A new flow is pending.
//
//	pending ──► running ──► success
//	  ▲ │          │ │
//	  │ │          │ └────► reverting ──► reverted
//	  │ │          ▼           │   ▲ │
//	  │ └──► suspended ◄───────┘   │ └──► failure
//	  │          │ └───────────────┘         │
//	  └──────────┴── (running again)
//
//	by an Intervention only:  failure ──► reverting    failure, reverted ──► running
//
// A run that fits into one update goes from pending to success. Success is final. Reverted
// is final unless an operator reruns the flow. Failure means that a revert failed, or that the
// flow is held (HoldOnFailure): nothing runs until an operator intervenes. A flow that is running
// with a cause is held as soon as its running steps have finished.
type FlowState string

// The states of a flow.
const (
	FlowPending   FlowState = "pending"
	FlowRunning   FlowState = "running"
	FlowReverting FlowState = "reverting"
	FlowSuspended FlowState = "suspended"
	FlowSuccess   FlowState = "success"
	FlowReverted  FlowState = "reverted"
	FlowFailure   FlowState = "failure"
)

var flowMoves = map[FlowState][]FlowState{
	FlowPending:   {FlowRunning, FlowSuspended, FlowSuccess},
	FlowRunning:   {FlowReverting, FlowSuspended, FlowSuccess, FlowFailure},
	FlowReverting: {FlowReverted, FlowSuspended, FlowFailure},
	FlowSuspended: {FlowRunning, FlowReverting},
	FlowFailure:   {FlowReverting, FlowRunning},
	FlowSuccess:   {},
	FlowReverted:  {FlowRunning},
}

// Finished reports whether the flow has ended. Only an intervention changes it then.
func (s FlowState) Finished() bool {
	return s == FlowSuccess || s == FlowReverted || s == FlowFailure
}

// Move checks a transition. Keeping the state is allowed. Move returns ErrConflict if the transition
// or a state is not in the diagram, even if the state comes from storage.
func (s FlowState) Move(to FlowState) error { return checkMove("flow", flowMoves, s, to) }

// AtomState is the state of one step or retry of a flow.
//
//	   ┌──────────────────── (try again) ◄─────┐
//	   ▼                                       │
//	pending ──► running ──► success ───────────┼──► reverting ──► reverted ──► pending
//	   │           ├──────► failure ───────────┘        │
//	   ▼           └──────► reverting                   └──► revert_failure ──► reverting
//	 ignore ──► pending               success ──► retrying ──► running   (retries only)
//
//	by an Intervention only:  pending, failure, reverted, revert_failure, ignore ──► success
//	                          (completed by hand; or reverted, revert_failure: it keeps its result)
//	                          revert_failure ──► reverted    revert_failure, success ──► pending
//
// Some transitions need an explanation:
//
//   - pending to success, without an intervention: start and end of the execution are in one
//     change.
//   - running to pending: the attempt failed, and the step's retry policy allows another.
//   - running to reverting: the owner was lost, and the outcome of the execution is unknown.
//   - failure: with IntendIgnore, the failure is ignored, and the flow continues.
//   - pending or retrying to reverting (not in the diagram): the atom waited for another
//     attempt when its flow started to revert.
type AtomState string

// The states of an atom.
const (
	AtomPending       AtomState = "pending"
	AtomRunning       AtomState = "running"
	AtomSuccess       AtomState = "success"
	AtomFailure       AtomState = "failure"
	AtomReverting     AtomState = "reverting"
	AtomReverted      AtomState = "reverted"
	AtomRevertFailure AtomState = "revert_failure"
	AtomRetrying      AtomState = "retrying"
	AtomIgnored       AtomState = "ignore"
)

var atomMoves = map[AtomState][]AtomState{
	AtomPending:       {AtomRunning, AtomReverting, AtomIgnored, AtomSuccess},
	AtomRunning:       {AtomSuccess, AtomFailure, AtomPending, AtomReverting},
	AtomSuccess:       {AtomReverting, AtomRetrying, AtomPending},
	AtomFailure:       {AtomReverting, AtomPending, AtomSuccess},
	AtomReverting:     {AtomReverted, AtomRevertFailure},
	AtomReverted:      {AtomPending, AtomSuccess},
	AtomRevertFailure: {AtomReverting, AtomReverted, AtomPending, AtomSuccess},
	AtomRetrying:      {AtomRunning, AtomReverting},
	AtomIgnored:       {AtomPending, AtomSuccess},
}

// Move checks a transition. Keeping the state is allowed. Move returns ErrConflict if the transition
// or a state is not in the diagram, even if the state comes from storage.
func (s AtomState) Move(to AtomState) error { return checkMove("atom", atomMoves, s, to) }

func checkMove[S ~string](what string, moves map[S][]S, from, to S) error {
	next, known := moves[from]
	if _, knownTo := moves[to]; !known || !knownTo {
		return fmt.Errorf("%w: there is no %s state %q", ErrConflict, what, map[bool]S{true: to, false: from}[known])
	}
	if from == to {
		return nil
	}
	for _, state := range next {
		if state == to {
			return nil
		}
	}
	return fmt.Errorf("%w: %s state %s cannot become %s", ErrConflict, what, from, to)
}

// Intention is the engine's plan for an atom, independent of the atom's state.
type Intention string

// The intentions for an atom.
const (
	IntendExecute Intention = "execute"
	IntendRevert  Intention = "revert"
	IntendRetry   Intention = "retry" // the step is undone, and then executed again (flow.UndoLast)
	// IntendIgnore: the step is skipped, or it has failed and its failure is ignored.
	IntendIgnore Intention = "ignore"
	// IntendDrop: the step is undone because enough other members have succeeded, and the flow continues
	// (flow.Flow.Enough).
	IntendDrop Intention = "drop"
)
