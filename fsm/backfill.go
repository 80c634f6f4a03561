package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// runSchedule posts a job between slots.
func (t *txn) runSchedule(c *v1.RunScheduleCommand) (*v1.Result, error) {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return nil, err
	}
	nonce, err := jobs.ParseNonce(c.GetNonce())
	if err != nil {
		return nil, err
	}
	history := t.slotHistory(s)
	record := &schedules.SlotRecord{Slot: t.now, Job: s.ID.RunJob(nonce), Trigger: schedules.TriggerRun, By: c.GetBy(), Request: nonce}
	known, err := t.answeredBefore(history, record)
	switch {
	case err != nil:
		return nil, err
	case known != nil:
		return slotsResult(*known), nil
	}
	t.postSlot(s, record)
	t.putSchedule(s)
	return slotsResult(*record), nil
}

// backfillSchedule posts jobs for past slots without a job.
func (t *txn) backfillSchedule(c *v1.BackfillScheduleCommand) (*v1.Result, error) {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return nil, err
	}
	slots, err := command.TimesFromProto("backfill slot", c.GetSlots())
	if err != nil {
		return nil, err
	}
	if c.GetRevision() != s.Revision {
		return nil, fmt.Errorf("cannot backfill schedule %s: %w", s.Name, errOtherRevision(c.GetRevision(), s.Revision))
	}
	before := time.Time{}
	for _, slot := range slots {
		if !slot.After(before) || slot.After(s.Decided) {
			return nil, &logbook.InvalidError{Field: "backfill slot", Reason: fmt.Sprintf(
				"%s is out of order, or is after %s, the last decided time of the schedule", schedules.SlotText(slot), schedules.SlotText(s.Decided))}
		}
		before = slot
	}
	nonce, err := jobs.ParseNonce(c.GetNonce())
	if err != nil {
		return nil, err
	}
	history := t.slotHistory(s)
	overlap := schedules.OverlapQueue
	if s.Overlap == schedules.OverlapAllow {
		overlap = schedules.OverlapAllow
	}
	var records []schedules.SlotRecord
	for _, slot := range slots {
		record := &schedules.SlotRecord{Slot: slot, Job: s.ID.SlotJob(slot), Trigger: schedules.TriggerBackfill, By: c.GetBy(), Request: nonce}
		known, err := t.answeredBefore(history, record)
		if err != nil {
			return nil, err
		}
		if known == nil {
			s = t.place(s, record, overlap)
			known = record
		}
		records = append(records, *known)
	}
	t.putSchedule(s)
	return slotsResult(records...), nil
}

func slotsResult(records ...schedules.SlotRecord) *v1.Result {
	return &v1.Result{Kind: &v1.Result_Schedule{Schedule: &v1.ScheduleResult{Slots: command.SlotRecordsToProto(records)}}}
}

// slotHistory has the records of a schedule, indexed for repeats.
type slotHistory struct {
	jobs     map[jobs.JobID]*schedules.SlotRecord
	requests map[slotRequest]*schedules.SlotRecord
}

// slotRequest identifies a requested slot.
type slotRequest struct {
	trigger schedules.Trigger
	nonce   jobs.Nonce
	slot    int64 // Unix nanoseconds; 0 for a run, which stays one slot for all its repeats
}

func requestOf(r *schedules.SlotRecord) slotRequest {
	asked := slotRequest{trigger: r.Trigger, nonce: r.Request}
	if r.Trigger == schedules.TriggerBackfill {
		asked.slot = r.Slot.UnixNano()
	}
	return asked
}

// slotHistory reads the records of a schedule, once for all slots of a command.
func (v *view) slotHistory(s *scheduleRecord) *slotHistory {
	h := &slotHistory{jobs: map[jobs.JobID]*schedules.SlotRecord{}, requests: map[slotRequest]*schedules.SlotRecord{}}
	v.scan(tableSlot, s.ID.UUID[:], func(_, value []byte) bool {
		record := decode(value, &v1.SlotRecord{}, command.SlotRecordFromProto)
		if !record.Job.IsZero() {
			h.jobs[record.Job] = &record
		}
		if !record.Request.IsZero() {
			h.requests[requestOf(&record)] = &record
		}
		return true
	})
	return h
}

// answeredBefore returns the record that answers a request for a slot: the record of the same request, or the
// record of the slot's job. If the job exists without a kept record, answeredBefore makes one. It returns nil if
// the slot has no job and the request is new.
func (v *view) answeredBefore(history *slotHistory, wanted *schedules.SlotRecord) (*schedules.SlotRecord, error) {
	if known := history.requests[requestOf(wanted)]; known != nil && !wanted.Request.IsZero() {
		return known, nil
	}
	if known := history.jobs[wanted.Job]; known != nil {
		return known, nil
	}
	if v.get(tableJobID, wanted.Job.UUID[:]) == nil {
		return nil, nil
	}
	j, err := v.jobByID(wanted.Job)
	if err != nil {
		return nil, err
	}
	made := *wanted
	made.State, made.At = schedules.SlotPosted, j.PostedAt
	return &made, nil
}
