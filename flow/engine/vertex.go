package engine

import (
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// phase is the state of a step in a run. It is the state of the step's atom, plus the difference
// between a step that this run executes and a step that an earlier run left open.
//
//	unbegun ──► executing ──► succeeded ──► restarting ──► executing    (retries only)
//	  │ ▲         │ ▲ ├─────► failed ◄── left
//	  ▼ │         ▼ │ ├─────► tolerated ◄── failed
//	ignored     waiting └───► left ──► executing
//
//	waiting, left, succeeded, failed, tolerated, restarting ──► toUndo ◄──► undoing ──► stuck
//	                                                              └──► undone ◄──┘
//	unbegun ◄── undone
//
// The table moves has the events. A run moves the steps by it, and so does the load of a record.
type phase uint8

const (
	none       phase = iota // no phase: the event cannot happen
	unbegun                 // pending: no execution of this round has started
	waiting                 // pending: an execution has failed, or has returned NotYet, and is tried again
	left                    // running: an earlier run started the execution, and recorded no end
	executing               // running: this run has an execution open
	succeeded               // success
	failed                  // failure
	tolerated               // failure, ignored: the flow continues
	restarting              // retrying: a retry whose flow is undone, and starts again
	toUndo                  // reverting: this run has no revert open
	undoing                 // reverting: this run has a revert open
	undone                  // reverted
	stuck                   // revert_failure
	ignored                 // ignore
	phases
)

// event moves a step from one phase to another.
type event uint8

const (
	onBegin    event = iota // an execution starts, or continues
	onSuccess               // the attempt has succeeded, or there is no revert to call
	onAgain                 // the attempt has ended without success, and is tried again
	onFailure               // the attempt has failed permanently
	onTolerate              // the attempt has failed permanently, and the flow continues
	onRevert                // the step will be undone later
	onUndo                  // a revert starts, or continues
	onReset                 // the step may start again
	onIgnore                // a decider leaves the step out
	onRestart               // a retry starts its flow again
	onLoss                  // the run has ended before the execution
	events
)

// moves has the phase that follows each event. An event that is not in the table cannot happen.
var moves = [phases][events]phase{
	unbegun:    {onBegin: executing, onReset: unbegun, onIgnore: ignored},
	waiting:    {onBegin: executing, onRevert: toUndo, onUndo: undoing},
	left:       {onBegin: executing, onAgain: waiting, onFailure: failed, onRevert: toUndo, onUndo: undoing},
	executing:  {onSuccess: succeeded, onAgain: waiting, onFailure: failed, onTolerate: tolerated, onLoss: left},
	succeeded:  {onRevert: toUndo, onUndo: undoing, onRestart: restarting},
	failed:     {onTolerate: tolerated, onRevert: toUndo, onUndo: undoing},
	tolerated:  {onRevert: toUndo, onUndo: undoing},
	restarting: {onBegin: executing, onRevert: toUndo, onUndo: undoing, onRestart: restarting},
	toUndo:     {onSuccess: undone, onUndo: undoing},
	undoing:    {onSuccess: undone, onAgain: toUndo, onFailure: stuck},
	undone:     {onReset: unbegun},
	stuck:      {},
	ignored:    {onReset: unbegun},
}

// after returns the phase that follows an event. It is total: an event that cannot happen is an error.
func (p phase) after(e event) (phase, error) {
	if moves[p][e] == none {
		return p, fmt.Errorf("a step that is %s (phase %d) has no event %d", atoms[p], p, e)
	}
	return moves[p][e], nil
}

// must is after for a live step: an event that is not in the table is a bug.
func (p phase) must(e event) phase {
	next, err := p.after(e)
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return next
}

// atoms are the states of the atoms by phase.
var atoms = [phases]logbook.AtomState{
	unbegun: logbook.AtomPending, waiting: logbook.AtomPending, left: logbook.AtomRunning, executing: logbook.AtomRunning,
	succeeded: logbook.AtomSuccess, failed: logbook.AtomFailure, tolerated: logbook.AtomFailure, restarting: logbook.AtomRetrying, toUndo: logbook.AtomReverting,
	undoing: logbook.AtomReverting, undone: logbook.AtomReverted, stuck: logbook.AtomRevertFailure, ignored: logbook.AtomIgnored,
}

// isOpen reports whether this run has an attempt open.
func (p phase) isOpen() bool { return p == executing || p == undoing }

// hasBegun reports whether an execution of this round has started.
func (p phase) hasBegun() bool { return p != unbegun && p != ignored }

// vertex is a step of the plan. See newVertices for a step that has not started.
type vertex struct {
	phase     phase
	record    record
	intention logbook.Intention
	// attempt is the attempt that is open, has returned NotYet, or was left by an earlier run; else nil.
	// Never nil while executing or undoing. Read-only: an update holds it.
	attempt *logbook.Attempt
	history
	result   []byte            // of the last execution, if that has succeeded, or the default if its failure is ignored; else nil
	fields   logbook.Values    // of result, parsed on first use
	failure  *logbook.Failure  // of the last execution; nil: it has not failed
	doneBy   flow.WorkerID     // the worker of the last execution
	retryAt  time.Time         // of the next attempt; zero: at once, or none is due
	key      *permit           // while the open attempt waits after NotYet: of the concurrency key; else nil
	progress *logbook.Progress // recorded with the next change; nil: none
	reported *logbook.Progress // recorded since the start of the latest attempt, or before it in this round; nil: none
	saved    bool              // the round may have checkpoints
}

// record is the step's record in the logbook, including the next update.
type record uint8

const (
	unrecorded record = iota
	outdated          // its atom, with another version: the step had not started
	recorded          // its atom, with this version
)

// history counts the attempts at a step. Each execution after a revert or a reset starts another
// round.
type history struct {
	executions, reverts int              // attempts since the start of the flow
	round               int32            // see flow.Call.Key
	begun               int32            // executions since the last reset
	lost                int              // attempts since the last reset that have lost their worker
	failedExecutions    int              // in this round, as the retry policy counts them
	failedUndo          int              // the same for reverts
	lastFailure         *logbook.Failure // the last one that counts in failedExecutions or failedUndo
	since               time.Time        // start of the round's first execution that counts for the deadline
	isUndone            bool             // the last attempt is a revert: the next execution starts another round
	touched             bool             // an execution of this round may have started; if false, its revert is not called
}

// execute notes the start of an execution. After a revert it starts another round.
func (h *history) execute() {
	if h.isUndone {
		h.round, h.isUndone, h.touched, h.since = h.round+1, false, false, time.Time{}
	}
}

// forgetRound returns an undone step to its state before its start.
func (v *vertex) forgetRound() {
	v.since, v.failedExecutions, v.failedUndo = time.Time{}, 0, 0
	v.result, v.fields, v.failure, v.retryAt = nil, nil, nil, time.Time{}
	v.attempt = nil // one that had said "not yet"
}

// isUntaken reports whether the open attempt is offered to workers and not taken yet.
func (v *vertex) isUntaken() bool {
	return v.phase.isOpen() && v.attempt.Offered && v.attempt.Worker == ""
}

// hasNoDefault reports whether the step's failure is ignored, and no default replaces its result.
func (v *vertex) hasNoDefault() bool { return v.phase == tolerated && v.result == nil }

// newVertices returns the steps of a plan before their start.
func newVertices(plan *flow.Plan) []vertex {
	vertices := make([]vertex, plan.Len())
	for i := range vertices {
		vertices[i].phase, vertices[i].intention = unbegun, logbook.IntendExecute
	}
	return vertices
}

// lastProgress returns the last report before an attempt. If the attempt continues an open one, the next attempt gets
// the report too, because the step may report no more.
func (v *vertex) lastProgress(continues bool) *logbook.Progress {
	last := v.reported
	if !continues {
		v.reported = nil
	}
	return last
}
