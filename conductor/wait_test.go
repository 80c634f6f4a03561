package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// waitingJob posts a flow and runs a conductor until the flow waits.
func waitingJob(t *testing.T, nodes ...flow.Node) (cluster, jobs.JobID) {
	t.Helper()
	c := openCluster(t)
	id := postOrder(t, c)
	_, run := made(t, options(c, orderFlow(t, func() []flow.Node { return nodes })))
	run()
	time.Sleep(time.Second)
	return c, id
}

// TestCancelOfAWait: a job whose flow only waits is cancelled without its wait, and gets no signal afterwards.
func TestCancelOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, id := waitingJob(t, flow.Signal[payment]("paid", flow.WaitFor(time.Hour)))
		began := time.Now()
		if err := c.Cancel(t.Context(), jobs.JobCommand{Job: id, Revert: true}); err != nil {
			t.Fatal(err)
		}
		if job := finished(t, c, id); job.Outcome != jobs.OutcomeCancelled || time.Since(began) > time.Minute {
			t.Errorf("the job is %s after %s", job.Outcome, time.Since(began))
		}
		if _, err := c.Signal(t.Context(), id, logbook.Signal{Name: "paid", ID: "late"}); !errors.Is(err, jobs.ErrJobOver) {
			t.Errorf("a signal for a cancelled job: %v, want %v", err, jobs.ErrJobOver)
		}
	})
}

// TestSuspendedJobKeepsSignals: a signal for a suspended job continues the job after its resume, and not before.
func TestSuspendedJobKeepsSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, id := waitingJob(t, flow.Signal[payment]("paid", flow.WaitFor(time.Hour)))
		if err := c.Suspend(t.Context(), jobs.JobCommand{Job: id}); err != nil {
			t.Fatal(err)
		}
		pay(t, c, id)
		time.Sleep(time.Minute)
		if job, err := c.Job(t.Context(), id); err != nil || job.State != jobs.StateSuspended {
			t.Errorf("after the signal the job is %s, %v", job.State, err)
		}
		if err := c.Resume(t.Context(), jobs.JobCommand{Job: id}); err != nil {
			t.Fatal(err)
		}
		resumed := time.Now()
		job := finished(t, c, id)
		if result, _ := stepOf(detailOf(t, c, job), "paid").Result(); job.Outcome != jobs.OutcomeSuccess || string(result) != `{"amount":7}` || time.Since(resumed) > time.Minute {
			t.Errorf("%s after its resume, the job is %s with %s", time.Since(resumed), job.Outcome, result)
		}
	})
}

// TestRetryNowEndsASleep: retry-now ends a sleep, and no wait for a signal.
func TestRetryNowEndsASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, id := waitingJob(t, flow.Sleep("rest", 24*time.Hour), flow.Signal[payment]("paid", flow.WaitFor(time.Hour)))
		if job, err := c.Job(t.Context(), id); err != nil || !strings.HasPrefix(job.Reason, "step rest sleeps until ") {
			t.Errorf("the reason of a sleep is %q, %v", job.Reason, err)
		}
		began := time.Now()
		for range 2 { // the second finds the wait for the signal
			if err := c.RetryNow(t.Context(), jobs.JobCommand{Job: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if answer := pay(t, c, id); answer != jobs.SignalTaken {
			t.Errorf("after retry-now the signal is %s", answer)
		}
		if job := finished(t, c, id); job.Outcome != jobs.OutcomeSuccess || time.Since(began) > 5*time.Minute {
			t.Errorf("the job is %s after %s", job.Outcome, time.Since(began))
		}
	})
}

// TestRetryRoundWaitsAnew: a round of a retry that undoes a wait waits for the next signal.
func TestRetryRoundWaitsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, id := waitingJob(t, flow.Linear("payment", flow.Signal[payment]("paid"), failsOnce()).WithRetry(flow.Times("again", 2)))
		sendTwice(t, c, id, func() {})
	})
}

// TestRerunWaitsAnew: a flow that was reverted after its wait takes the next signal when it runs again.
func TestRerunWaitsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, id := waitingJob(t, flow.Signal[payment]("paid"), failsOnce())
		sendTwice(t, c, id, func() {
			job := finished(t, c, id)
			if job.Outcome != jobs.OutcomeReverted {
				t.Errorf("after the failure the job is %s", job.Outcome)
			}
			if _, err := c.Intervene(t.Context(), logbook.Intervention{ID: uuid.New(), Flow: job.Flow, Kind: logbook.InterveneRerun, By: "ann"}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// failsOnce makes a step whose first execution fails.
func failsOnce() *flow.Step {
	executed := 0
	return do("charge", func(context.Context) error {
		if executed++; executed == 1 {
			return errors.New("no money")
		}
		return nil
	})
}

// sendTwice sends a signal, and another after between. The step "paid" must end with the data of the second.
func sendTwice(t *testing.T, c cluster, id jobs.JobID, between func()) {
	t.Helper()
	for i, data := range []string{`{"amount":1}`, `{"amount":2}`} {
		receipt, err := c.Signal(t.Context(), id, logbook.Signal{Name: "paid", ID: data, Data: json.RawMessage(data)})
		if err != nil || receipt.Answer != jobs.SignalTaken {
			t.Fatalf("signal %d is %s, %v; want taken", i, receipt.Answer, err)
		}
		if i == 0 {
			between()
		}
		time.Sleep(time.Minute)
		if job, err := c.Job(t.Context(), id); i == 0 && (err != nil || job.State.Finished()) {
			t.Fatalf("before the second signal the job is %s, %v", job.State, err)
		}
	}
	job := finished(t, c, id)
	if result, _ := stepOf(detailOf(t, c, job), "paid").Result(); job.Outcome != jobs.OutcomeSuccess || string(result) != `{"amount":2}` {
		t.Errorf("the job is %s with %s", job.Outcome, result)
	}
}
