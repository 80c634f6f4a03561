package test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard"
)

// scheduleTimeEnv makes TestScheduleSurvivesLeaders longer, such as 3m.
const scheduleTimeEnv = "CONDUCTORD_SCHEDULE_TIME"

// TestScheduleSurvivesLeaders kills the leader every 5 s over a schedule of one
// second, and then accounts for every slot: each has one job, or a record that
// it was skipped.
func TestScheduleSurvivesLeaders(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	const pace = 5 * time.Second
	lasts := timeOf(t, scheduleTimeEnv, 3*pace)
	cluster, client := startCluster(t, nil)
	name := schedules.Ref{Name: "every second"}
	saved, err := client.SaveSchedule(within(t), schedules.Schedule{
		Name: name.Name, Rule: "@every 1s", Overlap: schedules.OverlapAllow, Posting: jobs.Posting{Kind: "tick"},
	})
	if err != nil {
		t.Fatal(err)
	}
	killed := killLeaders(t, cluster, client, lasts, pace)
	least := int(lasts/time.Second) / 2
	eventually(t, "enough slots are posted, even if after the last leader", func() bool {
		now, err := client.Schedule(within(t), name, schedules.Look{})
		return err == nil && now.Schedule.Posted >= uint64(least)
	})

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := client.PauseSchedule(ctx, schedules.Command{Ref: name, By: "the test"}); err != nil {
		t.Fatal(err)
	}
	report, err := client.Schedule(ctx, name, schedules.Look{History: schedules.MaxSlotRecords})
	if err != nil {
		t.Fatal(err)
	}
	posted := accountForSlots(t, &saved, &report)
	ticks := countTicks(t, ctx, client, &report)
	t.Logf("%d leaders killed, %d slots posted, %d skipped, %d jobs", killed, posted, report.Schedule.Skipped, ticks)
	if ticks != posted || uint64(posted) != report.Schedule.Posted {
		t.Errorf("%d slots are posted, %d jobs exist, and %d were counted", posted, ticks, report.Schedule.Posted)
	}
	if posted < least {
		t.Errorf("only %d slots were posted in %s", posted, lasts)
	}
}

// killLeaders kills the leader at intervals, and restarts it when the next one is killed.
func killLeaders(t *testing.T, cluster *local.Cluster, client *raftboard.Client, lasts, pace time.Duration) int {
	t.Helper()
	over := time.NewTimer(lasts)
	defer over.Stop()
	beat := time.NewTicker(pace)
	defer beat.Stop()
	var down *local.Node
	for killed := 0; ; killed++ {
		select {
		case <-beat.C:
		case <-over.C:
			return killed
		}
		if down != nil {
			if err := down.Start(); err != nil {
				t.Fatal(err)
			}
			if err := cluster.WaitReady(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		down = leaderOf(t, cluster, client)
		down.Kill()
	}
}

// accountForSlots checks each second from the first slot, and finds its record. It returns the
// number of posted slots.
func accountForSlots(t *testing.T, saved *schedules.Schedule, report *schedules.Report) (posted int) {
	t.Helper()
	next := saved.Decided.Truncate(time.Second).Add(time.Second)
	for i := len(report.History) - 1; i >= 0; i-- {
		record := report.History[i]
		if !record.Slot.Equal(next) {
			t.Fatalf("slot %s has no record; the next record is %+v", next, record)
		}
		next = record.Slot.Add(time.Duration(record.Slots()) * time.Second)
		switch record.State {
		case schedules.SlotPosted:
			posted++
		default:
			t.Logf("%s %s (%d): %s", record.Slot, record.State, record.Slots(), record.Reason)
		}
	}
	if last := next.Add(-time.Second); !last.Equal(report.Schedule.Decided) {
		t.Errorf("the last record is of %s, and all slots up to %s are decided", last, report.Schedule.Decided)
	}
	return posted
}

// countTicks counts the jobs of the schedule. Each must belong to a posted slot.
func countTicks(t *testing.T, ctx context.Context, client *raftboard.Client, report *schedules.Report) (ticks int) {
	t.Helper()
	posted := map[jobs.JobID]bool{}
	for _, record := range report.History {
		posted[record.Job] = record.State == schedules.SlotPosted
	}
	for query := (jobs.Query{Kind: "tick"}); ; {
		page, err := client.Jobs(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range page.Items {
			if ticks++; !posted[job.ID] {
				t.Errorf("job %s does not belong to a posted slot", job.ID)
			}
		}
		if query.After = page.Next; page.Next == "" {
			return ticks
		}
	}
}

// TestScheduleCommands runs the verbs of `conductord schedule`.
func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	address := startDev(t)
	document := "name = \"greet\"\n[[steps]]\nname = \"say\"\n"
	for _, row := range []struct {
		stdin string
		line  string
		code  int
		says  string // a regular expression for stdout and stderr
	}{
		{"", "set newyear --rule|0 0 1 1 *|--zone|Europe/Berlin|--kind|tidy|--missed|window=6h", 0, `newyear next \d{4}-12-31T23:00:00Z`},
		{"", "set newyear --rule|0 0 1 1 *|--zone|Europe/Berlin|--kind|tidy|--missed|window=6h", 0, `newyear next`},
		{document, "set greet --rule|@every 1h|--flow|-|--overlap|queue", 0, `greet next`},
		{"", "set bad --kind|k", 2, `the rule is required: --rule`},
		{"", "set bad --kind|k|--rule|0 0 31 2 *", 2, `never matches a time`},
		{"", "set bad --kind|k|--rule|@daily|--missed|some", 2, `--missed must be none, last=N or window=DURATION`},
		{"", "list", 0, `(?s)default +greet +@every 1h +UTC.*default +newyear +0 0 1 1 \* +Europe/Berlin`},
		{"", "next newyear -n|2", 0, `^\d{4}-01-01T00:00:00\+01:00\n\d{4}-01-01T00:00:00\+01:00\n$`},
		{"", "pause newyear --reason|no time", 0, `newyear is paused`},
		{"", "show newyear", 0, `paused: .*no time`},
		{"", "resume newyear", 0, `newyear next`},
		{"", "run newyear", 0, `posted .* run by `},
		{"", "backfill newyear --since|2019-06-01T00:00:00Z|--until|2020-06-01T00:00:00Z", 0, `2019-12-31T23:00:00Z +(posted|waiting|skipped)`},
		{"", "backfill newyear --since|2019-06-01T00:00:00Z|--until|2019-07-01T00:00:00Z", 2, `no past slot between`},
		{"", "show newyear -o|json", 0, `"trigger": "backfill"`},
		{"", "delete newyear", 0, `^$`},
		{"", "show newyear", 3, `not found`},
	} {
		verb, flags, _ := strings.Cut(row.line, " ")
		args := []string{"schedule", verb, "--server", address}
		if flags != "" {
			args = append(args, strings.Split(strings.Replace(flags, " ", "|", 1), "|")...)
		}
		got := command(t, row.stdin, args...)
		if got.code != row.code || !regexp.MustCompile(row.says).MatchString(got.out+got.err) {
			t.Errorf("schedule %s: %+v, want %d and %s", row.line, got, row.code, row.says)
		}
	}
}
