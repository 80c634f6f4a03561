package fsm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
)

// scheduleRecord is the small, changing part of a schedule, without its posting.
type scheduleRecord struct {
	schedules.Schedule
	due time.Time // its time in the table of due schedules; zero: not in the table
}

var scheduleCountKey = []byte("schedules")

// putSchedule writes a schedule, updates its row in tableScheduleDue, and drops records over the bound.
func (t *txn) putSchedule(s *scheduleRecord) {
	t.trimRecords(s)
	due := s.Next
	if s.Pause != nil {
		due = time.Time{}
	}
	if !due.Equal(s.due) {
		if !s.due.IsZero() {
			t.delete(tableScheduleDue, scheduleDueKey(s.due, s.ID))
		}
		if !due.IsZero() {
			t.put(tableScheduleDue, scheduleDueKey(due, s.ID), nil)
		}
		s.due = due
	}
	message := command.ScheduleToProto(&s.Schedule)
	message.Posting = nil
	t.putMessage(tableSchedule, s.ID.UUID[:], nil, message)
}

// leaveSchedule removes a finished job from the unfinished jobs of its schedule, if it has one.
func (t *txn) leaveSchedule(j *jobRecord) {
	value := t.get(tableJobSchedule, sequenceKey(j.Sequence))
	if value == nil {
		return
	}
	id, err := uuid.FromBytes(value)
	if err != nil {
		panic(corrupt("the schedule of job %s is no id: %w", j.ID, err))
	}
	s := t.storedSchedule(schedules.ID{UUID: id})
	t.delete(tableJobSchedule, sequenceKey(j.Sequence))
	t.delete(tableScheduleJob, scheduleKey(s.ID, j.Sequence))
	s.Active--
	t.putSchedule(s)
	if s.Active == 0 && s.Waiting > 0 {
		t.vacated = append(t.vacated, s.ID)
	}
}

// schedule reads a schedule without its posting; nil if there is none.
func (v *view) schedule(id schedules.ID) *scheduleRecord {
	value := v.get(tableSchedule, id.UUID[:])
	if value == nil {
		return nil
	}
	s := decode(value, &v1.Schedule{}, command.ScheduleFromProto)
	record := &scheduleRecord{Schedule: s, due: s.Next}
	if s.Pause != nil {
		record.due = time.Time{}
	}
	return record
}

// storedSchedule reads a schedule to which a stored row refers.
func (v *view) storedSchedule(id schedules.ID) *scheduleRecord {
	s := v.schedule(id)
	if s == nil {
		panic(corrupt("a row refers to schedule %s, which does not exist", id))
	}
	return s
}

// scheduleByName reads a schedule without its posting; nil if there is none.
func (v *view) scheduleByName(name schedules.Ref) *scheduleRecord {
	if name.Board == "" {
		name.Board = jobs.DefaultBoard
	}
	if len(name.Board) > maxKeyName {
		return nil
	}
	value := v.get(tableScheduleName, scheduleNameKey(name.Board, name.Name))
	if value == nil {
		return nil
	}
	id, err := uuid.FromBytes(value)
	if err != nil {
		panic(corrupt("schedule %s of board %s has no id: %w", name.Name, name.Board, err))
	}
	return v.storedSchedule(schedules.ID{UUID: id})
}

// existingSchedule reads a schedule that a caller names. ErrNotFound.
func (v *view) existingSchedule(board, name string) (*scheduleRecord, error) {
	s := v.scheduleByName(schedules.Ref{Board: board, Name: name})
	if s == nil {
		return nil, fmt.Errorf("schedule %q: %w", name, jobs.ErrNotFound)
	}
	return s, nil
}

// template reads the posting of a schedule.
func (v *view) template(id schedules.ID) jobs.Posting {
	value := v.get(tableTemplate, id.UUID[:])
	if value == nil {
		panic(corrupt("schedule %s has no posting", id))
	}
	return decode(value, &v1.Posting{}, command.PostingFromProto)
}

// addRecord writes a new record. Writing the schedule drops the oldest ones over the limit.
func (t *txn) addRecord(s *scheduleRecord, record *schedules.SlotRecord) {
	last := t.lastRecord(s.ID)
	record.Number = 1
	if last != nil {
		record.Number = last.Number + 1
	}
	if record.At.IsZero() {
		record.At = t.now
	}
	t.putRecord(s, record)
	s.Records++
}

// trimRecords drops the oldest records over the bound, except records of waiting slots.
func (t *txn) trimRecords(s *scheduleRecord) {
	over := s.Records - schedules.MaxSlotRecords - s.Waiting
	if over <= 0 {
		return
	}
	var drop [][]byte
	t.scan(tableSlot, s.ID.UUID[:], func(key, _ []byte) bool {
		if t.get(tableSlotWaiting, key) == nil {
			drop = append(drop, bytes.Clone(key))
		}
		return len(drop) < over
	})
	for _, key := range drop {
		t.delete(tableSlot, key)
	}
	s.Records -= len(drop)
}

func (t *txn) putRecord(s *scheduleRecord, record *schedules.SlotRecord) {
	t.putMessage(tableSlot, scheduleKey(s.ID, record.Number), nil, command.SlotRecordToProto(record))
}

// lastRecord returns the latest record of a schedule; nil if there is none.
func (v *view) lastRecord(id schedules.ID) *schedules.SlotRecord {
	records := v.latestRecords(id, 1)
	if len(records) == 0 {
		return nil
	}
	return &records[0]
}

// latestRecords reads up to most records, the latest first. It reads fewer if they are long.
func (v *view) latestRecords(id schedules.ID, most int) []schedules.SlotRecord {
	cursor := v.cursor(tableSlot)
	before := cursor.Prev
	if key, _ := cursor.Seek(scheduleKey(id, math.MaxUint64)); key == nil { // no record has that number
		before = cursor.Last
	}
	var records []schedules.SlotRecord
	size := 0
	key, value := before()
	for ; bytes.HasPrefix(key, id.UUID[:]) && len(records) < most && size < maxPageBytes; key, value = cursor.Prev() {
		size += len(value)
		record := decode(value, &v1.SlotRecord{}, command.SlotRecordFromProto)
		records = append(records, record)
	}
	return records
}

func (v *view) nextSlot() time.Time {
	key, _ := v.cursor(tableScheduleDue).First()
	if key == nil {
		return time.Time{}
	}
	return timeOfKey(key)
}

// Schedule reads a schedule with its posting, and its latest records, the
// latest first. ErrNotFound.
func (m *Machine) Schedule(name schedules.Ref, records int) (schedules.Schedule, []schedules.SlotRecord, error) {
	var s schedules.Schedule
	var latest []schedules.SlotRecord
	err := m.read(func(v *view) error {
		found, err := v.existingSchedule(name.Board, name.Name)
		if err != nil {
			return err
		}
		s = found.Schedule
		s.Posting = v.template(s.ID)
		latest = v.latestRecords(s.ID, records)
		return nil
	})
	return s, latest, err
}

// Schedules reads a page of schedules without their postings, sorted by board and name; shorter names of boards come
// first. It omits schedules of boards for which shows returns false.
func (m *Machine) Schedules(query schedules.Query, shows ...func(board string) bool) (page jobs.Page[schedules.Schedule], err error) {
	limit := pageSize(query.Limit)
	var prefix []byte
	if query.Board != "" {
		if len(query.Board) > maxKeyName {
			return page, nil
		}
		prefix = boardKey(query.Board)
	}
	after, err := hex.DecodeString(query.After)
	if err != nil {
		return page, badCursor("schedules")
	}
	err = m.read(func(v *view) error {
		cursor := v.cursor(tableScheduleName)
		start := prefix
		if bytes.Compare(after, start) > 0 {
			start = after
		}
		key, value := cursor.Seek(start)
		if len(after) > 0 && bytes.Equal(key, after) {
			key, value = cursor.Next()
		}
		var last []byte
		for size := 0; bytes.HasPrefix(key, prefix) && key != nil; key, value = cursor.Next() {
			if len(page.Items) == limit || size >= maxPageBytes {
				page.Next = hex.EncodeToString(last)
				return nil
			}
			id, err := uuid.FromBytes(value)
			if err != nil {
				panic(corrupt("a schedule has no id: %w", err))
			}
			s := v.storedSchedule(schedules.ID{UUID: id})
			if len(shows) > 0 && !shows[0](s.Board) {
				continue // the cursor must not contain its name
			}
			size += len(v.get(tableSchedule, value))
			page.Items = append(page.Items, s.Schedule)
			last = append(last[:0], key...)
		}
		return nil
	})
	return page, err
}

// DueSchedules reads the schedules whose next slot is not after now, without their postings,
// earliest first.
func (m *Machine) DueSchedules(now time.Time, most int) ([]schedules.Schedule, error) {
	var due []schedules.Schedule
	err := m.read(func(v *view) error {
		cursor := v.cursor(tableScheduleDue)
		for key, _ := cursor.First(); key != nil && len(due) < most; key, _ = cursor.Next() {
			at := timeOfKey(key)
			if at.After(now) {
				return nil
			}
			id, err := uuid.FromBytes(key[dueTimeSize:])
			if err != nil {
				panic(corrupt("a schedule is due without its id: %w", err))
			}
			s := v.storedSchedule(schedules.ID{UUID: id})
			due = append(due, s.Schedule)
		}
		return nil
	})
	return due, err
}
