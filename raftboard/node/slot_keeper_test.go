package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard/node"
)

// TestScheduleThatCannotBeEvaluated: if a leader lacks the zone of a schedule, its log, the list
// and the schedule show this. It continues with the other schedules.
func TestScheduleThatCannotBeEvaluated(t *testing.T) {
	t.Parallel()
	logged := &lockedBuffer{}
	c := newCluster(t, 1, func(o *node.Options) {
		o.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: logged})
	}).startAll()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := c.client(0)

	// No call saves such a schedule. It remains from a release with other zones.
	due := time.Now().Add(-time.Second)
	broken := &schedules.Schedule{ID: schedules.NewID(), Name: "broken", Rule: "* * * * *", Zone: "Europe/Atlantis", Posting: jobs.Posting{Kind: "k"}}
	results, err := node.Propose(ctx, c.nodes[0], &conductordv1.Command{Kind: &conductordv1.Command_SaveSchedule{SaveSchedule: &conductordv1.SaveScheduleCommand{
		Schedule: command.ScheduleToProto(broken), From: command.TimeToProto(due), Next: command.TimeToProto(due),
	}}})
	if err != nil || results[0].GetError() != nil {
		t.Fatal(err, results)
	}
	if _, err := client.SaveSchedule(ctx, schedules.Schedule{Name: "fine", Rule: "@every 1s", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: "k"}}); err != nil {
		t.Fatal(err)
	}
	for posted := uint64(0); posted == 0; {
		report, err := client.Schedule(ctx, schedules.Ref{Name: "fine"}, schedules.Look{})
		if err != nil || report.Schedule.Error != "" {
			t.Fatal(report.Schedule.Error, err)
		}
		posted = report.Schedule.Posted
	}

	const want = `"Europe/Atlantis" is not in the IANA time zone database`
	page, err := client.Schedules(ctx, schedules.Query{})
	if err != nil || len(page.Items) != 2 || !strings.Contains(page.Items[0].Error, want) || page.Items[1].Error != "" {
		t.Errorf("the list: %+v, %v", page, err)
	}
	for _, look := range []schedules.Look{{}, {Upcoming: 1}} {
		report, err := client.Schedule(ctx, schedules.Ref{Name: "broken"}, look)
		if err != nil || !strings.Contains(report.Schedule.Error, want) || len(report.Upcoming) != 0 {
			t.Errorf("the schedule: %+v, %v", report, err)
		}
	}
	if text := logged.String(); !strings.Contains(text, "schedule=broken") || !strings.Contains(text, "not in the IANA time zone database") {
		t.Errorf("the log: %s", text)
	}
}
