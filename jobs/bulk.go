package jobs

import (
	"fmt"
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Action is what can be done to many jobs at once.
type Action string

// The actions, each with the method that does it to one job.
const (
	ActionCancel  Action = "cancel"  // Controller.Cancel
	ActionSuspend Action = "suspend" // Controller.Suspend
	ActionResume  Action = "resume"  // Controller.Resume
	ActionRetry   Action = "retry"   // Historian.Retry, of what was trashed, was reverted, has failed, or is parked
	ActionPurge   Action = "purge"   // Historian.Purge
)

// Actions are all of them.
var Actions = []Action{ActionCancel, ActionSuspend, ActionResume, ActionRetry, ActionPurge}

// MaxBulk bounds the jobs that one call of Bulk deals with: they share one
// entry of the log, which others wait for.
const MaxBulk = 200

// Bulk is one page of something that is done to many jobs.
type Bulk struct {
	Action Action
	// Query selects the jobs. It is narrowed to those for which the action means
	// something; see Narrowed and Selects. Query.Limit is MaxBulk at most, unless they are
	// only counted.
	Query  Query
	Revert bool   // ActionCancel only: undo what was done
	By     string // who, for people
	Reason string // one sentence, for people
	DryRun bool   // only count
}

// BulkReport is the result of one page.
type BulkReport struct {
	Matched int // jobs that were selected
	Done    int // jobs to which it was done
	Refused []BulkRefusal
	Next    string // the Bulk.Query.After of the next page; empty at the end
	Scans   bool   // as in Page
}

// BulkRefusal is why something was not done to a job.
type BulkRefusal struct {
	Job JobID
	Err error
}

// Narrowed checks a bulk, and gives the query for the jobs for which its action
// can mean something; Selects decides for each.
func (b *Bulk) Narrowed() (Query, error) {
	query := b.Query
	if !slices.Contains(Actions, b.Action) {
		return query, &logbook.InvalidError{Field: "bulk action", Reason: fmt.Sprintf("%.64q is none of %v", b.Action, Actions)}
	}
	if b.Revert && b.Action != ActionCancel {
		return query, &logbook.InvalidError{Field: "bulk revert", Reason: "set; only a cancellation has it"}
	}
	if !b.DryRun && (query.Limit <= 0 || query.Limit > MaxBulk) {
		query.Limit = MaxBulk
	}
	states := b.Action.states()
	if len(query.States) > 0 {
		states = slices.DeleteFunc(states, func(s State) bool { return !slices.Contains(b.Query.States, s) })
	}
	if len(states) == 0 {
		return query, &logbook.InvalidError{Field: "bulk states", Reason: fmt.Sprintf("to %s means nothing for jobs that are %v", b.Action, query.States)}
	}
	query.States = states
	return query, nil
}

// Selects reports whether the action means something for a job that the narrowed query lists.
func (b *Bulk) Selects(j *Job) bool {
	if b.Action != ActionRetry || j.State == StateTrashed {
		return true
	}
	if !j.State.Finished() {
		return j.Parked
	}
	return j.Outcome == OutcomeFailed || j.Outcome == OutcomeReverted
}

// states are those in which an action means something, as a list of the
// caller's own.
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
