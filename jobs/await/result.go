package await

import (
	"context"
	"errors"
	"fmt"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Client is the part of a cluster's client that Result uses.
type Client interface {
	Wait(ctx context.Context, id jobs.JobID) (jobs.Job, error)
	FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error)
}

// Result waits until a job is finished and returns its flow: read the flow's values by Decode or
// Values. A flow is empty if the job has none.
//
// The error is nil if the job is a success. A jobs.ErrReverted or jobs.ErrFailed of a flow is a
// *logbook.EndError, which has the failures of all its steps. The others of (*jobs.Job).Err are
// returned as they are; ErrNotFound if the job, or its flow, is no longer kept.
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
