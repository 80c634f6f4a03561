package conductor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestWaitingJobsAreReleased: a job that only waits frees its slot for another job, counts no
// failure, and continues when its step is due.
func TestWaitingJobsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openCluster(t)
		registry := factories{
			"waits": func() ([]flow.Node, error) {
				return []flow.Node{do("a", func(ctx context.Context) error {
					if flow.CallFrom(ctx).Asked == 0 {
						return flow.NotYet(time.Second)
					}
					return nil
				})}, nil
			},
			"stays": func() ([]flow.Node, error) {
				return []flow.Node{do("a", func(context.Context) error { return flow.NotYet(time.Hour) })}, nil
			},
			"works": func() ([]flow.Node, error) { return []flow.Node{do("a", well)}, nil },
		}.registry(t)
		o := options(c, registry)
		o.MaxJobs, o.MaxIdle = 1, time.Millisecond
		running(t, o)
		waits, stays := post(t, c, "waits", nil), post(t, c, "stays", nil)
		var waiting jobs.Job
		until(t, "it waits on the board", func() bool {
			var err error
			waiting, err = c.Job(t.Context(), stays.ID)
			return err == nil && waiting.State == jobs.StateWaiting
		})
		if waiting.Failures != 0 || waiting.Claim != nil || !strings.Contains(waiting.Reason, "to try step a again") {
			t.Errorf("it stands as %+v", waiting)
		}
		if job := finished(t, c, post(t, c, "works", nil).ID); job.Outcome != jobs.OutcomeSuccess {
			t.Errorf("beside it: %+v", job)
		}
		if job := finished(t, c, waits.ID); job.Outcome != jobs.OutcomeSuccess || job.Failures != 0 || job.Claims != 2 {
			t.Errorf("due again: %+v", job)
		}
	})
}

func TestDecidingAboutWaitingJobs(t *testing.T) {
	last := &logbook.Update{}
	for name, order := range map[string]*jobs.OperatorRequest{"no order": nil, "an order": {Kind: jobs.RequestCancel, Revert: true}} {
		end := engine.End{State: logbook.FlowRunning, Update: last, WaitUntil: time.Now(), Wait: time.Hour, WaitFor: "a"}
		verb, ending := conductor.DecideUnder(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, end, nil, order)
		if verb != "abandon" || ending.Delay != time.Hour || ending.Failure != nil || ending.Update != last {
			t.Errorf("%s: %s, %+v", name, verb, ending)
		}
	}
	end := engine.End{State: logbook.FlowRunning, WaitUntil: time.Now()}
	if _, ending := conductor.DecideUnder(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, end, nil, nil); ending.Delay != 0 {
		t.Errorf("due already: %s", ending.Delay)
	}
}

// errandWait is the wait of an errand's second step.
const errandWait = 10 * time.Minute

// errand is a flow whose second step waits once before it is done. If slowly is set, its revert
// waits once too.
func errand(t *testing.T, p *trip, slowly bool) *flow.Registry {
	later := func(ctx context.Context, what string, wait bool) error {
		p.note(what)
		if wait && flow.CallFrom(ctx).Asked == 0 {
			return flow.NotYet(errandWait)
		}
		return nil
	}
	step := func(name string, slow, slowly bool) *flow.Step {
		return flow.FuncRevert(name, func(ctx context.Context, _ nothing) (nothing, error) {
			return nothing{}, later(ctx, name, slow)
		}, func(ctx context.Context, _ nothing, _ *nothing) error { return later(ctx, "undo "+name, slowly) })
	}
	return factories{"errand": func() ([]flow.Node, error) {
		return []flow.Node{step("fly", false, false), step("ask", true, slowly), step("drive", false, false)}, nil
	}}.registry(t)
}

// TestOrdersFindWaitingJobs: a stop request takes effect at once for a job that was released until
// its step is due.
func TestOrdersFindWaitingJobs(t *testing.T) {
	suspend := func(t *testing.T, c cluster, job jobs.Job) error { return c.Suspend(t.Context(), order(job, false)) }
	resume := func(t *testing.T, c cluster, job jobs.Job) error { return c.Resume(t.Context(), order(job, false)) }
	stop := func(t *testing.T, c cluster, job jobs.Job) error { return c.Cancel(t.Context(), order(job, false)) }
	undo := func(t *testing.T, c cluster, job jobs.Job) error { return c.Cancel(t.Context(), order(job, true)) }
	for _, row := range []struct {
		name    string
		slowly  bool // undone
		orders  []func(*testing.T, cluster, jobs.Job) error
		took    time.Duration
		outcome jobs.Outcome
		flow    logbook.FlowState
		claims  int
		done    string
	}{
		{name: "none", took: errandWait, outcome: jobs.OutcomeSuccess, flow: logbook.FlowSuccess, claims: 2, done: "fly, ask, ask, drive"},
		{name: "undo", orders: []func(*testing.T, cluster, jobs.Job) error{undo},
			outcome: jobs.OutcomeCancelled, flow: logbook.FlowReverted, claims: 2, done: "fly, ask, undo ask, undo fly"},
		{name: "undo what takes its time", slowly: true, orders: []func(*testing.T, cluster, jobs.Job) error{undo},
			took: errandWait, outcome: jobs.OutcomeCancelled, flow: logbook.FlowReverted, claims: 3, done: "fly, ask, undo ask, undo ask, undo fly"},
		{name: "leave", orders: []func(*testing.T, cluster, jobs.Job) error{stop},
			outcome: jobs.OutcomeCancelled, flow: logbook.FlowSuspended, claims: 1, done: "fly, ask"},
		{name: "suspend, resume", orders: []func(*testing.T, cluster, jobs.Job) error{suspend, resume},
			took: errandWait, outcome: jobs.OutcomeSuccess, flow: logbook.FlowSuccess, claims: 2, done: "fly, ask, ask, drive"},
		{name: "suspend, undo", orders: []func(*testing.T, cluster, jobs.Job) error{suspend, undo},
			outcome: jobs.OutcomeCancelled, flow: logbook.FlowReverted, claims: 2, done: "fly, ask, undo ask, undo fly"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := openCluster(t), newTrip()
				o := options(c, errand(t, p, row.slowly))
				o.MaxIdle = time.Minute
				running(t, o)
				began := time.Now()
				job := post(t, c, "errand", nil)
				under(t, c, job.ID, jobs.StateWaiting)
				for _, give := range row.orders {
					if err := give(t, c, job); err != nil {
						t.Fatal(err)
					}
				}
				got, err := c.Wait(t.Context(), job.ID)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < row.took || took > row.took+time.Minute {
					t.Errorf("it took %s", took)
				}
				if state := detailOf(t, c, job).State; got.Outcome != row.outcome || got.Claims != row.claims || got.Failures != 0 || state != row.flow {
					t.Errorf("%s: flow %s after %d claims and %d failures", got.Outcome, state, got.Claims, got.Failures)
				}
				if done := p.noted(); done != row.done {
					t.Errorf("done: %s", done)
				}
			})
		})
	}
}
