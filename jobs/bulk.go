package jobs

import (
	"fmt"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Action is an operation of Bulk.
type Action string

// The actions, each with the method that does the same to one job.
const (
	ActionCancel  Action = "cancel"  // Controller.Cancel
	ActionSuspend Action = "suspend" // Controller.Suspend
	ActionResume  Action = "resume"  // Controller.Resume
	ActionRetry   Action = "retry"   // Historian.Retry, for trashed, reverted, failed and parked jobs
	ActionPurge   Action = "purge"   // Historian.Purge
)

// Actions are all actions.
var Actions = []Action{ActionCancel, ActionSuspend, ActionResume, ActionRetry, ActionPurge}

// MaxBulk bounds the jobs that one call of Bulk changes. Their changes are one entry of the
// log, and other commands wait for it.
const MaxBulk = 200

// Bulk applies one action to the jobs of one page of a list.
type Bulk struct {
	Action Action
	// Query selects the jobs. Narrowed and Selects limit it to jobs whose state allows the
	// action. Query.Limit is at most MaxBulk, except with DryRun.
	Query  Query
	Revert bool   // only for ActionCancel: undo the flow's work
	By     string // the operator, for display
	Reason string // one sentence, for display
	DryRun bool   // only count the jobs
}

// BulkReport is the result of one page.
type BulkReport struct {
	Matched int           // selected jobs
	Done    int           // jobs whose action succeeded
	Refused []BulkRefusal // jobs whose action was refused
	Next    string        // Query.After for the next page; empty: last page
	Scans   bool          // see Page
}

// BulkRefusal is a job whose action was refused, with the error.
type BulkRefusal struct {
	Job JobID
	Err error
}

// Narrowed checks a bulk, and returns its query limited to the states that allow the action.
// Selects decides about each job of that query. ErrInvalid if no state of the query allows
// the action.
func (b *Bulk) Narrowed() (Query, error) {
	query := b.Query
	if !slices.Contains(Actions, b.Action) {
		return query, &logbook.InvalidError{Field: "bulk action", Reason: fmt.Sprintf("%.64q is not one of %v", b.Action, Actions)}
	}
	if b.Revert && b.Action != ActionCancel {
		return query, &logbook.InvalidError{Field: "bulk revert", Reason: "set; only a cancellation can set it"}
	}
	if !b.DryRun && (query.Limit <= 0 || query.Limit > MaxBulk) {
		query.Limit = MaxBulk
	}
	states := b.Action.states()
	if len(query.States) > 0 {
		states = slices.DeleteFunc(states, func(s State) bool { return !slices.Contains(b.Query.States, s) })
	}
	if len(states) == 0 {
		return query, &logbook.InvalidError{Field: "bulk states", Reason: fmt.Sprintf("%s has no effect on jobs in the states %v", b.Action, query.States)}
	}
	query.States = states
	return query, nil
}

// Selects reports whether the action applies to a job of the narrowed query.
func (b *Bulk) Selects(j *Job) bool {
	if b.Action != ActionRetry || j.State == StateTrashed {
		return true
	}
	if !j.State.Finished() {
		return j.Parked
	}
	return j.Outcome == OutcomeFailed || j.Outcome == OutcomeReverted
}

// states returns the states that allow the action, in a new slice.
func (a Action) states() []State {
	switch a {
	case ActionRetry:
		return []State{StateCompleted, StateTrashed, StateHeld, StateSuspended}
	case ActionPurge:
		return []State{StateCompleted, StateTrashed}
	case ActionResume:
		return []State{StateSuspended, StateClaimed}
	}
	return slices.DeleteFunc(slices.Clone(States), State.Finished)
}
