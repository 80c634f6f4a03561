package conductor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/jobs"
)

// ends runs a conductor in the background, and returns a channel with the result of Run.
func ends(t *testing.T, o conductor.Options) (*conductor.Conductor, <-chan error) {
	t.Helper()
	c, err := conductor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { ended <- c.Run(ctx) }()
	return c, ended
}

// claims counts the claims of all jobs.
func claims(t *testing.T, c cluster) int {
	t.Helper()
	page, err := c.Jobs(t.Context(), jobs.Query{})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for i := range page.Items {
		sum += page.Items[i].Claims
	}
	return sum
}

// TestMaxDispatches: one Run takes exactly MaxDispatches jobs, for any number of waiting and
// parallel jobs, and returns when they are done. The next Run takes as many again.
func TestMaxDispatches(t *testing.T) {
	for _, row := range []struct{ most, atOnce, after, again int }{
		{1, 1, 1, 2}, {1, 8, 1, 2}, {7, 3, 7, 14}, {8, 8, 8, 16}, {10, 4, 10, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := openCluster(t)
			for range 25 {
				post(t, c, "work", nil)
			}
			o, notices := noticed(c, simple(t))
			o.MaxDispatches, o.MaxJobs = row.most, row.atOnce
			worker, ended := ends(t, o)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if got := claims(t, c); got != row.after || notices.count(conductor.MomentConsumed) != row.after {
				t.Errorf("of at most %d, %d at once, %d were claimed and %d done", row.most, row.atOnce, got, notices.count(conductor.MomentConsumed))
			}
			if err := worker.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := claims(t, c); got != row.again {
				t.Errorf("of at most %d, %d were claimed by two runs", row.most, got)
			}
			if got := notices.count(conductor.MomentLimitReached); got != 2 {
				t.Errorf("%d runs were told to be spent", got)
			}
		})
	}
}

// A conductor that has reached its limit finishes the jobs that it holds, without a time limit, and
// can hand them over.
func TestSpentConductorFinishes(t *testing.T) {
	for _, drained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, free := openCluster(t), make(chan struct{})
			o := options(c, stays(t, free))
			o.MaxDispatches = 1
			worker, ended := ends(t, o)
			job, other := post(t, c, "work", nil), post(t, c, "work", nil)
			time.Sleep(time.Hour)
			under(t, c, job.ID, jobs.StateClaimed)
			want := jobs.StateCompleted
			if drained {
				want = jobs.StateClaimable
				drain(t, worker)
			} else {
				close(free)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			under(t, c, job.ID, want)
			if got := under(t, c, other.ID, jobs.StateClaimable); got.Claims != 0 {
				t.Error("a job too many was claimed")
			}
		})
	}
}

// TestMaxDuration: a conductor claims jobs until the time is over, and returns when its jobs are
// done.
func TestMaxDuration(t *testing.T) {
	const most = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		c, free := openCluster(t), make(chan struct{})
		o := options(c, stays(t, free))
		o.MaxDuration = most
		began := time.Now()
		_, ended := ends(t, o)
		time.Sleep(most - time.Second)
		job := post(t, c, "work", nil)
		time.Sleep(time.Minute)
		late := post(t, c, "work", nil)
		time.Sleep(time.Minute)
		under(t, c, job.ID, jobs.StateClaimed)
		close(free)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		finished(t, c, job.ID)
		if got := under(t, c, late.ID, jobs.StateClaimable); got.Claims != 0 {
			t.Errorf("claimed %s after the beginning", time.Since(began))
		}
	})
	for name, board := range map[string]func(cluster) cluster{
		"without jobs": func(c cluster) cluster { return c },
		"without a board": func(c cluster) cluster {
			return &path{cluster: c, open: func(jobs.Opening) error { return jobs.ErrUnavailable }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(board(openCluster(t)), simple(t))
				o.MaxDuration = most
				began := time.Now()
				_, ended := ends(t, o)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < most || took > most+5*time.Second {
					t.Errorf("ended after %s", took)
				}
			})
		})
	}
}

// A claim whose answer arrives after the conductor's time is over is released before any step runs.
func TestClaimedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		r := &path{cluster: c}
		o, notices := noticed(r, simple(t))
		o.MaxDuration = time.Minute
		r.claimed = func(context.Context) error {
			time.Sleep(2 * time.Second)
			return nil
		}
		_, ended := ends(t, o)
		time.Sleep(time.Minute - time.Second)
		job := post(t, c, "work", nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := under(t, c, job.ID, jobs.StateClaimable); got.Claims != 1 || got.Reason != conductor.ErrTimeOver.Error() {
			t.Errorf("after %d claims, %q", got.Claims, got.Reason)
		}
		if got := notices.count(conductor.MomentStarted); got != 0 {
			t.Errorf("%d jobs were begun", got)
		}
	})
}

// TestPause: a conductor's jobs continue, a claim in flight gets no job, and then the
// conductor makes no claim until the pause ends.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, free := openCluster(t), make(chan struct{})
		o, notices := noticed(c, stays(t, free))
		worker := running(t, o)
		job := post(t, c, "work", nil)
		synctest.Wait()
		worker.Pause()
		worker.Pause()
		first := post(t, c, "work", nil)
		synctest.Wait()
		second := post(t, c, "work", nil)
		time.Sleep(time.Hour)
		if got := under(t, c, first.ID, jobs.StateClaimable); got.Claims != 1 || got.Reason != conductor.ErrPaused.Error() || got.Failures != 0 {
			t.Errorf("the first is %+v", got)
		}
		if got := under(t, c, second.ID, jobs.StateClaimable); got.Claims != 0 {
			t.Errorf("the second is %+v", got)
		}
		under(t, c, job.ID, jobs.StateClaimed)
		close(free)
		finished(t, c, job.ID)
		worker.Unpause()
		worker.Unpause()
		for _, waiting := range []jobs.Job{first, second} {
			if got := finished(t, c, waiting.ID); got.Outcome != jobs.OutcomeSuccess {
				t.Errorf("outcome %q", got.Outcome)
			}
		}
		if paused, over := notices.count(conductor.MomentPaused), notices.count(conductor.MomentUnpaused); paused != 1 || over != 1 {
			t.Errorf("told of %d pauses and %d ends", paused, over)
		}
	})
}

// A pause also applies before Run. A paused conductor can be drained.
func TestPausedConductorCanBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		worker, run := made(t, options(c, simple(t)))
		worker.Pause()
		run()
		job := post(t, c, "work", nil)
		time.Sleep(time.Hour)
		if got := under(t, c, job.ID, jobs.StateClaimable); got.Claims != 0 {
			t.Errorf("claimed %d times", got.Claims)
		}
		drain(t, worker)
		worker.Unpause()
	})
}

// TestRegistersAgain: a conductor whose session was lost registers again under the next session.
func TestRegistersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		o, notices := noticed(c, simple(t))
		running(t, o)
		known := func(times int) jobs.SessionID {
			t.Helper()
			until(t, "it is registered", func() bool { return notices.count(conductor.MomentRegistered) == times })
			entities, err := c.Entities(t.Context(), jobs.EntityConductor)
			if err != nil || len(entities) != 1 || entities[0].Name != "tester" {
				t.Fatalf("known are %+v, %v", entities, err)
			}
			return entities[0].Session
		}
		first := known(1)
		expire(t, c, first)
		if second := known(2); second == first {
			t.Error("the session that was lost has a conductor")
		}
	})
}
