package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

func writeReport(p *cli.Program, report schedules.Report) error {
	s := &report.Schedule
	if p.JSON() {
		return p.WriteJSON(&v1.GetScheduleResponse{
			Schedule: command.ScheduleToProto(s), Upcoming: command.TimesToProto(report.Upcoming), History: command.SlotRecordsToProto(report.History),
		})
	}
	err := p.WriteFields([]cli.Field{
		{"name", s.Name}, {"board", s.Board}, {"id", s.ID.String()}, {"rule", s.Rule}, {"zone", cmp.Or(s.Zone, "UTC")},
		{"overlap", string(cmp.Or(s.Overlap, schedules.OverlapSkip))}, {"missed", missedText(s.Missed)},
		{"start", p.TimeText(s.Start)}, {"end", p.TimeText(s.End)}, {"posts", postsText(&s.Posting)},
		{"store", cli.ValuesText(s.Posting.Store)}, {"details", string(s.Posting.Details)},
		{"key", s.Posting.Key}, {"tags", strings.Join(s.Posting.Tags, ", ")},
		{"labels", strings.Join(s.Posting.Labels, ", ")}, {"max crashes", cli.CountText(s.Posting.MaxCrashes)},
		{"deadline", deadlineText(s.Posting.DeadlineAfter)}, {"retry", jobcmd.RetryText(s.Posting.Retry)},
		{"error", s.Error}, {"next", p.TimeText(s.Next)}, {"paused", pauseText(p, s.Pause)},
		{"active", strconv.Itoa(s.Active)}, {"waiting", strconv.Itoa(s.Waiting)},
		{"posted", strconv.FormatUint(s.Posted, 10)}, {"skipped", strconv.FormatUint(s.Skipped, 10)},
		{"created", p.TimeText(s.CreatedAt)}, {"updated", p.TimeText(s.UpdatedAt)}, {"saved by", s.SavedBy},
	})
	if err != nil || len(report.History) == 0 {
		return err
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	slices.SortStableFunc(report.History, func(a, b schedules.SlotRecord) int { return b.Slot.Compare(a.Slot) })
	return writeRecords(p, report.History)
}

// deadlineText shows the deadline of each job; empty: none.
func deadlineText(after time.Duration) string {
	if after == 0 {
		return ""
	}
	return cli.SpanText(after) + " after the slot"
}

func missedText(m schedules.Missed) string {
	switch m.Policy {
	case schedules.MissedNone:
		return "none"
	case schedules.MissedWindow:
		return "window=" + m.Window.String()
	}
	return fmt.Sprintf("last=%d", max(m.Last, 1))
}

// postsText describes the job that a slot posts.
func postsText(posting *jobs.Posting) string {
	said := "kind " + cli.OrDash(posting.Kind)
	if posting.Book != nil && len(posting.Book.Flows) == 1 {
		flow := &posting.Book.Flows[0]
		said = fmt.Sprintf("flow %s (%s)", flow.Name, flow.Factory.Name)
	}
	said += fmt.Sprintf(", priority %s", posting.Priority)
	if posting.Front {
		said += ", in front"
	}
	if posting.Hold {
		said += ", held"
	}
	return said
}

func pauseText(p *cli.Program, pause *schedules.Pause) string {
	if pause == nil {
		return ""
	}
	said := "at " + p.TimeText(pause.At)
	if pause.By != "" {
		said += " by " + cli.Clean(pause.By)
	}
	if pause.Reason != "" {
		said += ": " + cli.Clean(pause.Reason)
	}
	return said
}

// writeRecords shows the records of slots.
func writeRecords(p *cli.Program, records []schedules.SlotRecord) error {
	rows := make([][]string, 0, len(records))
	for i := range records {
		r := &records[i]
		slot := p.TimeText(r.Slot)
		if r.Slots() > 1 {
			slot += fmt.Sprintf(" to %s (%d)", p.TimeText(r.Through), r.Count)
		}
		job := "-"
		if !r.Job.IsZero() {
			job = r.Job.String()
		}
		trigger := string(r.Trigger)
		if r.By != "" {
			trigger += " by " + r.By
		}
		rows = append(rows, []string{slot, string(r.State), job, trigger, cli.OrDash(r.Reason)})
	}
	return p.WriteTable([]string{"slot", "state", "job", "by", "reason"}, rows)
}
