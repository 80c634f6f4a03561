package fsm_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// modelSchedule is a schedule with all its records.
type modelSchedule struct {
	schedules.Schedule
	given   *v1.Schedule // as last saved
	records []*schedules.SlotRecord
	running []*modelJob // its unfinished jobs, by posting order
}

func (s *modelSchedule) waiting() []*schedules.SlotRecord {
	return slices.DeleteFunc(slices.Clone(s.records), func(r *schedules.SlotRecord) bool { return r.State != schedules.SlotWaiting })
}

func (m *model) schedule(board, name string) (*modelSchedule, error) {
	if s := m.schedules[schedules.Ref{Board: boardNamed(board), Name: name}]; s != nil {
		return s, nil
	}
	return nil, jobs.ErrNotFound
}

func (m *model) saveSchedule(c *v1.SaveScheduleCommand) (string, error) {
	given, err := command.ScheduleFromProto(c.Schedule)
	if err != nil {
		panic(err)
	}
	given.Board = boardNamed(given.Board)
	said := proto.Clone(c.Schedule).(*v1.Schedule)
	said.Id, said.Board = "", given.Board
	s, _ := m.schedule(given.Board, given.Name)
	switch {
	case s == nil && c.Revision != 0:
		return "", jobs.ErrConflict
	case s == nil && slices.ContainsFunc(m.allSchedules(), func(other *modelSchedule) bool { return other.ID == given.ID }):
		return "", jobs.ErrConflict
	case s == nil:
		s = &modelSchedule{Schedule: given}
		s.CreatedAt, s.Decided, s.Next = m.now, c.From.AsTime(), c.Next.AsTime()
		m.schedules[schedules.Ref{Board: s.Board, Name: s.Name}] = s
	case proto.Equal(s.given, said):
		return scheduleSaid(s), nil
	case c.Revision != s.Revision:
		return "", jobs.ErrConflict
	case !given.SameTimes(&s.Schedule):
		if c.From.AsTime().Before(s.Decided) {
			return "", jobs.ErrConflict
		}
		if err := m.passOver(s, c.Skipped); err != nil {
			return "", err
		}
		s.Decided, s.Next = c.From.AsTime(), c.Next.AsTime()
	}
	s.given, s.Posting, s.Overlap, s.Rule = said, given.Posting, given.Overlap, given.Rule
	s.Revision, s.UpdatedAt, s.SavedBy = m.index, m.now, m.by
	return scheduleSaid(s), nil
}

// allSchedules are the schedules board by board, and by name.
func (m *model) allSchedules() (all []*modelSchedule) {
	for _, s := range m.schedules {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *modelSchedule) int {
		return cmp.Or(cmp.Compare(len(a.Board), len(b.Board)), cmp.Compare(a.Board, b.Board), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func scheduleSaid(s *modelSchedule) string { return fmt.Sprint("schedule ", s.Name, " ", s.Revision) }

// passOver records slots that an operator's request skips.
func (m *model) passOver(s *modelSchedule, skipped *v1.SlotDecision) error {
	if skipped == nil {
		return nil
	}
	if !skipped.Slot.AsTime().After(s.Decided) {
		return jobs.ErrConflict
	}
	m.skip(s, skipped.Slot.AsTime(), skipped.Through.AsTime(), skipped.Count, skipped.Skip)
	return nil
}

func (m *model) deleteSchedule(c *v1.DeleteScheduleCommand) error {
	s, err := m.schedule(c.Board, c.Name)
	if err == nil {
		delete(m.schedules, schedules.Ref{Board: s.Board, Name: s.Name})
	}
	return err
}

func (m *model) pauseSchedule(c *v1.PauseScheduleCommand) error {
	s, err := m.schedule(c.Board, c.Name)
	if err == nil && s.Pause == nil {
		s.Pause = &schedules.Pause{By: c.By, Reason: c.Reason, At: m.now}
	}
	return err
}

func (m *model) resumeSchedule(c *v1.ResumeScheduleCommand) error {
	s, err := m.schedule(c.Board, c.Name)
	switch {
	case err != nil || s.Pause == nil:
		return err
	case c.Revision != s.Revision:
		return jobs.ErrConflict
	}
	if err := m.passOver(s, c.Skipped); err != nil {
		return err
	}
	s.Pause, s.Next = nil, c.Next.AsTime()
	m.vacated = append(m.vacated, s)
	return nil
}

// fire decides slots that are due.
func (m *model) fire(c *v1.FireScheduleCommand) error {
	if c.TimerEpoch != m.epoch {
		return jobs.ErrConflict
	}
	all := m.allSchedules()
	at := slices.IndexFunc(all, func(s *modelSchedule) bool { return s.ID.String() == c.Schedule })
	if at < 0 {
		return jobs.ErrNotFound
	}
	s, decided := all[at], all[at].Decided
	if s.Pause != nil || c.Revision != s.Revision {
		return jobs.ErrConflict
	}
	for _, d := range c.Decisions {
		if !d.Slot.AsTime().After(decided) {
			return jobs.ErrConflict
		}
		decided = d.Through.AsTime()
	}
	if !c.Next.AsTime().After(decided) {
		return jobs.ErrInvalid
	}
	for _, d := range c.Decisions {
		slot := d.Slot.AsTime()
		s.Decided = d.Through.AsTime()
		if d.Skip != "" {
			m.skip(s, slot, d.Through.AsTime(), d.Count, d.Skip)
			continue
		}
		m.comes(s, &schedules.SlotRecord{Slot: slot, Job: s.ID.SlotJob(slot), Trigger: schedules.TriggerSchedule}, s.Overlap)
	}
	s.Next = c.Next.AsTime()
	return nil
}

// comes applies the overlap policy to a slot.
func (m *model) comes(s *modelSchedule, r *schedules.SlotRecord, overlap schedules.Overlap) {
	if overlap == schedules.OverlapCancel {
		for _, waiting := range s.waiting() {
			waiting.State, waiting.Job, waiting.Reason, waiting.At = schedules.SlotSkipped, jobs.JobID{}, "a later slot has taken its place", m.now
			s.Skipped++
		}
		for _, j := range slices.Clone(s.running) {
			// A job whose flow has ended is left for its owner to consume.
			_ = m.cancel(&v1.JobCommand{Job: j.ID.String(), By: s.Name, Reason: "the next slot", Revert: true})
		}
	}
	switch free := len(s.running) == 0 && len(s.waiting()) == 0; {
	case free, overlap == schedules.OverlapAllow:
		m.postSlot(s, r)
		m.recordSlot(s, r)
	case overlap == schedules.OverlapQueue, overlap == schedules.OverlapCancel:
		r.State = schedules.SlotWaiting
		m.recordSlot(s, r)
	default:
		m.skip(s, r.Slot, r.Slot, 1, "a job of the schedule is not finished")
	}
}

// postSlot posts the job of a slot, or returns the reason for a refusal.
func (m *model) postSlot(s *modelSchedule, r *schedules.SlotRecord) {
	posting := s.Expand(r.Job, r.Slot)
	by := m.by
	m.by, m.slotOf, m.slot = s.SavedBy, s.Name, r.Slot
	job, existed, err := m.postOne(command.PostingToProto(&posting))
	m.by, m.slotOf, m.slot = by, "", time.Time{}
	r.At = m.now
	switch {
	case err != nil:
		r.Reason = err.Error()
	case job != r.Job.String():
		r.Reason = "job " + job + " has the key of the posting"
	default:
		r.State = schedules.SlotPosted
		s.Posted++
		if !existed {
			s.running = append(s.running, m.jobs[job])
		}
		return
	}
	r.State, r.Job = schedules.SlotSkipped, jobs.JobID{}
	s.Skipped++
}

// recordSlot stores the record of a slot. A skipped slot of the schedule joins the previous record
// if that has the same reason.
func (m *model) recordSlot(s *modelSchedule, r *schedules.SlotRecord) {
	if r.State == schedules.SlotSkipped && r.Trigger == schedules.TriggerSchedule {
		s.Skipped--
		m.skip(s, r.Slot, r.Slot, 1, r.Reason)
		return
	}
	m.addRecord(s, r)
}

func (m *model) addRecord(s *modelSchedule, r *schedules.SlotRecord) {
	r.Number, r.At = 1, m.now
	if len(s.records) > 0 {
		r.Number = s.records[len(s.records)-1].Number + 1
	}
	s.records = append(s.records, r)
}

func (m *model) skip(s *modelSchedule, slot, through time.Time, count uint64, why string) {
	s.Skipped += count
	if through.After(s.Decided) {
		s.Decided = through
	}
	if len(s.records) > 0 {
		last := s.records[len(s.records)-1]
		if last.State == schedules.SlotSkipped && last.Reason == why && last.Trigger == schedules.TriggerSchedule && last.Slot.Before(slot) {
			last.Through, last.Count, last.At = through, last.Slots()+count, m.now
			return
		}
	}
	r := &schedules.SlotRecord{Slot: slot, State: schedules.SlotSkipped, Reason: why, Trigger: schedules.TriggerSchedule}
	if count > 1 {
		r.Through, r.Count = through, count
	}
	m.addRecord(s, r)
}

// leaveSchedule removes a finished job from its schedule's unfinished jobs.
func (m *model) leaveSchedule(j *modelJob) {
	for _, s := range m.allSchedules() {
		before := len(s.running)
		s.running = slices.DeleteFunc(s.running, func(running *modelJob) bool { return running == j })
		if len(s.running) == 0 && before > 0 {
			m.vacated = append(m.vacated, s)
		}
	}
}

// postWaiting posts the slots that waited for the jobs that a command has finished.
func (m *model) postWaiting() {
	vacated := m.vacated
	m.vacated = nil
	for _, s := range vacated {
		for _, r := range s.waiting() {
			if s.Pause == nil && len(s.running) == 0 {
				m.postSlot(s, r)
			}
		}
	}
}

func (m *model) runSchedule(c *v1.RunScheduleCommand) (string, error) {
	s, err := m.schedule(c.Board, c.Name)
	if err != nil {
		return "", err
	}
	nonce, err := jobs.ParseNonce(c.Nonce)
	if err != nil {
		panic(err)
	}
	r := &schedules.SlotRecord{Slot: m.now, Job: s.ID.RunJob(nonce), Trigger: schedules.TriggerRun, By: c.By, Request: nonce}
	if known := m.answered(s, r); known != nil {
		return slotsSaid(known), nil
	}
	m.postSlot(s, r)
	m.recordSlot(s, r)
	return slotsSaid(r), nil
}

// answered is the record of a slot that was requested before, or that has a job.
func (m *model) answered(s *modelSchedule, wanted *schedules.SlotRecord) *schedules.SlotRecord {
	for _, known := range s.records {
		same := known.Trigger == wanted.Trigger && known.Request == wanted.Request && !wanted.Request.IsZero()
		if same && (wanted.Trigger == schedules.TriggerRun || known.Slot.Equal(wanted.Slot)) {
			return known
		}
	}
	for _, known := range s.records {
		if known.Job == wanted.Job {
			return known
		}
	}
	if m.jobs[wanted.Job.String()] == nil {
		return nil
	}
	panic("internal error: a job of a slot has no record, and a walk is too short to drop one")
}

func (m *model) backfill(c *v1.BackfillScheduleCommand) (string, error) {
	s, err := m.schedule(c.Board, c.Name)
	switch {
	case err != nil:
		return "", err
	case c.Revision != s.Revision:
		return "", jobs.ErrConflict
	}
	before := time.Time{}
	for _, slot := range c.Slots {
		if !slot.AsTime().After(before) || slot.AsTime().After(s.Decided) {
			return "", jobs.ErrInvalid
		}
		before = slot.AsTime()
	}
	nonce, err := jobs.ParseNonce(c.Nonce)
	if err != nil {
		panic(err)
	}
	overlap := schedules.OverlapQueue
	if s.Overlap == schedules.OverlapAllow {
		overlap = schedules.OverlapAllow
	}
	var records []*schedules.SlotRecord
	for _, slot := range c.Slots {
		r := &schedules.SlotRecord{Slot: slot.AsTime(), Job: s.ID.SlotJob(slot.AsTime()), Trigger: schedules.TriggerBackfill, By: c.By, Request: nonce}
		if known := m.answered(s, r); known != nil {
			records = append(records, known)
			continue
		}
		m.comes(s, r, overlap)
		records = append(records, r)
	}
	return slotsSaid(records...), nil
}

// slotsSaid formats the answer about slots.
func slotsSaid(records ...*schedules.SlotRecord) string {
	var said []string
	for _, r := range records {
		said = append(said, slotWord(r))
	}
	return strings.Join(said, ", ")
}

// slotWord formats a record as a word.
func slotWord(r *schedules.SlotRecord) string {
	word := fmt.Sprint("#", r.Number, " ", ago(r.Slot))
	if r.Slots() > 1 {
		word += fmt.Sprint(" to ", ago(r.Through), " (", r.Count, ")")
	}
	return word + fmt.Sprint(" ", r.State, " ", r.Job, " by ", r.Trigger, r.By, " at ", ago(r.At), " because ", r.Reason)
}

func scheduleLine(s *schedules.Schedule, records []*schedules.SlotRecord) string {
	pause := "-"
	if s.Pause != nil {
		pause = fmt.Sprint(s.Pause.By, " at ", ago(s.Pause.At))
	}
	return fmt.Sprintf("schedule %s of %s, saved by %q, revision %d, %s %s, made %s, decided %s, next %s, paused by %s, %d active, %d waiting, %d posted, %d skipped: %s",
		s.Name, s.Board, s.SavedBy, s.Revision, s.Rule, s.Overlap, ago(s.CreatedAt), ago(s.Decided), ago(s.Next), pause, s.Active, s.Waiting, s.Posted, s.Skipped, slotsSaid(records...))
}

func (m *model) scheduleLines() (lines []string) {
	for _, s := range m.allSchedules() {
		shown := s.Schedule
		shown.Active, shown.Waiting = len(s.running), len(s.waiting())
		lines = append(lines, scheduleLine(&shown, s.records))
	}
	return lines
}

// Random commands of the walker.

// planned draws a command about a schedule, usually a possible command of a leader.
func (w *walker) planned() *v1.Command {
	name := schedules.Ref{Board: w.oneOf("board", "", "other"), Name: w.oneOf("schedule", "s", "s", "t")}
	known, _, err := w.machine.Schedule(name, 0)
	what := w.draw("about a schedule", 12)
	if err != nil || what == 0 {
		return w.savedSchedule(name, &known, errors.Is(err, jobs.ErrNotFound))
	}
	revision := known.Revision + uint64(w.draw("stale", 9)/9)
	switch what {
	case 1:
		return &v1.Command{Kind: &v1.Command_PauseSchedule{PauseSchedule: &v1.PauseScheduleCommand{Board: name.Board, Name: name.Name, By: "ann"}}}
	case 2, 3:
		c, err := command.PlanResume(&known, w.now)
		if err != nil {
			w.Fatal(err)
		}
		if c == nil {
			return &v1.Command{Kind: &v1.Command_ResumeSchedule{ResumeSchedule: &v1.ResumeScheduleCommand{Board: name.Board, Name: name.Name}}}
		}
		c.GetResumeSchedule().Revision = revision
		return c
	case 4, 5:
		return &v1.Command{Kind: &v1.Command_RunSchedule{RunSchedule: &v1.RunScheduleCommand{
			Board: name.Board, Name: name.Name, Nonce: id(fmt.Sprint("run ", w.index/20)), By: w.oneOf("by", "", "ann"),
		}}}
	case 6:
		c := &v1.BackfillScheduleCommand{Board: name.Board, Name: name.Name, Revision: revision, By: "ann", Nonce: id(fmt.Sprint("fill ", w.index/20))}
		first := known.Decided.Truncate(2 * time.Second).Add(-2 * time.Second * time.Duration(w.draw("back", 3)))
		for n := range 1 + w.draw("slots", 2) {
			c.Slots = append(c.Slots, command.TimeToProto(first.Add(2*time.Second*time.Duration(n))))
		}
		return &v1.Command{Kind: &v1.Command_BackfillSchedule{BackfillSchedule: c}}
	case 7:
		if w.draw("delete", 2) == 0 {
			return &v1.Command{Kind: &v1.Command_DeleteSchedule{DeleteSchedule: &v1.DeleteScheduleCommand{Board: name.Board, Name: name.Name}}}
		}
	}
	return w.fired(&known, revision)
}

// fired lets a leader decide due slots. It may have missed slots.
func (w *walker) fired(s *schedules.Schedule, revision uint64) *v1.Command {
	rule, err := schedules.ParseRule(s)
	if err != nil {
		w.Fatal(err)
	}
	ahead := time.Duration(w.draw("clock ahead", 3)) * time.Second
	c := command.PlanFire(s, rule, w.machine.TimerEpoch()+uint64(w.draw("deposed", 9)/9), w.now.Add(ahead))
	f := c.GetFireSchedule()
	f.Revision = revision
	if len(f.Decisions) > 0 && w.draw("skip", 4) == 0 {
		f.Decisions[0].Skip = w.oneOf("why", "missed", "late")
	}
	return c
}

func (w *walker) savedSchedule(name schedules.Ref, known *schedules.Schedule, isNew bool) *v1.Command {
	given := schedules.Schedule{
		Board: name.Board, Name: name.Name, Rule: w.oneOf("rule", "@every 2s", "@every 2s", "@every 4s"),
		Overlap: schedules.Overlap(w.oneOf("overlap", "", "skip", "queue", "queue", "cancel", "cancel", "allow")),
	}
	given.Posting = jobs.Posting{Kind: w.oneOf("kind", "k", "l"), Key: w.oneOf("key", "", "", "", "red"), Front: w.draw("front", 4) == 0, Hold: w.draw("held", 9) == 0}
	if w.draw("with a retry policy", 2) == 0 {
		given.Posting.Retry = &jobs.RetryPolicy{Backoff: logbook.Backoff{Attempts: 2, Delay: time.Second}, OnFailure: jobs.OnFailure(w.oneOf("on failure", "complete", "park"))}
	}
	if w.draw("with a flow", 1) == 0 {
		b, err := command.BookFromProto(book("book of slots", "flow of slots"))
		if err != nil {
			w.Fatal(err)
		}
		given.Posting.Kind, given.Posting.Book = "", &b
	}
	if isNew {
		known = nil
	}
	c, err := command.PlanSave(&given, known, schedules.ID{UUID: sessionID(fmt.Sprint("schedule ", name, w.index)).UUID}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	return w.as(c)
}

// scheduleLines are the lines of schedules that the machine must show.
func (w *walker) scheduleLines() (lines []string) {
	all, err := w.machine.Schedules(schedules.Query{})
	if err != nil {
		w.Fatal(err)
	}
	for _, listed := range all.Items {
		s, records, err := w.machine.Schedule(schedules.Ref{Board: listed.Board, Name: listed.Name}, schedules.MaxSlotRecords)
		if err != nil || s.Records != len(records) {
			w.Fatalf("schedule %s: %d records of %d, %v", s.Name, len(records), s.Records, err)
		}
		var shown []*schedules.SlotRecord
		for i := range slices.Backward(records) {
			shown = append(shown, &records[i])
		}
		lines = append(lines, scheduleLine(&s, shown))
	}
	return lines
}

// deadlineOf is the deadline of a posted job.
func (m *model) deadlineOf(p *jobs.Posting) time.Time {
	switch {
	case p.DeadlineAfter == 0:
		return p.Deadline
	case m.slotOf != "" && m.now.Sub(m.slot) <= schedules.SlotGrace:
		return m.slot.Add(p.DeadlineAfter)
	case p.NotBefore.After(m.now):
		return p.NotBefore.Add(p.DeadlineAfter)
	}
	return m.now.Add(p.DeadlineAfter)
}
