package fsm

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// runSchedule posts a job out of turn.
func (t *txn) runSchedule(c *v1.RunScheduleCommand) (*v1.Result, error) {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return nil, err
	}
	nonce, err := jobs.ParseNonce(c.GetNonce())
	if err != nil {
		return nil, err
	}
	history, err := t.slotHistory(s)
	if err != nil {
		return nil, err
	}
	record := &jobs.SlotRecord{Slot: t.now, Job: s.ID.RunJob(nonce), Trigger: jobs.TriggerRun, By: c.GetBy(), Request: nonce}
	known, err := t.answeredBefore(history, record)
	switch {
	case err != nil:
		return nil, err
	case known != nil:
		return slotsResult(*known), nil
	}
	if err := t.postSlot(s, record); err != nil {
		return nil, err
	}
	t.putSchedule(s)
	return slotsResult(*record), nil
}

// backfillSchedule posts slots of the past that have no job.
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
				"%s is out of order, or after %s, up to which the schedule has come", jobs.SlotText(slot), jobs.SlotText(s.Decided))}
		}
		before = slot
	}
	nonce, err := jobs.ParseNonce(c.GetNonce())
	if err != nil {
		return nil, err
	}
	history, err := t.slotHistory(s)
	if err != nil {
		return nil, err
	}
	overlap := jobs.OverlapQueue
	if s.Overlap == jobs.OverlapAllow {
		overlap = jobs.OverlapAllow
	}
	var records []jobs.SlotRecord
	for _, slot := range slots {
		record := &jobs.SlotRecord{Slot: slot, Job: s.ID.SlotJob(slot), Trigger: jobs.TriggerBackfill, By: c.GetBy(), Request: nonce}
		known, err := t.answeredBefore(history, record)
		if err != nil {
			return nil, err
		}
		if known == nil {
			if s, err = t.place(s, record, overlap); err != nil {
				return nil, err
			}
			known = record
		}
		records = append(records, *known)
	}
	t.putSchedule(s)
	return slotsResult(records...), nil
}

func slotsResult(records ...jobs.SlotRecord) *v1.Result {
	return &v1.Result{Kind: &v1.Result_Schedule{Schedule: &v1.ScheduleResult{Slots: command.SlotRecordsToProto(records)}}}
}

// slotHistory is the records of a schedule, as repeats look for them.
type slotHistory struct {
	jobs     map[jobs.JobID]*jobs.SlotRecord
	requests map[slotRequest]*jobs.SlotRecord
}

// slotRequest is a slot that somebody has asked for.
type slotRequest struct {
	trigger jobs.Trigger
	nonce   jobs.Nonce
	slot    int64 // Unix nanoseconds; 0 of a run, which is one slot, whenever it is repeated
}

func requestOf(r *jobs.SlotRecord) slotRequest {
	asked := slotRequest{trigger: r.Trigger, nonce: r.Request}
	if r.Trigger == jobs.TriggerBackfill {
		asked.slot = r.Slot.UnixNano()
	}
	return asked
}

// slotHistory reads the records of a schedule, once for all slots of a command.
func (v *view) slotHistory(s *scheduleRecord) (*slotHistory, error) {
	h := &slotHistory{jobs: map[jobs.JobID]*jobs.SlotRecord{}, requests: map[slotRequest]*jobs.SlotRecord{}}
	err := v.scan(tableSlot, s.ID.UUID[:], func(_, value []byte) (bool, error) {
		record, err := decode(value, &v1.SlotRecord{}, command.SlotRecordFromProto)
		if err != nil {
			return false, err
		}
		if !record.Job.IsZero() {
			h.jobs[record.Job] = &record
		}
		if !record.Request.IsZero() {
			h.requests[requestOf(&record)] = &record
		}
		return true, nil
	})
	return h, err
}

// answeredBefore finds the record of a slot that somebody asks for: of the same
// request, whatever came of it, or of the job that is wanted, of which one is
// made if the job exists and its record is no longer kept. Nil: the slot has no
// job, and this is a new request for it.
func (v *view) answeredBefore(history *slotHistory, wanted *jobs.SlotRecord) (*jobs.SlotRecord, error) {
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
	made.State, made.At = jobs.SlotPosted, j.PostedAt
	return &made, nil
}

// addRecord writes a new record. What is too many then is dropped when the
// schedule is written.
func (t *txn) addRecord(s *scheduleRecord, record *jobs.SlotRecord) error {
	last, err := t.lastRecord(s.ID)
	if err != nil {
		return err
	}
	record.Number = 1
	if last != nil {
		record.Number = last.Number + 1
	}
	if record.At.IsZero() {
		record.At = t.now
	}
	t.putRecord(s, record)
	s.Records++
	return nil
}

// trimRecords drops the oldest records over the bound, but none that waits.
func (t *txn) trimRecords(s *scheduleRecord) {
	over := s.Records - jobs.MaxSlotRecords - s.Waiting
	if over <= 0 {
		return
	}
	var drop [][]byte
	err := t.scan(tableSlot, s.ID.UUID[:], func(key, _ []byte) (bool, error) {
		if t.get(tableSlotWaiting, key) == nil {
			drop = append(drop, bytes.Clone(key))
		}
		return len(drop) < over, nil
	})
	if err != nil {
		t.keepFault(err)
	}
	for _, key := range drop {
		t.delete(tableSlot, key)
	}
	s.Records -= len(drop)
}

func (t *txn) putRecord(s *scheduleRecord, record *jobs.SlotRecord) {
	t.putMessage(tableSlot, scheduleKey(s.ID, record.Number), nil, command.SlotRecordToProto(record))
}

// lastRecord is the latest record of a schedule; nil if there is none.
func (v *view) lastRecord(id jobs.ScheduleID) (*jobs.SlotRecord, error) {
	records, err := v.latestRecords(id, 1)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return &records[0], nil
}

// latestRecords reads records, the latest first; fewer where they are long.
func (v *view) latestRecords(id jobs.ScheduleID, most int) ([]jobs.SlotRecord, error) {
	cursor := v.cursor(tableSlot)
	before := cursor.Prev
	if key, _ := cursor.Seek(scheduleKey(id, math.MaxUint64)); key == nil { // no record has that number
		before = cursor.Last
	}
	var records []jobs.SlotRecord
	size := 0
	key, value := before()
	for ; bytes.HasPrefix(key, id.UUID[:]) && len(records) < most && size < maxPageBytes; key, value = cursor.Prev() {
		size += len(value)
		record, err := decode(value, &v1.SlotRecord{}, command.SlotRecordFromProto)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// schedule reads a schedule without its posting; nil if there is none.
func (v *view) schedule(id jobs.ScheduleID) (*scheduleRecord, error) {
	value := v.get(tableSchedule, id.UUID[:])
	if value == nil {
		return nil, nil
	}
	s, err := decode(value, &v1.Schedule{}, command.ScheduleFromProto)
	if err != nil {
		return nil, err
	}
	record := &scheduleRecord{Schedule: s, due: s.Next}
	if s.Pause != nil {
		record.due = time.Time{}
	}
	return record, nil
}

// scheduleByName reads a schedule without its posting; nil if there is none.
func (v *view) scheduleByName(name jobs.ScheduleName) (*scheduleRecord, error) {
	if name.Board == "" {
		name.Board = jobs.DefaultBoard
	}
	if len(name.Board) > maxKeyName {
		return nil, nil
	}
	value := v.get(tableScheduleName, scheduleNameKey(name.Board, name.Name))
	if value == nil {
		return nil, nil
	}
	id, err := uuid.FromBytes(value)
	if err != nil {
		return nil, corrupt("schedule %s of board %s has no id: %w", name.Name, name.Board, err)
	}
	s, err := v.schedule(jobs.ScheduleID{UUID: id})
	if err == nil && s == nil {
		return nil, corrupt("schedule %s of board %s is not stored", name.Name, name.Board)
	}
	return s, err
}

// existingSchedule reads a schedule that somebody asks for. ErrNotFound.
func (v *view) existingSchedule(board, name string) (*scheduleRecord, error) {
	s, err := v.scheduleByName(jobs.ScheduleName{Board: board, Name: name})
	if err == nil && s == nil {
		return nil, fmt.Errorf("schedule %q: %w", name, jobs.ErrNotFound)
	}
	return s, err
}

// template reads the posting of a schedule.
func (v *view) template(id jobs.ScheduleID) (jobs.Posting, error) {
	value := v.get(tableTemplate, id.UUID[:])
	if value == nil {
		return jobs.Posting{}, corrupt("schedule %s has no posting", id)
	}
	return decode(value, &v1.Posting{}, command.PostingFromProto)
}

func (v *view) nextSlot() (time.Time, error) {
	key, _ := v.cursor(tableScheduleDue).First()
	if key == nil {
		return time.Time{}, nil
	}
	return timeOfKey(key)
}

// Schedule reads a schedule with its posting, and its latest records, the
// latest first. ErrNotFound.
func (m *Machine) Schedule(name jobs.ScheduleName, records int) (jobs.Schedule, []jobs.SlotRecord, error) {
	var s jobs.Schedule
	var latest []jobs.SlotRecord
	err := m.read(func(v *view) error {
		found, err := v.existingSchedule(name.Board, name.Name)
		if err != nil {
			return err
		}
		s = found.Schedule
		if s.Posting, err = v.template(s.ID); err != nil {
			return err
		}
		latest, err = v.latestRecords(s.ID, records)
		return err
	})
	return s, latest, err
}

// Schedules reads a page of schedules without their postings, board by board,
// and those of a board by name; fewer where they are long, and none only if none
// follow. A shorter name of a board comes first.
func (m *Machine) Schedules(query jobs.ScheduleQuery) ([]jobs.Schedule, error) {
	limit := pageSize(query.Limit)
	var prefix, after []byte
	if query.Board != "" {
		if len(query.Board) > maxKeyName {
			return nil, nil
		}
		prefix = boardKey(query.Board)
	}
	if query.After != (jobs.ScheduleName{}) {
		after = scheduleNameKey(query.After.Board, query.After.Name)
	}
	var schedules []jobs.Schedule
	err := m.read(func(v *view) error {
		cursor := v.cursor(tableScheduleName)
		start := prefix
		if bytes.Compare(after, start) > 0 {
			start = after
		}
		size := 0
		for key, value := cursor.Seek(start); bytes.HasPrefix(key, prefix) && key != nil && len(schedules) < limit; key, value = cursor.Next() {
			if bytes.Equal(key, after) {
				continue
			}
			if size >= maxPageBytes {
				return nil
			}
			size += len(v.get(tableSchedule, value))
			id, err := uuid.FromBytes(value)
			if err != nil {
				return corrupt("a schedule has no id: %w", err)
			}
			s, err := v.schedule(jobs.ScheduleID{UUID: id})
			if err != nil {
				return err
			}
			schedules = append(schedules, s.Schedule)
		}
		return nil
	})
	return schedules, err
}

// DueSchedules reads the schedules whose next slot is not after a moment,
// without their postings, earliest first.
func (m *Machine) DueSchedules(now time.Time, most int) ([]jobs.Schedule, error) {
	var due []jobs.Schedule
	err := m.read(func(v *view) error {
		cursor := v.cursor(tableScheduleDue)
		for key, _ := cursor.First(); key != nil && len(due) < most; key, _ = cursor.Next() {
			at, err := timeOfKey(key)
			if err != nil || at.After(now) {
				return err
			}
			id, err := uuid.FromBytes(key[dueTimeSize:])
			if err != nil {
				return corrupt("a schedule is due without its id: %w", err)
			}
			s, err := v.schedule(jobs.ScheduleID{UUID: id})
			switch {
			case err != nil:
				return err
			case s == nil:
				return corrupt("schedule %s is due and not stored", id)
			}
			due = append(due, s.Schedule)
		}
		return nil
	})
	return due, err
}
