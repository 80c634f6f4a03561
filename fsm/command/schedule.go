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

// ScheduleToProto converts a schedule; nil stays nil.
func ScheduleToProto(s *schedules.Schedule) *v1.Schedule {
	if s == nil {
		return nil
	}
	message := &v1.Schedule{
		Board: s.Board, Name: s.Name, Rule: s.Rule, Zone: s.Zone,
		Posting: PostingToProto(&s.Posting), Overlap: string(s.Overlap),
		Missed: string(s.Missed.Policy), MissedLast: countOf(s.Missed.Last), MissedWindow: DurationToProto(s.Missed.Window),
		Start: TimeToProto(s.Start), End: TimeToProto(s.End),
		Id: idText(s.ID.UUID), Revision: s.Revision,
		CreatedAt: TimeToProto(s.CreatedAt), UpdatedAt: TimeToProto(s.UpdatedAt),
		Decided: TimeToProto(s.Decided), Next: TimeToProto(s.Next),
		Active: countOf(s.Active), Waiting: countOf(s.Waiting), Posted: s.Posted, Skipped: s.Skipped,
		Records: countOf(s.Records), SavedBy: s.SavedBy, Error: s.Error,
	}
	if s.Pause != nil {
		message.Pause = &v1.SchedulePause{By: s.Pause.By, Reason: text(s.Pause.Reason), At: TimeToProto(s.Pause.At)}
	}
	return message
}

// ScheduleFromProto converts a schedule. Nil is the zero schedule.
func ScheduleFromProto(message *v1.Schedule) (schedules.Schedule, error) {
	var r reader
	posting, err := PostingFromProto(message.GetPosting())
	window, windowErr := DurationFromProto("schedule missed_window", message.GetMissedWindow())
	s := schedules.Schedule{
		Board: message.GetBoard(), Name: message.GetName(), Rule: message.GetRule(), Zone: message.GetZone(),
		Posting: keep(&r, posting, err), Overlap: schedules.Overlap(message.GetOverlap()),
		Missed: schedules.Missed{
			Policy: schedules.MissedPolicy(message.GetMissed()), Last: r.count("schedule missed_last", message.GetMissedLast()),
			Window: keep(&r, window, windowErr),
		},
		Start: r.time("schedule start", message.GetStart()), End: r.time("schedule end", message.GetEnd()),
		ID: schedules.ID{UUID: r.id("schedule id", message.GetId())}, Revision: message.GetRevision(),
		CreatedAt: r.time("schedule created_at", message.GetCreatedAt()),
		UpdatedAt: r.time("schedule updated_at", message.GetUpdatedAt()),
		Decided:   r.time("schedule decided", message.GetDecided()), Next: r.time("schedule next", message.GetNext()),
		Active: r.count("schedule active", message.GetActive()), Waiting: r.count("schedule waiting", message.GetWaiting()),
		Posted: message.GetPosted(), Skipped: message.GetSkipped(),
		Records: r.count("schedule records", message.GetRecords()), SavedBy: message.GetSavedBy(), Error: message.GetError(),
	}
	if pause := message.GetPause(); pause != nil {
		s.Pause = &schedules.Pause{By: pause.GetBy(), Reason: pause.GetReason(), At: r.time("schedule pause", pause.GetAt())}
	}
	if r.err != nil {
		return schedules.Schedule{}, r.err
	}
	return s, nil
}

// SlotRecordToProto converts what became of a slot; nil stays nil.
func SlotRecordToProto(s *schedules.SlotRecord) *v1.SlotRecord {
	if s == nil {
		return nil
	}
	return &v1.SlotRecord{
		Number: s.Number, Slot: TimeToProto(s.Slot), Through: TimeToProto(s.Through), Count: s.Count,
		State: string(s.State), Job: idText(s.Job.UUID), Reason: text(s.Reason), At: TimeToProto(s.At),
		Trigger: string(s.Trigger), By: s.By, Request: idText(s.Request.UUID),
	}
}

// SlotRecordFromProto converts what became of a slot. Nil is the zero record.
func SlotRecordFromProto(message *v1.SlotRecord) (schedules.SlotRecord, error) {
	var r reader
	s := schedules.SlotRecord{
		Number: message.GetNumber(), Slot: r.time("slot", message.GetSlot()),
		Through: r.time("slot through", message.GetThrough()), Count: message.GetCount(),
		State: word(&r, "slot state", message.GetState(), knownSlotState),
		Job:   jobs.JobID{UUID: r.id("slot job", message.GetJob())}, Reason: message.GetReason(),
		At:      r.time("slot at", message.GetAt()),
		Trigger: word(&r, "slot trigger", message.GetTrigger(), knownTrigger), By: message.GetBy(),
		Request: jobs.Nonce{UUID: r.id("slot request", message.GetRequest())},
	}
	if r.err != nil {
		return schedules.SlotRecord{}, r.err
	}
	return s, nil
}

// SlotRecordsFromProto converts several.
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

// SlotRecordsToProto converts several.
func SlotRecordsToProto(records []schedules.SlotRecord) []*v1.SlotRecord {
	var messages []*v1.SlotRecord
	for i := range records {
		messages = append(messages, SlotRecordToProto(&records[i]))
	}
	return messages
}

// SlotDecisionToProto converts what is to become of a slot; nil stays nil.
func SlotDecisionToProto(d *schedules.SlotDecision) *v1.SlotDecision {
	if d == nil {
		return nil
	}
	return &v1.SlotDecision{Slot: TimeToProto(d.Slot), Through: TimeToProto(d.Through), Count: d.Count, Skip: text(d.Skip)}
}

// SlotDecisionFromProto converts what is to become of a slot. Nil is the zero
// decision.
func SlotDecisionFromProto(message *v1.SlotDecision) (schedules.SlotDecision, error) {
	var r reader
	d := schedules.SlotDecision{
		Slot: r.time("slot", message.GetSlot()), Through: r.time("slot through", message.GetThrough()),
		Count: message.GetCount(), Skip: message.GetSkip(),
	}
	if r.err != nil {
		return schedules.SlotDecision{}, r.err
	}
	return d, nil
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

// scheduleName is what the commands for one schedule have in common.
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
	case n > schedules.MaxSlotDecisions+1: // those posted, behind one that sums up those skipped
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
		return &logbook.InvalidError{Field: "slot count", Reason: fmt.Sprintf("%d; only slots that are skipped are summed up", decision.Count)}
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
