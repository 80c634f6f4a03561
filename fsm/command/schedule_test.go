package command_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

var drawnSchedules = rapid.Custom(func(t *rapid.T) schedules.Schedule {
	return schedules.Schedule{
		Board: rapid.String().Draw(t, "board"), Name: rapid.String().Draw(t, "name"),
		Rule: rapid.String().Draw(t, "rule"), Zone: rapid.String().Draw(t, "zone"),
		Posting: postings.Draw(t, "posting"),
		Overlap: orUnset(schedules.OverlapSkip, schedules.OverlapAllow).Draw(t, "overlap"),
		Missed: schedules.Missed{
			Policy: orUnset(schedules.MissedNone, schedules.MissedWindow).Draw(t, "missed"),
			Last:   counts.Draw(t, "last"), Window: durations.Draw(t, "window"),
		},
		Start: times.Draw(t, "start"), End: times.Draw(t, "end"),
		ID: schedules.ID{UUID: ids.Draw(t, "id")}, Revision: rapid.Uint64().Draw(t, "revision"),
		CreatedAt: times.Draw(t, "created"), UpdatedAt: times.Draw(t, "updated"),
		Decided: times.Draw(t, "decided"), Next: times.Draw(t, "next"),
		Pause:  optional(pauses).Draw(t, "pause"),
		Active: counts.Draw(t, "active"), Waiting: counts.Draw(t, "waiting"),
		Posted: rapid.Uint64().Draw(t, "posted"), Skipped: rapid.Uint64().Draw(t, "skipped"),
		Records: counts.Draw(t, "records"), SavedBy: rapid.String().Draw(t, "saved by"), Error: rapid.String().Draw(t, "error"),
	}
})

var pauses = rapid.Custom(func(t *rapid.T) schedules.Pause {
	return schedules.Pause{By: rapid.String().Draw(t, "by"), Reason: rapid.String().Draw(t, "reason"), At: times.Draw(t, "at")}
})

var slotRecords = rapid.Custom(func(t *rapid.T) schedules.SlotRecord {
	return schedules.SlotRecord{
		Number: rapid.Uint64().Draw(t, "number"), Slot: times.Draw(t, "slot"), Through: times.Draw(t, "through"),
		Count: rapid.Uint64().Draw(t, "count"),
		State: orUnset(schedules.SlotPosted, schedules.SlotWaiting, schedules.SlotSkipped).Draw(t, "state"),
		Job:   jobs.JobID{UUID: ids.Draw(t, "job")}, Reason: rapid.String().Draw(t, "reason"), At: times.Draw(t, "at"),
		Trigger: orUnset(schedules.TriggerSchedule, schedules.TriggerRun, schedules.TriggerBackfill).Draw(t, "trigger"),
		By:      rapid.String().Draw(t, "by"), Request: jobs.Nonce{UUID: ids.Draw(t, "request")},
	}
})

var slotDecisions = rapid.Custom(func(t *rapid.T) schedules.SlotDecision {
	return schedules.SlotDecision{
		Slot: times.Draw(t, "slot"), Through: times.Draw(t, "through"),
		Count: rapid.Uint64().Draw(t, "count"), Skip: rapid.String().Draw(t, "skip"),
	}
})

// commandOf returns the sample of a command, for invalidation.
func commandOf(t *testing.T, name string) *v1.Command {
	t.Helper()
	for _, c := range samples() {
		if command.Name(c) == name {
			return proto.Clone(c).(*v1.Command)
		}
	}
	t.Fatalf("no sample of %s", name)
	return nil
}

// TestScheduleCommandsAreChecked invalidates each sample in one place.
func TestScheduleCommandsAreChecked(t *testing.T) {
	early := timestamppb.New(entryTime.Add(-48 * time.Hour))
	for _, row := range []struct {
		name  string
		spoil func(*v1.Command)
		want  error
	}{
		{"save_schedule", func(c *v1.Command) { c.GetSaveSchedule().Schedule.Id = "" }, logbook.ErrInvalid},
		{"save_schedule", func(c *v1.Command) { c.GetSaveSchedule().From = nil }, logbook.ErrInvalid},
		{"save_schedule", func(c *v1.Command) { c.GetSaveSchedule().Schedule.Rule = "soon" }, logbook.ErrInvalid},
		{"save_schedule", func(c *v1.Command) { c.GetSaveSchedule().Skipped.Skip = "" }, logbook.ErrInvalid},
		{"resume_schedule", func(c *v1.Command) { c.GetResumeSchedule().Skipped.Through = early }, logbook.ErrInvalid},
		{"resume_schedule", func(c *v1.Command) { c.GetResumeSchedule().Name = "" }, logbook.ErrInvalid},
		{"fire_schedule", func(c *v1.Command) { c.GetFireSchedule().TimerEpoch = 0 }, logbook.ErrInvalid},
		{"fire_schedule", func(c *v1.Command) { c.GetFireSchedule().Schedule = "x" }, logbook.ErrInvalid},
		{"fire_schedule", func(c *v1.Command) { c.GetFireSchedule().Decisions[1].Count = 2 }, logbook.ErrInvalid},
		{"fire_schedule", func(c *v1.Command) {
			f := c.GetFireSchedule()
			for range schedules.MaxSlotDecisions {
				f.Decisions = append(f.Decisions, f.Decisions[1])
			}
		}, logbook.ErrLimit},
		{"run_schedule", func(c *v1.Command) { c.GetRunSchedule().Nonce = "" }, logbook.ErrInvalid},
		{"backfill_schedule", func(c *v1.Command) { c.GetBackfillSchedule().Slots = nil }, logbook.ErrInvalid},
		{"backfill_schedule", func(c *v1.Command) {
			b := c.GetBackfillSchedule()
			for range schedules.MaxBackfill {
				b.Slots = append(b.Slots, early)
			}
		}, logbook.ErrLimit},
		{"backfill_schedule", func(c *v1.Command) { c.GetBackfillSchedule().Nonce = "x" }, logbook.ErrInvalid},
		{"delete_schedule", func(c *v1.Command) { c.GetDeleteSchedule().Name = "" }, logbook.ErrInvalid},
		{"pause_schedule", func(c *v1.Command) { c.GetPauseSchedule().Reason = string(make([]byte, jobs.MaxReason+1)) }, logbook.ErrLimit},
	} {
		c := commandOf(t, row.name)
		if err := command.Check(logbook.MaxLimits, c); err != nil {
			t.Errorf("the sample of %s is refused: %v", row.name, err)
		}
		row.spoil(c)
		if err := command.Check(logbook.MaxLimits, c); !errors.Is(err, row.want) {
			t.Errorf("a spoilt %s is answered with %v, want %v:\n%v", row.name, err, row.want, c)
		}
	}
}
