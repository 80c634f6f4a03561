package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// The state machine evaluates no rule, because nodes can have different time zone data. The leader computes the slots.
// The state machine checks that each slot is later than the last decided one, and writes the record of a slot together
// with its job.

// saveSchedule creates or replaces a schedule.
func (t *txn) saveSchedule(c *v1.SaveScheduleCommand) (*v1.Result, error) {
	given, err := command.ScheduleFromProto(c.GetSchedule())
	if err != nil {
		return nil, err
	}
	if given.Board == "" {
		given.Board = jobs.DefaultBoard
	}
	known := t.scheduleByName(schedules.Ref{Board: given.Board, Name: given.Name})
	var s *scheduleRecord
	if known == nil {
		s, err = t.newSchedule(&given, c)
	} else {
		s, err = t.changedSchedule(known, &given, c)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot save schedule %s of board %s: %w", given.Name, given.Board, err)
	}
	return &v1.Result{Kind: &v1.Result_Schedule{Schedule: &v1.ScheduleResult{Schedule: command.ScheduleToProto(&s.Schedule)}}}, nil
}

func (t *txn) newSchedule(given *schedules.Schedule, c *v1.SaveScheduleCommand) (*scheduleRecord, error) {
	from, next, err := slotTimes(c)
	if err != nil {
		return nil, err
	}
	count := t.storedCount(tableScheduleCount, scheduleCountKey)
	switch {
	case c.GetRevision() != 0:
		return nil, errOtherRevision(c.GetRevision(), 0)
	case given.ID.IsZero():
		return nil, &logbook.InvalidError{Field: "schedule id", Reason: "unset"}
	case t.get(tableSchedule, given.ID.UUID[:]) != nil:
		return nil, fmt.Errorf("%w: the id belongs to another schedule; use a new id", jobs.ErrConflict)
	case count >= schedules.MaxSchedules:
		return nil, &logbook.LimitError{Field: "schedules", Limit: schedules.MaxSchedules, Size: int64(count) + 1, Unit: "schedules"}
	case max(len(given.Board), len(given.Name)) > maxKeyName:
		return nil, &logbook.LimitError{
			Field: "schedule board or name", Limit: maxKeyName, Size: int64(max(len(given.Board), len(given.Name))), Unit: "bytes",
		}
	}
	s := &scheduleRecord{Schedule: definitionOf(given)}
	s.ID, s.CreatedAt, s.Decided, s.Next = given.ID, t.now, from, next
	t.addCount(tableScheduleCount, scheduleCountKey, 1)
	t.put(tableScheduleName, scheduleNameKey(s.Board, s.Name), s.ID.UUID[:])
	t.define(s, given)
	return s, nil
}

// changedSchedule replaces the definition of a schedule. If the rule is unchanged, its slots continue. A new rule
// applies from the time of the change, and undecided slots of the old rule are skipped.
func (t *txn) changedSchedule(s *scheduleRecord, given *schedules.Schedule, c *v1.SaveScheduleCommand) (*scheduleRecord, error) {
	from, next, err := slotTimes(c)
	if err != nil {
		return nil, err
	}
	before := s.Schedule
	before.Posting = t.template(s.ID)
	switch {
	case sameDefinition(&before, given):
		return s, nil
	case c.GetRevision() != s.Revision:
		return nil, errOtherRevision(c.GetRevision(), s.Revision)
	}
	otherTimes := !given.SameTimes(&before)
	if otherTimes {
		if from.Before(s.Decided) {
			return nil, fmt.Errorf("%w: its slots up to %s are already decided; try again", jobs.ErrConflict, schedules.SlotText(s.Decided))
		}
		if err := t.checkSkipped(s, c.GetSkipped()); err != nil {
			return nil, err
		}
		if err := t.skipDecided(s, c.GetSkipped()); err != nil {
			return nil, err
		}
		s.Decided, s.Next = from, next
	}
	definition := definitionOf(given)
	s.Rule, s.Zone, s.Start, s.End = definition.Rule, definition.Zone, definition.Start, definition.End
	s.Overlap, s.Missed = definition.Overlap, definition.Missed
	t.define(s, given)
	return s, nil
}

func errOtherRevision(given, present uint64) error {
	return fmt.Errorf("%w: the schedule has been changed: its revision is %d, not %d; read it again", jobs.ErrConflict, present, given)
}

func slotTimes(c *v1.SaveScheduleCommand) (from, next time.Time, err error) {
	if from, err = command.TimeFromProto("schedule from", c.GetFrom()); err != nil {
		return from, next, err
	}
	next, err = command.TimeFromProto("schedule next", c.GetNext())
	return from, next, err
}

// definitionOf returns the fields of a schedule that callers set, without the posting.
func definitionOf(s *schedules.Schedule) schedules.Schedule {
	return schedules.Schedule{
		Board: s.Board, Name: s.Name, Rule: s.Rule, Zone: s.Zone, Overlap: s.Overlap, Missed: s.Missed, Start: s.Start, End: s.End,
	}
}

func sameDefinition(a, b *schedules.Schedule) bool {
	var encoded [2][]byte
	for i, s := range []*schedules.Schedule{a, b} {
		definition := definitionOf(s)
		definition.Posting = s.Posting
		encoded[i] = encode(nil, command.ScheduleToProto(&definition))
	}
	return bytes.Equal(encoded[0], encoded[1])
}

// define writes a new definition. Its revision is the entry's index. No two definitions of a schedule share a revision,
// because each replacement names the revision that the leader has seen.
func (t *txn) define(s *scheduleRecord, given *schedules.Schedule) {
	s.Revision, s.UpdatedAt, s.SavedBy = t.Index, t.now, t.by
	t.putMessage(tableTemplate, s.ID.UUID[:], nil, command.PostingToProto(&given.Posting))
	t.putSchedule(s)
}

// deleteSchedule removes a schedule with its records. Its jobs stay.
func (t *txn) deleteSchedule(c *v1.DeleteScheduleCommand) error {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return err
	}
	for _, key := range t.keys(tableScheduleJob, s.ID.UUID[:]) {
		t.delete(tableJobSchedule, key[idSize:])
	}
	for _, tab := range []table{tableScheduleJob, tableSlot, tableSlotWaiting, tableTemplate, tableSchedule} {
		t.deletePrefix(tab, s.ID.UUID[:])
	}
	t.delete(tableScheduleName, scheduleNameKey(s.Board, s.Name))
	if !s.due.IsZero() {
		t.delete(tableScheduleDue, scheduleDueKey(s.due, s.ID))
	}
	t.addCount(tableScheduleCount, scheduleCountKey, -1)
	return nil
}

// pauseSchedule pauses a schedule.
func (t *txn) pauseSchedule(c *v1.PauseScheduleCommand) error {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return err
	}
	if s.Pause != nil {
		return nil
	}
	s.Pause = &schedules.Pause{By: c.GetBy(), Reason: c.GetReason(), At: t.now}
	t.putSchedule(s)
	return nil
}

// resumeSchedule ends a pause, and records its slots as skipped.
func (t *txn) resumeSchedule(c *v1.ResumeScheduleCommand) error {
	s, err := t.existingSchedule(c.GetBoard(), c.GetName())
	if err != nil {
		return err
	}
	if s.Pause == nil {
		return nil
	}
	next, err := command.TimeFromProto("schedule next", c.GetNext())
	switch {
	case err != nil:
		return err
	case c.GetRevision() != s.Revision:
		return fmt.Errorf("cannot resume schedule %s: %w", s.Name, errOtherRevision(c.GetRevision(), s.Revision))
	}
	if err := t.checkSkipped(s, c.GetSkipped()); err != nil {
		return fmt.Errorf("cannot resume schedule %s: %w", s.Name, err)
	}
	if err := t.skipDecided(s, c.GetSkipped()); err != nil {
		return err
	}
	s.Pause, s.Next = nil, next
	t.putSchedule(s)
	if s.Active == 0 && s.Waiting > 0 {
		t.vacated = append(t.vacated, s.ID)
	}
	return nil
}

// checkSkipped checks slots that a change of the schedule skips.
func (t *txn) checkSkipped(s *scheduleRecord, d *v1.SlotDecision) error {
	if d == nil {
		return nil
	}
	_, err := inOrder(s.Decided, []*v1.SlotDecision{d}, time.Time{})
	return err
}

func (t *txn) skipDecided(s *scheduleRecord, d *v1.SlotDecision) error {
	if d == nil {
		return nil
	}
	decision, err := command.SlotDecisionFromProto(d)
	if err != nil {
		return err
	}
	t.skipSlots(s, &decision, decision.Skip)
	return nil
}

// inOrder reads decisions, and refuses them unless each slot is later than the slot before it, and the first is later
// than decided.
func inOrder(decided time.Time, messages []*v1.SlotDecision, next time.Time) ([]schedules.SlotDecision, error) {
	decisions := make([]schedules.SlotDecision, 0, len(messages))
	for _, message := range messages {
		d, err := command.SlotDecisionFromProto(message)
		switch {
		case err != nil:
			return nil, err
		case !d.Slot.After(decided):
			return nil, fmt.Errorf("%w: slot %s is not after %s, and earlier slots are already decided", jobs.ErrConflict, schedules.SlotText(d.Slot), schedules.SlotText(decided))
		case d.Through.Before(d.Slot), d.Skip == "" && !d.Through.Equal(d.Slot):
			return nil, &logbook.InvalidError{Field: "slot through", Reason: "before the slot, or different from the slot of a posted job"}
		}
		decisions, decided = append(decisions, d), d.Through
	}
	if !next.IsZero() && !next.After(decided) {
		return nil, &logbook.InvalidError{Field: "schedule next", Reason: "not after the slots that are decided"}
	}
	return decisions, nil
}

// fireSchedule decides due slots.
func (t *txn) fireSchedule(c *v1.FireScheduleCommand) error {
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return fmt.Errorf("cannot post slots: %w", err)
	}
	id, err := logbook.ParseID("schedule id", c.GetSchedule())
	if err != nil {
		return err
	}
	next, err := command.TimeFromProto("schedule next", c.GetNext())
	if err != nil {
		return err
	}
	s := t.schedule(schedules.ID{UUID: id})
	switch {
	case s == nil:
		return fmt.Errorf("cannot post slots: schedule %s: %w", id, jobs.ErrNotFound)
	case s.Pause != nil:
		return fmt.Errorf("cannot post slots of schedule %s: %w: it is paused", s.Name, jobs.ErrConflict)
	case c.GetRevision() != s.Revision:
		return fmt.Errorf("cannot post slots of schedule %s: %w", s.Name, errOtherRevision(c.GetRevision(), s.Revision))
	}
	decisions, err := inOrder(s.Decided, c.GetDecisions(), next)
	if err != nil {
		return fmt.Errorf("cannot post slots of schedule %s: %w", s.Name, err)
	}
	for i := range decisions {
		s = t.decide(s, &decisions[i])
	}
	s.Next = next
	t.putSchedule(s)
	return nil
}

// decide performs one decision.
func (t *txn) decide(s *scheduleRecord, d *schedules.SlotDecision) *scheduleRecord {
	s.Decided = d.Through
	if d.Skip != "" {
		t.skipSlots(s, d, d.Skip)
		return s
	}
	record := &schedules.SlotRecord{Slot: d.Slot, Job: s.ID.SlotJob(d.Slot), Trigger: schedules.TriggerSchedule}
	return t.place(s, record, s.Overlap)
}

// place posts a slot, lets it wait, or skips it, by the overlap policy.
func (t *txn) place(s *scheduleRecord, record *schedules.SlotRecord, overlap schedules.Overlap) *scheduleRecord {
	if overlap == schedules.OverlapCancel && (s.Active > 0 || s.Waiting > 0) {
		s = t.clear(s)
	}
	free := s.Active == 0 && s.Waiting == 0
	switch {
	case free || overlap == schedules.OverlapAllow:
		t.postSlot(s, record)
	case overlap == schedules.OverlapQueue || overlap == schedules.OverlapCancel:
		t.queueSlot(s, record)
	default:
		t.refuseSlot(s, record, "a job of the schedule is not finished")
	}
	return s
}

// clear cancels the unfinished jobs of a schedule, and skips its waiting slots. Unclaimed jobs with nothing to undo
// finish at once.
func (t *txn) clear(s *scheduleRecord) *scheduleRecord {
	for _, key := range t.keys(tableSlotWaiting, s.ID.UUID[:]) {
		t.unwait(s, key, func(r *schedules.SlotRecord) {
			t.refuse(s, r, "replaced by a later slot")
		})
	}
	t.putSchedule(s)
	for _, key := range t.keys(tableScheduleJob, s.ID.UUID[:]) {
		sequence := sequenceAtEnd(key)
		j := t.job(sequence)
		before := t.writes
		err := t.cancel(&v1.JobCommand{
			Job: j.ID.String(), By: s.Name, Reason: "the next slot of its schedule has come", Revert: true,
		})
		// A job whose flow has ended and that waits for its consume is not cancelled. It finishes
		// soon.
		if err != nil && t.writes != before {
			panic(corrupt("cannot cancel job %s: %w", j.ID, err))
		}
	}
	return t.storedSchedule(s.ID) // the finished jobs have changed the stored schedule
}

// postSlot posts the job of a slot, and records the job or the refusal.
func (t *txn) postSlot(s *scheduleRecord, record *schedules.SlotRecord) {
	if reason := t.postJob(s, record); reason != "" {
		t.refuseSlot(s, record, reason)
		return
	}
	t.addRecord(s, record)
}

// refuseSlot records the refusal of a slot. A requested slot gets its own record. Other slots share a record with the
// slots before them that were refused for the same reason.
func (t *txn) refuseSlot(s *scheduleRecord, record *schedules.SlotRecord, reason string) {
	if record.Trigger == schedules.TriggerSchedule {
		t.skipSlots(s, &schedules.SlotDecision{Slot: record.Slot, Through: record.Slot, Count: 1}, reason)
		return
	}
	t.refuse(s, record, reason)
	t.addRecord(s, record)
}

// refuse turns a record into the record of a refused slot, and counts the slot as skipped.
func (t *txn) refuse(s *scheduleRecord, record *schedules.SlotRecord, reason string) {
	record.State, record.Job, record.Reason = schedules.SlotSkipped, jobs.JobID{}, reason
	s.Skipped++
	t.changes.Skipped++
}

// postJob posts the job of a slot, under the principal that saved the schedule. That principal's quota applies,
// regardless of the command. postJob returns the reason of a refusal.
func (t *txn) postJob(s *scheduleRecord, record *schedules.SlotRecord) (refusal string) {
	if s.Active >= schedules.MaxScheduleJobs {
		return fmt.Sprintf("%d jobs of the schedule are not finished", s.Active)
	}
	whole := s.Schedule
	whole.Posting = t.template(s.ID)
	posting := whole.Expand(record.Job, record.Slot)
	before, by := t.writes, t.by
	t.by, t.from = s.SavedBy, slotJob{s.Name, record.Slot}
	posted, err := t.postOne(command.PostingToProto(&posting))
	t.by, t.from = by, slotJob{}
	switch {
	case err != nil && t.writes != before:
		panic(corrupt("cannot post job %s: %w", record.Job, err))
	case err != nil:
		return refusalOf(record.Job, err)
	case posted.job != record.Job.String():
		return "job " + posted.job + " has the key of the posting"
	}
	record.State, record.At = schedules.SlotPosted, t.now
	s.Posted++
	if !posted.existed {
		s.Active++
		t.put(tableScheduleJob, scheduleKey(s.ID, t.Sequence), nil)
		t.put(tableJobSchedule, sequenceKey(t.Sequence), s.ID.UUID[:])
	}
	return ""
}

// refusalOf returns the reason of a refusal, without the id of the job, which differs for every slot. The reason has at
// most jobs.MaxReason bytes.
func refusalOf(job jobs.JobID, err error) string {
	reason := strings.TrimPrefix(err.Error(), "cannot post job "+job.String()+": ")
	return strings.ToValidUTF8(reason[:min(len(reason), jobs.MaxReason)], "") // stored texts must be UTF-8
}

// queueSlot lets a slot wait until all earlier jobs are finished.
func (t *txn) queueSlot(s *scheduleRecord, record *schedules.SlotRecord) {
	if s.Waiting >= schedules.MaxWaitingSlots {
		t.refuseSlot(s, record, fmt.Sprintf("%d slots are already queued", s.Waiting))
		return
	}
	record.State = schedules.SlotWaiting
	t.addRecord(s, record)
	s.Waiting++
	t.put(tableSlotWaiting, scheduleKey(s.ID, record.Number), nil)
}

// skipSlots records skipped slots. If the previous record has the same reason, skipSlots extends it. Otherwise a job of
// hours would fill the history of a schedule with slots every second.
func (t *txn) skipSlots(s *scheduleRecord, d *schedules.SlotDecision, reason string) {
	s.Skipped += d.Count
	t.changes.Skipped += d.Count
	s.Decided = later(s.Decided, d.Through)
	last := t.lastRecord(s.ID)
	fresh := schedules.SlotRecord{Slot: d.Slot, State: schedules.SlotSkipped, Reason: reason, Trigger: schedules.TriggerSchedule, At: t.now}
	if d.Count > 1 {
		fresh.Through, fresh.Count = d.Through, d.Count
	}
	if last == nil || last.State != schedules.SlotSkipped || last.Reason != reason || last.Trigger != schedules.TriggerSchedule || !last.Slot.Before(d.Slot) {
		t.addRecord(s, &fresh)
		return
	}
	last.Through, last.Count, last.At = d.Through, last.Slots()+d.Count, t.now
	t.putRecord(s, last)
}

// postWaiting posts the next waiting slot of each schedule whose last unfinished job the current command finished.
func (t *txn) postWaiting() {
	vacated := t.vacated
	t.vacated = nil
	for _, id := range vacated {
		s := t.schedule(id)
		if s == nil || s.Pause != nil {
			continue
		}
		for s.Active == 0 && s.Waiting > 0 {
			t.postNextWaiting(s)
		}
		t.putSchedule(s)
	}
}

func (t *txn) postNextWaiting(s *scheduleRecord) {
	key, _ := t.cursor(tableSlotWaiting).Seek(s.ID.UUID[:])
	if !bytes.HasPrefix(key, s.ID.UUID[:]) {
		panic(corrupt("schedule %s has %d waiting slots, and none is found", s.ID, s.Waiting))
	}
	t.unwait(s, bytes.Clone(key), func(r *schedules.SlotRecord) {
		if refusal := t.postJob(s, r); refusal != "" {
			t.refuse(s, r, refusal)
		}
	})
}

// unwait ends the wait of a slot, and changes its record.
func (t *txn) unwait(s *scheduleRecord, key []byte, change func(*schedules.SlotRecord)) {
	value := t.get(tableSlot, key)
	if value == nil {
		panic(corrupt("a slot of schedule %s waits, and has no record", s.ID))
	}
	record := decode(value, &v1.SlotRecord{}, command.SlotRecordFromProto)
	t.delete(tableSlotWaiting, key)
	s.Waiting--
	record.At = t.now
	change(&record)
	t.putRecord(s, &record)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
