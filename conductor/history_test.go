package conductor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// tireless makes flows with a step that is reverted at the end, and a step that receives the number
// of its attempt. That step is tried 100 times in each of several rounds.
type tireless struct {
	rounds     int
	try        func(ctx context.Context, number int64) error
	tries      atomic.Int64
	done, back atomic.Int64 // executions and reverts of the step before
}

func (f *tireless) registry(t *testing.T) *flow.Registry {
	return factories{"tireless": func() ([]flow.Node, error) {
		before := flow.FuncRevert("before",
			func(context.Context, struct{}) (struct{}, error) { f.done.Add(1); return struct{}{}, nil },
			func(context.Context, struct{}, *struct{}) error { f.back.Add(1); return nil })
		tired := do("tired", func(ctx context.Context) error { return f.try(ctx, f.tries.Add(1)) }, flow.Retry(flow.Backoff{Attempts: 100}))
		return []flow.Node{before, flow.Linear("g", tired).WithRetry(flow.Times("again", f.rounds))}, nil
	}}.registry(t)
}

// TestLongHistoriesEnd: steps use all attempts of their own retry and of outer retries, and are
// then reverted, although no atom stores so many attempts.
func TestLongHistoriesEnd(t *testing.T) {
	never := func(context.Context, int64) error { return errors.New("never") }
	rounds := longtest.Rounds(5, 100) // of 100 tries each: more than logbook.KeptAttempts
	tries := int64(100 * rounds)
	for _, row := range []struct {
		name    string
		rounds  int
		retry   *jobs.RetryPolicy
		try     func(ctx context.Context, number int64) error
		cancel  bool
		outcome jobs.Outcome
		tries   int64
		back    int64 // reverts of the step before
	}{
		{"every round of a retry is used up", rounds, nil, never, false, jobs.OutcomeReverted, tries, 1},
		{"the job is retried without a limit", 1, &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 1, Delay: jobs.MinRetryDelay}, OnFailure: jobs.FailureRetries},
			func(_ context.Context, number int64) error {
				if number <= tries {
					return errors.New("not yet")
				}
				return nil
			}, false, jobs.OutcomeSuccess, tries + 1, int64(rounds)},
		{"an operator cancels it", rounds, nil,
			func(_ context.Context, number int64) error {
				if number == tries-10 {
					time.Sleep(time.Minute) // until it is cancelled
				}
				return errors.New("never")
			}, true, jobs.OutcomeCancelled, tries - 10, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, f := openCluster(t), &tireless{rounds: row.rounds, try: row.try}
				running(t, options(c, f.registry(t)))
				book := logbook.Book{ID: logbook.NewBookID(), Name: "tireless"}
				book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "tireless", Factory: logbook.Factory{Name: "tireless"}}}
				job := postOne(t, c, jobs.Posting{Name: "tireless", Book: &book, Retry: row.retry})
				if row.cancel {
					until(t, "the last try runs", func() bool { return f.tries.Load() == row.tries })
					if err := c.Cancel(t.Context(), order(job, true)); err != nil {
						t.Fatal(err)
					}
				}
				job = finished(t, c, job.ID)
				if job.Outcome != row.outcome || f.tries.Load() != row.tries || f.back.Load() != row.back || f.done.Load() < row.back {
					t.Errorf("%s %s (%s) after %d tries; the step before was done %d times, and undone %d times",
						job.State, job.Outcome, job.Reason, f.tries.Load(), f.done.Load(), f.back.Load())
				}
				detail, err := c.FlowDetail(t.Context(), job.Flow)
				if err != nil {
					t.Fatal(err)
				}
				for i := range detail.Atoms {
					if kept := len(detail.Atoms[i].Attempts); kept > logbook.KeptAttempts {
						t.Errorf("%d attempts of %s are kept", kept, detail.Atoms[i].Name)
					}
				}
			})
		})
	}
}
