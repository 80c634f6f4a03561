package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/jobs"
)

// farOff is longer than the check of a round. Round and farOff together are shorter than the
// clock jumps under test.
const farOff = 40 * time.Minute

// postWaiting posts jobs whose time comes only after this round: one with a later due time,
// and one with a later deadline.
func (r *Runner) postWaiting(ctx context.Context) ([]jobs.Job, error) {
	later := time.Now().Add(r.Plan.Round + farOff)
	var waiting []jobs.Job
	for _, posting := range []jobs.Posting{
		{Name: "due later", Kind: "nobody's", NotBefore: later},
		{Name: "must be done later", Kind: "nobody's", Deadline: later},
	} {
		job, err := r.postHealthy(ctx, posting)
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, job)
	}
	return waiting, nil
}

// checkWaiting checks that nothing has happened to the jobs of postWaiting, and
// cancels them.
func (r *Runner) checkWaiting(ctx context.Context, waiting []jobs.Job) error {
	var faults []error
	for _, before := range waiting {
		now, err := r.client.Job(ctx, before.ID)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("the job %q: %w", before.Name, err))
		case now.State != before.State:
			faults = append(faults, fmt.Errorf("the job %q was %s, and is %s %v too early: %+v", before.Name, before.State, now.State, farOff, now))
		default:
			faults = append(faults, r.client.Cancel(ctx, jobs.JobCommand{Job: now.ID, Reason: "the round is over"}))
		}
	}
	return errors.Join(faults...)
}

// diskPatience limits the time for which a cluster refuses postings after its disks have room
// again: nodes check once a second and then report to the leader.
const diskPatience = 10 * time.Second

// postHealthy posts a job on a cluster in which no fault is left.
func (r *Runner) postHealthy(ctx context.Context, posting jobs.Posting) (jobs.Job, error) {
	began := time.Now()
	for {
		job, err := jobs.PostOne(ctx, r.client, posting)
		switch {
		case err == nil:
			return job, nil
		case !errors.Is(err, jobs.ErrLimit) || time.Since(began) > diskPatience:
			return jobs.Job{}, fmt.Errorf("a posting to a healthy cluster: %w", err)
		}
		time.Sleep(diskPatience / 50)
	}
}
