package command

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// SlotRecordsFromProto converts several records.
func SlotRecordsFromProto(messages []*v1.SlotRecord) ([]schedules.SlotRecord, error) {
	var records []schedules.SlotRecord
	for _, message := range messages {
		record, err := SlotRecordFromProto(message)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// SlotRecordsToProto converts several records.
func SlotRecordsToProto(records []schedules.SlotRecord) []*v1.SlotRecord {
	var messages []*v1.SlotRecord
	for i := range records {
		messages = append(messages, SlotRecordToProto(&records[i]))
	}
	return messages
}

func knownSlotState(s schedules.SlotState) bool {
	return s == schedules.SlotPosted || s == schedules.SlotWaiting || s == schedules.SlotSkipped
}

func knownTrigger(t schedules.Trigger) bool {
	return t == schedules.TriggerSchedule || t == schedules.TriggerRun || t == schedules.TriggerBackfill
}

// TimesToProto converts several times.
func TimesToProto(times []time.Time) []*timestamppb.Timestamp {
	var messages []*timestamppb.Timestamp
	for _, t := range times {
		messages = append(messages, TimeToProto(t))
	}
	return messages
}

// TimesFromProto converts several times. It refuses an unset one.
func TimesFromProto(field string, messages []*timestamppb.Timestamp) ([]time.Time, error) {
	var times []time.Time
	for _, message := range messages {
		t, err := TimeFromProto(field, message)
		if err != nil {
			return nil, err
		}
		if t.IsZero() {
			return nil, &logbook.InvalidError{Field: field, Reason: "unset"}
		}
		times = append(times, t)
	}
	return times, nil
}

// scheduleName contains the common fields of commands for one schedule.
type scheduleName interface {
	GetBoard() string
	GetName() string
}

func checkScheduleName(limits logbook.Limits, c scheduleName) error {
	return schedules.CheckRef(limits, schedules.Ref{Board: c.GetBoard(), Name: c.GetName()})
}

func checkScheduleOrder(limits logbook.Limits, c scheduleName, by, reason string) error {
	return schedules.CheckCommand(limits, &schedules.Command{
		Ref: schedules.Ref{Board: c.GetBoard(), Name: c.GetName()}, By: by, Reason: reason,
	})
}

func checkDeleteSchedule(limits logbook.Limits, c *v1.DeleteScheduleCommand) error {
	return checkScheduleName(limits, c)
}

func checkPauseSchedule(limits logbook.Limits, c *v1.PauseScheduleCommand) error {
	return checkScheduleOrder(limits, c, c.GetBy(), c.GetReason())
}

func checkSaveSchedule(limits logbook.Limits, c *v1.SaveScheduleCommand) error {
	schedule, err := ScheduleFromProto(c.GetSchedule())
	if err != nil {
		return err
	}
	if schedule.ID.IsZero() {
		return &logbook.InvalidError{Field: "schedule id", Reason: "unset"}
	}
	if _, err := TimesFromProto("schedule from", []*timestamppb.Timestamp{c.GetFrom()}); err != nil {
		return err
	}
	if _, err := TimeFromProto("schedule next", c.GetNext()); err != nil {
		return err
	}
	if err := checkSkipped(c.GetSkipped()); err != nil {
		return err
	}
	return schedules.Check(limits, &schedule)
}

func checkResumeSchedule(limits logbook.Limits, c *v1.ResumeScheduleCommand) error {
	if _, err := TimeFromProto("schedule next", c.GetNext()); err != nil {
		return err
	}
	if err := checkSkipped(c.GetSkipped()); err != nil {
		return err
	}
	return checkScheduleName(limits, c)
}

// checkSkipped checks slots that a change of the schedule skips, if there are
// any.
func checkSkipped(d *v1.SlotDecision) error {
	if d == nil {
		return nil
	}
	if d.GetSkip() == "" {
		return &logbook.InvalidError{Field: "slot skip", Reason: "unset; these slots are not posted"}
	}
	return checkDecision(d)
}

func checkFireSchedule(_ logbook.Limits, c *v1.FireScheduleCommand) error {
	switch n := len(c.GetDecisions()); {
	case c.GetTimerEpoch() == 0:
		return &logbook.InvalidError{Field: "timer epoch", Reason: "unset"}
	case n > schedules.MaxSlotDecisions+1: // posted slots, after one record for all skipped slots
		return &logbook.LimitError{Field: "slot decisions", Limit: schedules.MaxSlotDecisions + 1, Size: int64(n), Unit: "decisions"}
	}
	for _, decision := range c.GetDecisions() {
		if err := checkDecision(decision); err != nil {
			return err
		}
	}
	if _, err := TimeFromProto("schedule next", c.GetNext()); err != nil {
		return err
	}
	return checkIDs(field{"schedule id", c.GetSchedule()})
}

func checkDecision(d *v1.SlotDecision) error {
	decision, err := SlotDecisionFromProto(d)
	switch {
	case err != nil:
		return err
	case decision.Slot.IsZero() || decision.Through.Before(decision.Slot):
		return &logbook.InvalidError{Field: "slot through", Reason: "before the slot, or both unset"}
	case decision.Count == 0 || (decision.Skip == "" && decision.Count > 1):
		return &logbook.InvalidError{Field: "slot count", Reason: fmt.Sprintf("is %d; only skipped slots can share a record", decision.Count)}
	case len(decision.Skip) > jobs.MaxReason:
		return &logbook.LimitError{Field: "slot skip", Limit: jobs.MaxReason, Size: int64(len(decision.Skip)), Unit: "bytes"}
	}
	return nil
}

func checkRunSchedule(limits logbook.Limits, c *v1.RunScheduleCommand) error {
	if err := checkIDs(field{"schedule nonce", c.GetNonce()}); err != nil {
		return err
	}
	return checkScheduleOrder(limits, c, c.GetBy(), "")
}

func checkBackfillSchedule(limits logbook.Limits, c *v1.BackfillScheduleCommand) error {
	switch n := len(c.GetSlots()); {
	case n == 0:
		return &logbook.InvalidError{Field: "backfill slots", Reason: "none"}
	case n > schedules.MaxBackfill:
		return &logbook.LimitError{Field: "backfill slots", Limit: schedules.MaxBackfill, Size: int64(n), Unit: "slots"}
	}
	if _, err := TimesFromProto("backfill slot", c.GetSlots()); err != nil {
		return err
	}
	if err := checkIDs(field{"schedule nonce", c.GetNonce()}); err != nil {
		return err
	}
	return checkScheduleOrder(limits, c, c.GetBy(), "")
}
