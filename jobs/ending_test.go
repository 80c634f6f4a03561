package jobs_test

import (
	"errors"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestErr: the error of a job says how it ended. Only a flow has steps.
func TestErr(t *testing.T) {
	failure := &logbook.Failure{Kind: "error", Message: "plain error"}
	id, flow := jobs.NewJobID(), logbook.NewFlowID()
	for _, row := range []struct {
		job  jobs.Job
		want string // after the id
	}{
		{jobs.Job{Flow: flow, Failure: failure}, ": failed, and not all steps are reverted: plain error"},
		{jobs.Job{Failure: failure}, ": failed: plain error"},
		{jobs.Job{Reason: "by hand"}, ": failed: by hand"},
		{jobs.Job{}, ": failed"},
	} {
		row.job.ID, row.job.State, row.job.Outcome = id, jobs.StateCompleted, jobs.OutcomeFailed
		err := row.job.Err()
		if want := "job " + id.String() + row.want; !errors.Is(err, jobs.ErrFailed) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if found := new(logbook.Failure); row.job.Failure != nil && !errors.As(err, &found) {
			t.Errorf("%v has no failure", err)
		}
	}
}
