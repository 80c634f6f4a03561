package conductor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
)

// ordered drains a conductor by name on the board, and waits until it has noticed.
func ordered(t *testing.T, c cluster, notices *diary, order jobs.DrainCommand) {
	t.Helper()
	order.Conductor, order.By, order.Reason = "tester", "ann", "a new kernel"
	before := notices.count(conductor.MomentDrained)
	if err := c.DrainConductor(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	until(t, "the conductor has noticed the drain", func() bool { return notices.count(conductor.MomentDrained) == before+1 })
}

func undrained(t *testing.T, c cluster) {
	t.Helper()
	if err := c.UndrainConductor(t.Context(), jobs.DrainCommand{Conductor: "tester"}); err != nil {
		t.Fatal(err)
	}
}

// waits checks that a job stays unclaimed although a conductor is live: meanwhile the conductor
// does another job.
func waits(t *testing.T, c cluster, id jobs.JobID) {
	t.Helper()
	explanation, err := c.Explain(t.Context(), id)
	if err != nil || explanation.Cause != jobs.CauseDrained {
		t.Errorf("the job is not kept by the drain: %+v, %v", explanation, err)
	}
}

// stays is a kind with one step that runs until it is stopped or released.
func stays(t *testing.T, free <-chan struct{}) *flow.Registry {
	return factories{"work": func() ([]flow.Node, error) {
		return []flow.Node{do("long", func(ctx context.Context) error {
			select {
			case <-free:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})}, nil
	}}.registry(t)
}

// A drained conductor hands over within a second and keeps running. It gets jobs again when the
// drain ends.
func TestDrainedConductorHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, free := openCluster(t), make(chan struct{})
		o, notices := noticed(c, stays(t, free))
		running(t, o)
		job := post(t, c, "work", nil)
		synctest.Wait()

		claimed := make(chan time.Time, 1)
		other := options(c, stays(t, free))
		other.Name = "other"
		other.Notify = func(n conductor.Notice) {
			if n.Moment == conductor.MomentClaimed && n.Job == job.ID {
				claimed <- time.Now()
			}
		}
		another := running(t, other)
		began := time.Now()
		ordered(t, c, notices, jobs.DrainCommand{})
		if took := (<-claimed).Sub(began); took > time.Second {
			t.Errorf("handed over after %s", took)
		}
		close(free)
		if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess || got.Claims != 2 || got.Failures != 0 {
			t.Errorf("outcome %q after %d claims and %d failures", got.Outcome, got.Claims, got.Failures)
		}
		drain(t, another)
		synctest.Wait()
		waiting := post(t, c, "work", nil)
		synctest.Wait()
		waits(t, c, waiting.ID)
		undrained(t, c)
		if got := finished(t, c, waiting.ID); got.Outcome != jobs.OutcomeSuccess {
			t.Errorf("outcome %q after the drain", got.Outcome)
		}
		if opened, over := notices.count(conductor.MomentSessionOpened), notices.count(conductor.MomentUndrained); opened != 1 || over != 1 {
			t.Errorf("%d sessions were opened, and %d drains ended", opened, over)
		}
	})
}

// A conductor that is drained with finish completes its jobs and claims no more. A later drain
// without finish makes it hand over.
func TestDrainedConductorFinishes(t *testing.T) {
	for _, hurried := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, free := openCluster(t), make(chan struct{})
			o, notices := noticed(c, stays(t, free))
			running(t, o)
			job := post(t, c, "work", nil)
			synctest.Wait()
			ordered(t, c, notices, jobs.DrainCommand{Finish: true})
			time.Sleep(time.Minute)
			if got := under(t, c, job.ID, jobs.StateClaimed); got.Claims != 1 {
				t.Errorf("claimed %d times", got.Claims)
			}
			more := post(t, c, "work", nil)
			if hurried {
				ordered(t, c, notices, jobs.DrainCommand{})
				under(t, c, job.ID, jobs.StateClaimable)
				undrained(t, c)
			}
			close(free)
			if got := finished(t, c, job.ID); got.Outcome != jobs.OutcomeSuccess {
				t.Errorf("outcome %q", got.Outcome)
			}
			if !hurried {
				synctest.Wait()
				waits(t, c, more.ID)
				undrained(t, c)
			}
			finished(t, c, more.ID)
		})
	}
}

// A conductor that starts while its name is drained gets no jobs, and knows the reason.
func TestDrainedBeforeItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, free := openCluster(t), make(chan struct{})
		close(free)
		if err := c.DrainConductor(t.Context(), jobs.DrainCommand{Conductor: "tester", Absent: true, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		job := post(t, c, "work", nil)
		o, notices := noticed(c, stays(t, free))
		running(t, o)
		synctest.Wait()
		if heard := notices.count(conductor.MomentDrained); heard != 1 {
			t.Errorf("heard of the drain %d times", heard)
		}
		waits(t, c, job.ID)
		undrained(t, c)
		finished(t, c, job.ID)
	})
}

// A drain during a broken watch takes effect when the watch resumes, even if its event was already
// removed.
func TestDrainDuringABrokenWatch(t *testing.T) {
	for _, fault := range []error{jobs.ErrUnavailable, jobs.ErrCompacted} {
		synctest.Test(t, func(t *testing.T) {
			c, p := newCrackling(openCluster(t)), newTrip()
			o, notices := noticed(c, p.registry(t))
			c.whole <- struct{}{}
			running(t, o)
			job := held(t, c, p)
			c.broken <- fault
			<-c.ended
			if err := c.DrainConductor(t.Context(), jobs.DrainCommand{Conductor: "tester"}); err != nil {
				t.Fatal(err)
			}
			c.whole <- struct{}{}
			until(t, "the conductor has noticed the drain", func() bool { return notices.count(conductor.MomentDrained) == 1 })
			if got := under(t, c, job.ID, jobs.StateClaimable); got.Claims != 1 {
				t.Errorf("claimed %d times", got.Claims)
			}
		})
	}
}

// A claim whose answer arrives after the conductor was drained is released before any step runs.
func TestDrainedWhileAClaimIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := openCluster(t), newTrip()
		r := &path{cluster: c}
		o, notices := noticed(r, p.registry(t))
		r.claimed = func(context.Context) error {
			ordered(t, c, notices, jobs.DrainCommand{})
			return nil
		}
		running(t, o)
		posted := post(t, c, "trip", nil)
		until(t, "the job is released", func() bool { return notices.count(conductor.MomentAbandoned) == 1 })
		job := under(t, c, posted.ID, jobs.StateClaimable)
		if got := p.noted(); got != "" || job.Claims != 1 || job.Failures != 0 {
			t.Errorf("after %d claims and %d failures, done: %s", job.Claims, job.Failures, got)
		}
		if job.Reason != conductor.ErrDrained.Error() {
			t.Errorf("given back with %q", job.Reason)
		}
	})
}

// A conductor hands over a transferred job, and keeps its other jobs. The receiving conductor
// continues the flow.
func TestTransferredJobIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, free := openCluster(t), make(chan struct{})
		o, _ := noticed(c, stays(t, free))
		running(t, o)
		job, kept := post(t, c, "work", nil), post(t, c, "work", nil)
		synctest.Wait()
		claims := make(chan jobs.JobID, 2)
		other := options(c, stays(t, free))
		other.Name = "other"
		other.Notify = func(n conductor.Notice) {
			if n.Moment == conductor.MomentClaimed {
				claims <- n.Job
			}
		}
		running(t, other)
		synctest.Wait()
		if err := c.Transfer(t.Context(), jobs.JobCommand{Job: job.ID, To: "other", By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if claimed := <-claims; claimed != job.ID {
			t.Errorf("it got job %s", claimed)
		}
		under(t, c, kept.ID, jobs.StateClaimed)
		close(free)
		for id, want := range map[jobs.JobID]int{job.ID: 2, kept.ID: 1} {
			if got := finished(t, c, id); got.Outcome != jobs.OutcomeSuccess || got.Claims != want || got.Failures != 0 {
				t.Errorf("outcome %q after %d claims and %d failures", got.Outcome, got.Claims, got.Failures)
			}
		}
	})
}
