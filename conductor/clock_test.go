package conductor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// TestRecordsHaveTheClustersTime: a conductor on a machine whose wall clock is a year off
// records the cluster's time, and a step that another such machine has delayed is tried again
// at the right time.
func TestRecordsHaveTheClustersTime(t *testing.T) {
	const (
		year = 365 * 24 * time.Hour
		wait = 5 * time.Second
	)
	for name, ahead := range map[string]time.Duration{"a year behind": year, "a year ahead": -year} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := boardtest.New(t, boardtest.Options{Ahead: ahead})
				o := options(c, factories{"waits": func() ([]flow.Node, error) {
					return []flow.Node{do("a", func(ctx context.Context) error {
						if flow.CallFrom(ctx).Asked == 0 {
							return flow.NotYet(wait)
						}
						return nil
					})}, nil
				}}.registry(t))
				o.MaxIdle = time.Second
				running(t, o)
				began := time.Now()
				job := finished(t, c, post(t, c, "waits", nil).ID)
				if took := time.Since(began); job.Outcome != jobs.OutcomeSuccess || took < wait || took > wait+time.Second {
					t.Errorf("after %v: %+v", took, job)
				}
				detail, err := c.FlowDetail(t.Context(), job.Flow)
				if err != nil {
					t.Fatal(err)
				}
				attempt, start := detail.Atoms[0].Attempts[0], began.Add(ahead)
				if attempt.StartedAt.Sub(start) > time.Second || attempt.StartedAt.Before(start) || attempt.EndedAt.After(job.FinishedAt) {
					t.Errorf("recorded %v to %v; the job was posted at %v and finished at %v", attempt.StartedAt, attempt.EndedAt, job.PostedAt, job.FinishedAt)
				}
			})
		})
	}
}
