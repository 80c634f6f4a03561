package logbook

import "fmt"

// FlowState is where a flow stands. A new flow is PENDING.
//
//	PENDING ──► RUNNING ──► SUCCESS
//	  ▲ │          │ │
//	  │ │          │ └────► REVERTING ──► REVERTED
//	  │ │          ▼           │   ▲ │
//	  │ └──► SUSPENDED ◄───────┘   │ └──► FAILURE
//	  │          │ └───────────────┘         │
//	  └──────────┴── (RUNNING again)
//
//	by an Intervention only:  FAILURE ──► REVERTING    FAILURE, REVERTED ──► RUNNING
//
// SUCCESS is final, and so is REVERTED unless an operator reruns the flow. FAILURE
// means that a revert has failed: nothing runs until an operator intervenes.
type FlowState string

// The states of a flow.
const (
	FlowPending   FlowState = "PENDING"
	FlowRunning   FlowState = "RUNNING"
	FlowReverting FlowState = "REVERTING"
	FlowSuspended FlowState = "SUSPENDED"
	FlowSuccess   FlowState = "SUCCESS"
	FlowReverted  FlowState = "REVERTED"
	FlowFailure   FlowState = "FAILURE"
)

var flowMoves = map[FlowState][]FlowState{
	FlowPending:   {FlowRunning, FlowSuspended},
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
//	PENDING ──► RUNNING ──► SUCCESS ───────────┼──► REVERTING ──► REVERTED ──► PENDING
//	   │           ├──────► FAILURE ───────────┘        │
//	   ▼           └──────► REVERTING                   └──► REVERT_FAILURE ──► REVERTING
//	 IGNORE ──► PENDING               SUCCESS ──► RETRYING ──► RUNNING   (retries only)
//
//	by an Intervention only:  PENDING, FAILURE, REVERTED, REVERT_FAILURE, IGNORE ──► SUCCESS
//	                          REVERT_FAILURE ──► REVERTED    REVERT_FAILURE, SUCCESS ──► PENDING
//
// RUNNING to PENDING is a step's own retry: the attempt has failed and is
// recorded, the next one is due. RUNNING to REVERTING happens on a resume,
// when the outcome of the execution is not known. PENDING to REVERTING, which
// the diagram leaves out, is a step that waited to be tried again when its
// flow began to revert; RETRYING to REVERTING is a retry to which the same
// happened.
type AtomState string

// The states of an atom.
const (
	AtomPending       AtomState = "PENDING"
	AtomRunning       AtomState = "RUNNING"
	AtomSuccess       AtomState = "SUCCESS"
	AtomFailure       AtomState = "FAILURE"
	AtomReverting     AtomState = "REVERTING"
	AtomReverted      AtomState = "REVERTED"
	AtomRevertFailure AtomState = "REVERT_FAILURE"
	AtomRetrying      AtomState = "RETRYING"
	AtomIgnored       AtomState = "IGNORE"
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
	IntendExecute Intention = "EXECUTE"
	IntendRevert  Intention = "REVERT"
	IntendRetry   Intention = "RETRY"
	IntendIgnore  Intention = "IGNORE"
)
