package conductor_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
)

// awaitsWorkers is a board on which all step workers arrive together. Each worker runs its step for
// a second.
type awaitsWorkers struct {
	cluster
	offered atomic.Int64
	come    chan struct{}
	arrive  func()
}

func openAwaitsWorkers(t *testing.T) *awaitsWorkers {
	come := make(chan struct{})
	return &awaitsWorkers{cluster: openCluster(t), come: come, arrive: sync.OnceFunc(func() { close(come) })}
}

func (a *awaitsWorkers) OfferStep(ctx context.Context, offer steps.Offer) (steps.Answer, error) {
	if offer.Worker != (jobs.SessionID{}) {
		select {
		case <-time.After(time.Second):
			return steps.Answer{Outcome: &steps.Outcome{ID: offer.Work.ID, Done: true, Result: json.RawMessage("1")}}, nil
		case <-ctx.Done():
			return steps.Answer{}, ctx.Err()
		}
	}
	a.offered.Add(1)
	defer a.offered.Add(-1)
	select {
	case <-a.come:
		return steps.Answer{Worker: jobs.NewSessionID(), Name: "hands"}, nil
	case <-time.After(offer.Wait):
		return steps.Answer{}, nil
	case <-ctx.Done():
		return steps.Answer{}, ctx.Err()
	}
}

// waitAndWork has flows that wait for workers, and other flows. most is the highest number of other
// flows in parallel.
func waitAndWork(t *testing.T, most *atomic.Int64) *flow.Registry {
	var at atomic.Int64
	return factories{
		"waits": func() ([]flow.Node, error) {
			return []flow.Node{flow.NewStep("a", flow.OnWorker(flow.WorkerStep{Type: "t"})), do("b", well)}, nil
		},
		"works": func() ([]flow.Node, error) {
			return []flow.Node{do("a", func(ctx context.Context) error {
				now := at.Add(1)
				defer at.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				time.Sleep(time.Second)
				return nil
			})}, nil
		},
	}.registry(t)
}

// TestWaitingForWorkersTakesNoSlot: jobs that only wait for step workers let other jobs run,
// keep their claims, and continue when workers arrive. The limit of parallel jobs holds
// afterwards.
func TestWaitingForWorkersTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openAwaitsWorkers(t)
		var most atomic.Int64
		o := options(c, waitAndWork(t, &most))
		o.MaxJobs, o.Steps = 2, 2
		running(t, o)
		var waiting, working []jobs.Job
		for range 5 {
			waiting = append(waiting, post(t, c, "waits", nil))
		}
		begun := time.Now()
		if job := finished(t, c, post(t, c, "works", nil).ID); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("beside those that wait: %+v", job)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		until(t, "all wait", func() bool { return c.offered.Load() == 5 })
		capacity := func(want int) {
			until(t, "the board knows how many jobs it takes", func() bool {
				entities, err := c.Entities(t.Context(), jobs.EntityConductor)
				return err == nil && len(entities) == 1 && entities[0].MaxJobs == want
			})
		}
		capacity(7)
		c.arrive()
		for range 6 {
			working = append(working, post(t, c, "works", nil))
		}
		for _, job := range append(waiting, working...) {
			if job := finished(t, c, job.ID); job.Outcome != jobs.OutcomeSuccess || job.Claims != 1 {
				t.Errorf("%s after %d claims", job.Outcome, job.Claims)
			}
		}
		capacity(2)
		if most.Load() != 2 {
			t.Errorf("%d jobs ran at once", most.Load())
		}
	})
}

// TestWaitingForWorkersHasALimit: a session holds at most jobs.MaxClaims jobs.
func TestWaitingForWorkersHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openAwaitsWorkers(t)
		var most atomic.Int64
		o := options(c, waitAndWork(t, &most))
		o.MaxJobs = jobs.MaxClaims - 2
		running(t, o)
		for range jobs.MaxClaims {
			post(t, c, "waits", nil)
		}
		until(t, "all wait", func() bool { return c.offered.Load() == jobs.MaxClaims })
		last := post(t, c, "works", nil)
		time.Sleep(time.Minute)
		if job, err := c.Job(t.Context(), last.ID); err != nil || job.State != jobs.StateClaimable {
			t.Errorf("one more is %s, %v", job.State, err)
		}
		c.arrive()
		if job := finished(t, c, last.ID); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("one more: %+v", job)
		}
	})
}

// TestLastJobWaitsForWorkers: a conductor that has taken MaxDispatches jobs does not return while
// one of them waits for a worker.
func TestLastJobWaitsForWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openAwaitsWorkers(t)
		var most atomic.Int64
		o := options(c, waitAndWork(t, &most))
		o.MaxJobs, o.MaxDispatches = 1, 1
		job := post(t, c, "waits", nil)
		time.AfterFunc(time.Minute, c.arrive)
		if err := conductor.Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if job, err := c.Job(t.Context(), job.ID); err != nil || job.Outcome != jobs.OutcomeSuccess || job.Claims != 1 {
			t.Errorf("it ended as %+v, %v", job, err)
		}
	})
}
