package conductor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestWaitingJobsAreGivenBack: a job that only waits leaves its place to
// another, counts no failure, and goes on when its step is due.
func TestWaitingJobsAreGivenBack(t *testing.T) {
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
	o.MaxJobs, o.Park = 1, time.Millisecond
	running(t, o)
	waits, stays := post(t, c, "waits", nil), post(t, c, "stays", nil)
	var waiting jobs.Job
	until(t, "it waits on the board", func() bool {
		var err error
		waiting, err = c.Job(t.Context(), stays.ID)
		return err == nil && waiting.State == jobs.StateCooling
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
}

func TestDecidingAboutWaitingJobs(t *testing.T) {
	last := &logbook.Update{}
	for name, order := range map[string]*jobs.StandingOrder{"no order": nil, "an order": {Kind: jobs.OrderCancel, Revert: true}} {
		end := engine.End{State: logbook.FlowRunning, Update: last, WaitUntil: time.Now().Add(time.Hour), WaitFor: "a"}
		verb, ending := conductor.DecideUnder(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, end, nil, order)
		if got := fmt.Sprint(verb, ending.Delay == time.Minute, ending.Failure, ending.Update == last); got != fmt.Sprint("abandon", order == nil, ending.Failure, true) || ending.Failure != nil {
			t.Errorf("%s: %s, %+v", name, got, ending)
		}
	}
	end := engine.End{State: logbook.FlowRunning, WaitUntil: time.Now().Add(-time.Second)}
	if _, ending := conductor.DecideUnder(conductor.Options{}, jobs.Job{ID: jobs.NewJobID()}, end, nil, nil); ending.Delay != 0 {
		t.Errorf("due already: %s", ending.Delay)
	}
}
