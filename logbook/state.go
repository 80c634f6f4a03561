package logbook

import "fmt"

// FlowState is where a flow stands. A new flow is pending.
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
// From pending to success is a run that fits into one update: it is not seen running.
// A success is final, and so is reverted unless an operator reruns the flow. A failure
// means that a revert has failed: nothing runs until an operator intervenes.
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

// Finished reports whether the flow has ended and no engine changes it.
func (s FlowState) Finished() bool {
	return s == FlowSuccess || s == FlowReverted || s == FlowFailure
}

// Move checks a transition. Staying is allowed; what the diagram does not
// show is an ErrConflict, also when it comes from stored data.
func (s FlowState) Move(to FlowState) error { return checkMove("flow", flowMoves, s, to) }

// AtomState is where one step (or one retry) of a flow stands.
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
// From pending to success, without an intervention, is an execution whose mark and
// end are one change. From running to pending is a step's own retry: the attempt has failed and is
// recorded, the next one is due. From running to reverting happens on a resume,
// when the outcome of the execution is not known. From pending to reverting, which
// the diagram leaves out, is a step that waited to be tried again when its
// flow began to revert; retrying to reverting is a retry to which the same
// happened.
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

// Move checks a transition. Staying is allowed; what the diagram does not
// show is an ErrConflict, also when it comes from stored data.
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

// Intention is what the engine means to do with an atom, independent of its state.
type Intention string

// The intentions for an atom.
const (
	IntendExecute Intention = "execute"
	IntendRevert  Intention = "revert"
	IntendRetry   Intention = "retry" // of a step: it is undone, and then executed again (flow.UndoLast)
	IntendIgnore  Intention = "ignore"
)
