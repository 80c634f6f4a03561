package conductor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
)

// mutable is the real board; a test can cut off its keep-alives.
type mutable struct {
	cluster
	muted atomic.Bool
}

func (m *mutable) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	if m.muted.Load() {
		<-ctx.Done() // the leader cannot be reached
		return fmt.Errorf("%w: %w", jobs.ErrUncertain, ctx.Err())
	}
	return m.cluster.KeepAlive(ctx, id)
}

const ttl = 4 * time.Second

// between checks a virtual duration in tenths of the TTL.
func between(t *testing.T, what string, got time.Duration, from, to int) {
	t.Helper()
	if got < ttl*time.Duration(from)/10 || got > ttl*time.Duration(to)/10 {
		t.Errorf("%s after %s, which is not %d to %d tenths of %s", what, got, from, to, ttl)
	}
}

func TestNoStepStartsWhileTheSessionIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := &mutable{cluster: openCluster(t)}
		release := make(chan struct{})
		var second atomic.Bool
		registry := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{
				do("first", func(context.Context) error { <-release; return nil }),
				do("second", func(context.Context) error { second.Store(true); return nil }),
			}, nil
		}}.registry(t)
		o := options(board, registry)
		o.TTL = ttl
		running(t, o)
		job := post(t, board, "work", nil)
		synctest.Wait()
		board.muted.Store(true)
		time.Sleep(ttl * 65 / 100)
		close(release)
		synctest.Wait()
		if second.Load() {
			t.Error("a step started in doubt")
		}
		board.muted.Store(false)
		if got := finished(t, board, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Claims != 1 {
			t.Errorf("outcome %q after %d claims", got.Outcome, got.Claims)
		}
	})
}

func TestStepsAreStoppedBeforeTheSessionCanExpire(t *testing.T) {
	rows := []struct {
		name     string
		speaks   time.Duration // after the end of the steps, when the leader answers again
		sessions int
	}{
		{"the session is saved at the last moment", ttl / 100, 1},
		{"the session is lost", ttl / 2, 2},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := &mutable{cluster: openCluster(t)}
				stopped := make(chan time.Time, 1)
				var executions atomic.Int64
				registry := factories{"work": func() ([]flow.Node, error) {
					return []flow.Node{do("step", func(ctx context.Context) error {
						if executions.Add(1) == 1 {
							<-ctx.Done()
							stopped <- time.Now()
						}
						return context.Cause(ctx)
					})}, nil
				}}.registry(t)
				var notices diary
				o := options(board, registry)
				o.TTL, o.Notify = ttl, notices.note
				running(t, o)
				job := post(t, board, "work", nil)
				synctest.Wait()
				muted := time.Now()
				board.muted.Store(true)
				between(t, "the step was stopped", (<-stopped).Sub(muted), 6, 8)
				time.Sleep(row.speaks)
				board.muted.Store(false)
				if row.sessions > 1 {
					until(t, "the session is lost", func() bool { return notices.count(conductor.MomentSessionLost) == 1 })
					between(t, "the session was given up", time.Since(muted), 8, 13)
					expireClaims(t, board.cluster, job.ID)
				}
				if got := finished(t, board, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Claims != 2 {
					t.Errorf("outcome %q after %d claims", got.Outcome, got.Claims)
				}
				if got := notices.count(conductor.MomentSessionOpened); got != row.sessions {
					t.Errorf("%d sessions were opened, want %d", got, row.sessions)
				}
			})
		})
	}
}

// A stopped conductor hands over within a second, even a job whose step ignores its context.
func TestHandOverTakesLessThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		kinds := factories{"work": func() ([]flow.Node, error) {
			return []flow.Node{do("long", func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})}, nil
		}}
		first := running(t, options(c, kinds.registry(t)))
		post(t, c, "work", nil)
		synctest.Wait()
		claimed := make(chan time.Time, 1)
		o := options(c, kinds.registry(t))
		o.Notify = func(n conductor.Notice) {
			if n.Moment == conductor.MomentClaimed {
				claimed <- time.Now()
			}
		}
		running(t, o)
		began := time.Now()
		drain(t, first)
		if took := (<-claimed).Sub(began); took > time.Second {
			t.Errorf("handed over after %s", took)
		}
	})
}
