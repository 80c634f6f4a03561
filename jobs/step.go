package jobs

import (
	"slices"

	"github.com/conductord/conductord/logbook"
)

// Step is one step of a job's flow, or an instance of a step in an each, such as send[2].
type Step struct {
	Job       JobID
	JobState  State
	Flow      logbook.FlowID
	FlowState logbook.FlowState
	// Atom is the step's record. A step without a record has its Name, and, if the flow's definition is
	// known, its Kind and the state AtomPending: see IsKnown.
	Atom    logbook.AtomDetail
	Outcome StepOutcome // empty: the step has not ended
}

// StepOutcome is how a step has ended.
type StepOutcome string

// The outcomes of steps.
const (
	StepSuccess StepOutcome = "success"
	// StepFailure: the last execution failed permanently. The flow ignores the failure, is undone, or is held.
	StepFailure StepOutcome = "failure"
	// StepSkipped: a condition or a missing value excludes the step, or enough other members of its flow have
	// succeeded.
	StepSkipped StepOutcome = "skipped"
	// StepReverted: the step's execution did not fail, and is undone.
	StepReverted StepOutcome = "reverted"
	// StepRevertFailed: the step's execution did not fail, and its revert failed.
	StepRevertFailed StepOutcome = "revert_failed"
	// StepUnfinished: the flow or the job ended first. The step did not run, or its execution was interrupted.
	StepUnfinished StepOutcome = "unfinished"
)

// StepOutcomes are all outcomes of steps.
var StepOutcomes = []StepOutcome{StepSuccess, StepFailure, StepSkipped, StepReverted, StepRevertFailed, StepUnfinished}

// Known reports whether the outcome is one of the constants.
func (o StepOutcome) Known() bool { return slices.Contains(StepOutcomes, o) }

// IsKnown reports whether the flow's record or definition has the step. A flow that has not started has no
// definition, and nodes cannot read an encrypted definition. The record has an instance when the instance
// starts.
func (s *Step) IsKnown() bool { return s.Atom.Kind != "" }

// Settled reports whether a wait for the step ends: the step has ended, or only an operator can continue the
// job.
func (s *Step) Settled() bool { return s.Outcome != "" || s.JobState.NeedsOperator() }

// Judge returns the outcome of the step by its record; empty: the step has not ended. A step with an outcome
// can start again: in a new round of a retry, in another attempt of the job, or after an intervention. Then
// it has no outcome until it ends again.
//
//	state of the step           outcome
//	success                     success
//	ignore                      skipped
//	reverted, dropped           skipped
//	failure, ignored            failure
//	after a failed execution:
//	  failure, reverting,
//	  reverted, revert_failure  failure, unless a retry may still run the step again
//	otherwise:
//	  reverted                  reverted, as above
//	  revert_failure            revert_failed
//	any other                   unfinished, if the flow or the job has ended
//
// While the flow is running, a retry may run every undone or failed step again.
func (s *Step) Judge() StepOutcome {
	switch {
	case s.Atom.State == logbook.AtomSuccess:
		return StepSuccess
	case s.Atom.State == logbook.AtomIgnored, s.Atom.State == logbook.AtomReverted && s.Atom.IsDropped():
		return StepSkipped
	case s.Atom.FailureIgnored():
		return StepFailure
	}
	over := s.FlowState.Finished() || s.JobState.Finished()
	if !over && s.FlowState != logbook.FlowReverting {
		return ""
	}
	last, executed := s.Atom.Last(logbook.ActionExecute)
	failed := executed && last.Failure != nil
	switch s.Atom.State {
	case logbook.AtomFailure, logbook.AtomReverting, logbook.AtomReverted, logbook.AtomRevertFailure:
		switch {
		case failed:
			return StepFailure
		case s.Atom.State == logbook.AtomReverted:
			return StepReverted
		case s.Atom.State == logbook.AtomRevertFailure:
			return StepRevertFailed
		}
	}
	if over {
		return StepUnfinished
	}
	return ""
}
