package engine

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// facts is a run's knowledge of its flow. Their methods answer questions, and change nothing but the
// caches; only core and loader change facts.
type facts struct {
	plan  *flow.Plan
	store logbook.Values
	began time.Time // this run
	// limits of the logbook. Failures are cut to these limits, because every conductor's
	// logbook would refuse an oversized update.
	limits logbook.Limits

	vertices  []vertex          // the steps of the plan
	order     order             // of the steps and the gates
	scopes    []scope           // one for each scope of the plan
	undoTurns map[turnID]bool   // the instances whose undo has started: see takeUndoTurns
	absent    map[string]vertex // recorded instances that the plan lacks in this round, by step

	reverting bool                        // the flow is being undone
	held      bool                        // a step has failed, and nothing is undone: see hold
	cause     *logbook.Failure            // why the flow is undone or held; nil: neither
	failures  map[string]*logbook.Failure // of steps, while reverting; replaced, never changed: calls hold it

	lacking map[int]bool // cache of lacksValue, by step

	lists map[*flow.Gathered]json.RawMessage // cache of gathered lists
	taken map[string][]json.RawMessage       // cache of the elements of openings, by step
}

// found holds what a run finds in the record at its start. Only the start of the run uses it.
type found struct {
	intervened  pastInterventions
	takenOver   bool  // the last owner of the flow was cut off, perhaps: see undoLast
	interrupted []int // at-most-once steps that are left
	unresolved  []int // failed steps for which no decision is recorded
	undecided   []int // gates that are reached, and whose choice is not recorded
}
