package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

func (p *Program) writeReport(report schedules.Report) error {
	s := &report.Schedule
	if p.JSON() {
		return p.WriteJSON(&v1.GetScheduleResponse{
			Schedule: command.ScheduleToProto(s), Upcoming: command.TimesToProto(report.Upcoming), History: command.SlotRecordsToProto(report.History),
		})
	}
	err := p.writeFields([]field{
		{"name", s.Name}, {"board", s.Board}, {"id", s.ID.String()}, {"rule", s.Rule}, {"zone", cmp.Or(s.Zone, "UTC")},
		{"overlap", string(cmp.Or(s.Overlap, schedules.OverlapSkip))}, {"missed", missedText(s.Missed)},
		{"start", p.timeText(s.Start)}, {"end", p.timeText(s.End)}, {"posts", postsText(&s.Posting)},
		{"store", valuesText(s.Posting.Store)}, {"details", string(s.Posting.Details)},
		{"key", s.Posting.Key}, {"tags", strings.Join(s.Posting.Tags, ", ")},
		{"labels", strings.Join(s.Posting.Labels, ", ")}, {"max crashes", countText(s.Posting.MaxCrashes)},
		{"retry", retryText(s.Posting.Retry)},
		{"error", s.Error}, {"next", p.timeText(s.Next)}, {"paused", p.pauseText(s.Pause)},
		{"active", strconv.Itoa(s.Active)}, {"waiting", strconv.Itoa(s.Waiting)},
		{"posted", strconv.FormatUint(s.Posted, 10)}, {"skipped", strconv.FormatUint(s.Skipped, 10)},
		{"created", p.timeText(s.CreatedAt)}, {"updated", p.timeText(s.UpdatedAt)}, {"saved by", s.SavedBy},
	})
	if err != nil || len(report.History) == 0 {
		return err
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	slices.SortStableFunc(report.History, func(a, b schedules.SlotRecord) int { return b.Slot.Compare(a.Slot) })
	return p.writeRecords(report.History)
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

// postsText says what a slot becomes.
func postsText(posting *jobs.Posting) string {
	said := "kind " + OrDash(posting.Kind)
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

func (p *Program) pauseText(pause *schedules.Pause) string {
	if pause == nil {
		return ""
	}
	said := "at " + p.timeText(pause.At)
	if pause.By != "" {
		said += " by " + Clean(pause.By)
	}
	if pause.Reason != "" {
		said += ": " + Clean(pause.Reason)
	}
	return said
}

// writeRecords shows what became of slots.
func (p *Program) writeRecords(records []schedules.SlotRecord) error {
	rows := make([][]string, 0, len(records))
	for i := range records {
		r := &records[i]
		slot := p.timeText(r.Slot)
		if r.Slots() > 1 {
			slot += fmt.Sprintf(" to %s (%d)", p.timeText(r.Through), r.Count)
		}
		job := "-"
		if !r.Job.IsZero() {
			job = r.Job.String()
		}
		trigger := string(r.Trigger)
		if r.By != "" {
			trigger += " by " + r.By
		}
		rows = append(rows, []string{slot, string(r.State), job, trigger, OrDash(r.Reason)})
	}
	return p.WriteTable([]string{"slot", "state", "job", "by", "reason"}, rows)
}
