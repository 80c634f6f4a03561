package conductor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestTimeoutOfARun: a flow that hangs is reverted when its timeout is over, counted from the first claim of the attempt,
// also if its owner dies meanwhile. The attempt of the job has failed then, and the next attempt has the whole time.
func TestTimeoutOfARun(t *testing.T) {
	for name, dies := range map[string]bool{"one owner": false, "the owner dies": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCluster(t)
				var attempts atomic.Int32
				work := do("work", func(ctx context.Context) error {
					job, err := jobs.ParseJobID(flow.CallFrom(ctx).Job)
					if err != nil {
						return err
					}
					now, err := c.Job(ctx, job)
					if attempts.Store(int32(now.Attempts)); err != nil || now.Attempts > 0 {
						time.Sleep(15 * time.Second) // within the timeout of this attempt
						return err
					}
					if dies {
						time.AfterFunc(10*time.Second, func() { expireSessions(t, c) })
						dies = false
					}
					<-ctx.Done()
					return ctx.Err()
				})
				registry := flow.NewRegistry()
				if err := flow.Register(registry, "slow", func(struct{}) (*flow.Flow, error) {
					return flow.Linear("slow", do("first", well), work).Timeout(20 * time.Second), nil
				}); err != nil {
					t.Fatal(err)
				}
				o := options(c, registry)
				o.TTL = ttl
				_, run := made(t, o)
				run()
				posting := jobs.NewPosting("slow", nil, nil)
				posting.Retry = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 2, Delay: 10 * time.Second}}
				posted := postOne(t, c, posting)
				job := finished(t, c, posted.ID)
				if job.Outcome != jobs.OutcomeSuccess || job.Attempts != 1 || attempts.Load() != 1 {
					t.Errorf("the job is %s %s after %d failed attempts: %s", job.State, job.Outcome, job.Attempts, job.Reason)
				}
				if took := job.FinishedAt.Sub(posted.PostedAt).Round(time.Second); took < 45*time.Second || took > 50*time.Second {
					t.Errorf("the job took %s, want 20 s, a delay of 10 s and 15 s", took)
				}
			})
		})
	}
}
