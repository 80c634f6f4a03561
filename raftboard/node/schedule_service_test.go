package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// TestScheduleThroughTheCluster makes every schedule call at a follower, and checks that a leader
// posts slots.
func TestScheduleThroughTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client((c.leader() + 1) % 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := schedules.Ref{Name: "ticks"}
	order := schedules.Command{Ref: name, By: "ann", Reason: "look", Nonce: jobs.NewNonce()}
	schedule := schedules.Schedule{Name: "ticks", Rule: "@every 1s", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: "tick"}}
	saved, err := client.SaveSchedule(ctx, schedule)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.SaveSchedule(ctx, schedule); err != nil || again.Revision != saved.Revision || again.ID != saved.ID {
		t.Errorf("saved again: %+v, %v", again, err)
	}
	first, err := client.Job(ctx, saved.ID.SlotJob(saved.Next))
	for errors.Is(err, jobs.ErrNotFound) { // its time is in the future
		first, err = client.Job(ctx, saved.ID.SlotJob(saved.Next))
	}
	if err != nil || first.Kind != "tick" || first.State != jobs.StateClaimable || first.PostedAt.Before(saved.Next.Add(-time.Second/2)) {
		t.Errorf("the first job: %+v, %v", first, err)
	}
	if err := client.PauseSchedule(ctx, order); err != nil {
		t.Fatal(err)
	}
	run, err := client.RunSchedule(ctx, order)
	again, errAgain := client.RunSchedule(ctx, order)
	if err != nil || errAgain != nil || run.Job != again.Job || run.Trigger != schedules.TriggerRun {
		t.Errorf("ran %+v, %v; and again %+v, %v", run, err, again, errAgain)
	}
	filled, err := client.BackfillSchedule(ctx, schedules.Backfill{Ref: name, From: saved.Next.Add(-3 * time.Second), To: saved.Next})
	if err != nil || len(filled) != 3 {
		t.Errorf("filled in %+v, %v", filled, err)
	}
	_, err = client.BackfillSchedule(ctx, schedules.Backfill{Ref: name, From: saved.Next.Add(-time.Hour), To: saved.Next})
	if !errors.Is(err, jobs.ErrLimit) {
		t.Errorf("an hour of seconds: %v", err)
	}
	report, err := client.Schedule(ctx, name, schedules.Look{Upcoming: 3, History: 100})
	if err != nil || len(report.Upcoming) != 3 || report.Schedule.Pause == nil || uint64(len(report.History)) != report.Schedule.Posted {
		t.Errorf("reported %+v, %v", report, err)
	}
	if err := client.ResumeSchedule(ctx, order); err != nil {
		t.Error(err)
	}
	if listed, err := client.Schedules(ctx, schedules.Query{}); err != nil || len(listed.Items) != 1 || listed.Items[0].Pause != nil {
		t.Errorf("listed %+v, %v", listed, err)
	}
	if err := client.DeleteSchedule(ctx, name); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"delete": client.DeleteSchedule(ctx, name), "pause": client.PauseSchedule(ctx, order), "resume": client.ResumeSchedule(ctx, order),
		"run": second(client.RunSchedule(ctx, order)), "read": second(client.Schedule(ctx, name, schedules.Look{})),
	} {
		if !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%s what is gone: %v", what, err)
		}
	}
	if _, err := client.SaveSchedule(ctx, schedules.Schedule{Name: "x", Rule: "soon", Posting: jobs.Posting{Kind: "k"}}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a bad rule: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
