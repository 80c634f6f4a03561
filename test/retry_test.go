package test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// retried posts an order with a retry policy.
func (w *warehouse) retried(policy jobs.RetryPolicy) jobs.Job {
	w.Helper()
	posting := documentPosting(w.T, "order", orderDocument)
	posting.Retry = &policy
	job, err := jobs.PostOne(within(w.T), w.client, posting)
	if err != nil {
		w.Fatal(err)
	}
	return job
}

// TestOrderIsTriedAgain: an order that cannot be shipped is reverted and retried until it succeeds,
// although the leader and the job's owner die in between.
func TestOrderIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	w.mark("shut", true)
	job := w.retried(jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: logbook.MaxAttempts, Delay: 300 * time.Millisecond, JitterPercent: 20}})
	eventually(t, "two attempts have failed", func() bool {
		got, err := w.client.Job(within(t), job.ID)
		return err == nil && got.Attempts >= 2
	})
	leaderOf(t, w.cluster, w.client).Kill()
	w.mark("shut", false)
	job = w.ends(job.ID, jobs.OutcomeSuccess, logbook.FlowSuccess)
	page, err := w.client.Errors(within(t), jobs.ErrorQuery{Job: job.ID, How: jobs.HowReverted})
	if err != nil || len(page.Items) != job.Attempts {
		t.Errorf("%d attempts have failed, and %d are recorded (%v)", job.Attempts, len(page.Items), err)
	}
	if did := w.diary(job.ID); did["reserve execute"] <= job.Attempts || did["reserve revert"] < job.Attempts {
		t.Errorf("%d attempts have failed, and the handlers did %v", job.Attempts, did)
	}
}

// TestParkedOrder: after its last attempt an order is parked with the reason, and an operator
// retries it.
func TestParkedOrder(t *testing.T) {
	t.Parallel()
	w := openWarehouse(t)
	w.mark("shut", true)
	job := w.retried(jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 2, Delay: jobs.MinRetryDelay}, OnFailure: jobs.FailureParks})
	eventually(t, "the order is parked", func() bool {
		got, err := w.client.Job(within(t), job.ID)
		return err == nil && got.Parked
	})
	id := job.ID.String()
	if said := w.says("job", "explain", id); !strings.Contains(said, "attempt 2 of 2 has failed") || !strings.Contains(said, "conductord job release "+id) {
		t.Errorf("explained as %s", said)
	}
	if said := w.says("job", "get", id); !strings.Contains(said, "2 of 2 failed") || !strings.Contains(said, "shut") {
		t.Errorf("shown as %s", said)
	}
	w.mark("shut", false)
	w.says("job", "release", id, "--reason", "open again")
	w.ends(job.ID, jobs.OutcomeSuccess, logbook.FlowSuccess)
}
