package await

import (
	"context"
	"errors"
	"fmt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Client is the part of *raftboard.Client that Result uses.
type Client interface {
	Wait(ctx context.Context, id jobs.JobID) (jobs.Job, error)
	FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error)
}

// Result waits until a job is finished or needs an operator, and returns its flow. Read the flow's
// values with Decode or Values. If the job has no flow, the returned flow is empty.
//
// The error is nil if the job succeeded. If its flow is reverted or in failure, the error wraps a
// *logbook.EndError, which has the failures of all steps. Otherwise it is the error of (*jobs.Job).Err.
// ErrNotFound if the job, or the flow of a succeeded job, is no longer kept.
func Result(ctx context.Context, client Client, id jobs.JobID) (logbook.FlowDetail, error) {
	job, err := client.Wait(ctx, id)
	if err != nil {
		return logbook.FlowDetail{}, fmt.Errorf("cannot wait for job %s: %w", id, err)
	}
	ended := job.Err()
	if job.Flow.IsZero() {
		return logbook.FlowDetail{}, ended
	}
	detail, err := client.FlowDetail(ctx, job.Flow)
	if err != nil && (ended == nil || !errors.Is(err, jobs.ErrNotFound)) {
		return detail, fmt.Errorf("cannot read the flow of job %s: %w", id, err)
	}
	if failed := detail.Err(); failed != nil && (job.Outcome == jobs.OutcomeReverted || job.Outcome == jobs.OutcomeFailed) {
		ended = fmt.Errorf("job %s: %w", id, failed)
	}
	return detail, ended
}
