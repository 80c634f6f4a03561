package jobs_test

import (
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestStepOutcomes: the outcome of a step follows from its record, its flow and its job.
func TestStepOutcomes(t *testing.T) {
	failed := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Unix(1, 0), Failure: &logbook.Failure{Kind: logbook.FailureError}}
	done := logbook.Attempt{Action: logbook.ActionExecute, Number: 1, EndedAt: time.Unix(1, 0)}
	open := logbook.Attempt{Action: logbook.ActionExecute, Number: 1}
	for _, row := range []struct {
		name    string
		job     jobs.State
		flow    logbook.FlowState
		atom    logbook.AtomState
		attempt logbook.Attempt
		intends logbook.Intention
		want    jobs.StepOutcome
	}{
		{"a success", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomSuccess, done, "", jobs.StepSuccess},
		{"a success in a flow that failed", jobs.StateCompleted, logbook.FlowFailure, logbook.AtomSuccess, done, "", jobs.StepSuccess},
		{"left out", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomIgnored, logbook.Attempt{}, "", jobs.StepSkipped},
		{"dropped and undone", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomReverted, failed, logbook.IntendDrop, jobs.StepSkipped},
		{"dropped and running", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomRunning, open, logbook.IntendDrop, ""},
		{"a failure that is ignored", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomFailure, failed, logbook.IntendIgnore, jobs.StepFailure},
		{"a failure that a retry may mend", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomFailure, failed, "", ""},
		{"undone by a retry", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomReverted, failed, "", ""},
		{"a failure of the flow", jobs.StateClaimed, logbook.FlowReverting, logbook.AtomFailure, failed, "", jobs.StepFailure},
		{"a failure between two attempts of the job", jobs.StateDelayed, logbook.FlowReverted, logbook.AtomReverted, failed, "", jobs.StepFailure},
		{"again in the next attempt", jobs.StateClaimed, logbook.FlowRunning, logbook.AtomPending, failed, "", ""},
		{"a failure whose revert failed", jobs.StateCompleted, logbook.FlowFailure, logbook.AtomRevertFailure, failed, "", jobs.StepFailure},
		{"a success whose revert failed", jobs.StateCompleted, logbook.FlowFailure, logbook.AtomRevertFailure, done, "", jobs.StepRevertFailed},
		{"a success that is being undone", jobs.StateClaimed, logbook.FlowReverting, logbook.AtomReverting, done, "", ""},
		{"a success that is undone", jobs.StateClaimed, logbook.FlowReverting, logbook.AtomReverted, done, "", jobs.StepReverted},
		{"interrupted, not yet", jobs.StateClaimed, logbook.FlowReverting, logbook.AtomRunning, open, "", ""},
		{"may still run in the undo", jobs.StateClaimed, logbook.FlowReverting, logbook.AtomPending, logbook.Attempt{}, "", ""},
		{"never ran in a reverted flow", jobs.StateClaimed, logbook.FlowReverted, logbook.AtomPending, logbook.Attempt{}, "", jobs.StepUnfinished},
		{"not a target of the flow", jobs.StateCompleted, logbook.FlowSuccess, logbook.AtomPending, logbook.Attempt{}, "", jobs.StepUnfinished},
		{"ran when the job was trashed", jobs.StateTrashed, logbook.FlowRunning, logbook.AtomRunning, open, "", jobs.StepUnfinished},
		{"ran when the job was suspended", jobs.StateSuspended, logbook.FlowSuspended, logbook.AtomPending, open, "", ""},
		{"unknown, in a flow without a record", jobs.StateClaimable, logbook.FlowPending, "", logbook.Attempt{}, "", ""},
		{"unknown, at the end", jobs.StateCompleted, logbook.FlowPending, "", logbook.Attempt{}, "", jobs.StepUnfinished},
	} {
		step := jobs.Step{JobState: row.job, FlowState: row.flow, Atom: logbook.AtomDetail{State: row.atom, Intention: row.intends}}
		if row.attempt.Number > 0 {
			step.Atom.Attempts = []logbook.Attempt{row.attempt}
		}
		step.Outcome = step.Judge()
		if settled := row.want != "" || row.job == jobs.StateSuspended; step.Outcome != row.want || step.Settled() != settled {
			t.Errorf("%s: outcome %q, settled %t, want %q", row.name, step.Outcome, step.Settled(), row.want)
		}
	}
}
