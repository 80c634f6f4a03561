// Package schedules describes schedules: rules that say when, postings that say what,
// the slots at which jobs are due, and Scheduler, the contract of a board that keeps
// them. A Rule decides on its own, without a clock: the leader asks it which slots have
// come, and its answers go into the log.
package schedules

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ID names a schedule for as long as it exists. One that is deleted
// and made anew under its name has another id, so that its slots are new jobs.
type ID struct{ uuid.UUID }

// NewID makes an id that sorts by the time it was made (UUID version 7).
func NewID() ID { return ID{uuid.Must(uuid.NewV7())} }

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id.UUID == uuid.Nil }

// SlotJob is the id of the job of a slot. It is computed from schedule and slot alone
// (UUID version 5), so there is one job, however often a slot is posted and by which
// leader.
func (id ID) SlotJob(slot time.Time) jobs.JobID { return id.derived("slot " + SlotText(slot)) }

// RunJob is the id of a job that was asked for out of turn.
func (id ID) RunJob(nonce jobs.Nonce) jobs.JobID { return id.derived("run " + nonce.String()) }

func (id ID) derived(of string) jobs.JobID {
	return jobs.JobID{UUID: uuid.NewSHA1(id.UUID, []byte(of))}
}

// SlotText writes a slot as the store of its job has it: RFC 3339, in UTC.
func SlotText(slot time.Time) string { return slot.UTC().Format(time.RFC3339Nano) }

// Values that each slot adds to the store of its job. They replace defaults of the flow;
// a posting whose own store has one of them is refused.
const (
	SlotKey = "slot"     // the slot, as SlotText writes it
	NameKey = "schedule" // the name of the schedule
)

// Overlap says what becomes of a slot whose time comes while a job of the same
// schedule is not finished.
type Overlap string

// The overlap policies. The zero one is OverlapSkip.
const (
	OverlapSkip   Overlap = "skip"   // the slot is skipped
	OverlapQueue  Overlap = "queue"  // it waits, and is posted when all before it are finished
	OverlapCancel Overlap = "cancel" // the others are cancelled and undone; it is posted when they are
	OverlapAllow  Overlap = "allow"  // it is posted beside the others
)

// MissedPolicy says which of the slots are posted late that were missed because
// the cluster was down: slots that are decided more than SlotGrace after
// their time.
type MissedPolicy string

// The policies for missed slots. The zero one is MissedLast with 1.
const (
	MissedNone   MissedPolicy = "none"   // none of them
	MissedLast   MissedPolicy = "last"   // the last few
	MissedWindow MissedPolicy = "window" // all that are not older than a time
)

// Missed is a policy for missed slots with its number.
type Missed struct {
	Policy MissedPolicy
	Last   int           // of MissedLast: how many; 0: 1
	Window time.Duration // of MissedWindow
}

// Schedule posts a job at every slot of a rule. The board sets the fields below the
// line.
type Schedule struct {
	Board string // empty: DefaultBoard
	Name  string // unique on its board
	// Rule says when: see ParseRule. Zone is the IANA name of the time zone in
	// which it is read; empty: UTC.
	Rule string
	Zone string
	// Posting is what every slot posts. It has no id, board, time or saved book:
	// see Expand. Without a name the job has that of the schedule.
	Posting jobs.Posting
	Overlap Overlap
	Missed  Missed
	Start   time.Time // no slot is before it
	End     time.Time // no slot is after it

	// ────────────────────────────────────────────────────────────────────────

	ID        ID
	Revision  uint64 // raised by every change of the schedule
	CreatedAt time.Time
	UpdatedAt time.Time
	Decided   time.Time // every slot up to this has been decided
	Next      time.Time // the next slot; zero: there is none
	Pause     *Pause    // nil: it is not paused
	Active    int       // its unfinished jobs
	Waiting   int       // slots that wait for them
	Posted    uint64    // jobs, in all
	Skipped   uint64    // slots, in all
	Records   int       // of its slots, that are kept
	SavedBy   string    // the principal that has defined it last, in whose name its jobs are posted; empty without access control
	Error     string    // why the node that answered cannot evaluate the rule: as a leader it posts no jobs of the schedule; empty: it can
}

// SameTimes reports whether two schedules have the same slots.
func (s *Schedule) SameTimes(other *Schedule) bool {
	return s.Rule == other.Rule && s.Zone == other.Zone && s.Start.Equal(other.Start) && s.End.Equal(other.End)
}

// Upcoming are the next slots of a schedule that have not been decided, as many
// as there are up to most. Of a paused one: those that would come if it were
// resumed now.
func (s *Schedule) Upcoming(now time.Time, most int) ([]time.Time, error) {
	rule, err := ParseRule(s)
	if err != nil {
		return nil, err
	}
	after := s.Decided
	if s.Pause != nil && after.Before(now) {
		after = now
	}
	return rule.Upcoming(after, most), nil
}

// Pause is who has paused a schedule, when and why.
type Pause struct {
	By     string
	Reason string
	At     time.Time
}

// Expand makes the posting of a slot. It is a function of the schedule, the id
// and the slot alone: every id in it is derived from the job's. The store gets
// SlotKey and NameKey; the details are exactly those of the schedule's posting.
func (s *Schedule) Expand(id jobs.JobID, slot time.Time) jobs.Posting {
	p := s.Posting
	p.ID, p.Board = id, s.Board
	if p.Name == "" {
		p.Name = s.Name
	}
	const added = 2
	p.Store = make(logbook.Values, len(s.Posting.Store)+added)
	for name, value := range s.Posting.Store {
		p.Store[name] = value
	}
	p.Store[SlotKey], p.Store[NameKey] = quoted(SlotText(slot)), quoted(s.Name)
	if s.Posting.Book != nil {
		book := *s.Posting.Book
		book.ID = logbook.BookID{UUID: uuid.NewSHA1(id.UUID, []byte("book"))}
		book.Flows = append([]logbook.FlowDetail(nil), book.Flows...)
		for i := range book.Flows {
			book.Flows[i].ID = logbook.FlowID{UUID: uuid.NewSHA1(id.UUID, []byte("flow"))}
			book.Flows[i].Book = book.ID
		}
		p.Book = &book
	}
	return p
}

func quoted(text string) json.RawMessage {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic("internal error: a text cannot be quoted: " + err.Error())
	}
	return encoded
}

// SlotState is what became of a slot.
type SlotState string

// The states of a slot.
const (
	SlotPosted  SlotState = "posted"  // there is a job
	SlotWaiting SlotState = "waiting" // there will be, when others are finished
	SlotSkipped SlotState = "skipped" // there is none; Reason says why
)

// Trigger is what brought a slot about.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule" // its time had come
	TriggerRun      Trigger = "run"      // somebody asked for a job now
	TriggerBackfill Trigger = "backfill" // somebody asked for slots of the past
)

// SlotRecord says what became of a slot, or of several on end that were skipped
// for the same reason.
type SlotRecord struct {
	Number  uint64 // counts the records of a schedule
	Slot    time.Time
	Through time.Time // the last of several
	Count   uint64    // of several: how many
	State   SlotState
	Job     jobs.JobID
	Reason  string
	At      time.Time // when it came to be so
	Trigger Trigger
	By      string // who, of run and backfill
	// Request is the nonce of a run or a backfill, by which a repeat is known
	// as long as the record is kept, also if its posting was refused.
	Request jobs.Nonce
}

// Slots is how many slots the record is about.
func (r *SlotRecord) Slots() uint64 { return max(r.Count, 1) }

// Ref is how a schedule is found.
type Ref struct {
	Board string // empty: DefaultBoard
	Name  string
}

// Look says what to read of a schedule besides itself.
type Look struct {
	Upcoming int // how many of the next slots; at most MaxUpcoming
	History  int // how many of the latest records; at most MaxSlotRecords
}

// Report is a schedule with what was asked for.
type Report struct {
	Schedule Schedule
	Upcoming []time.Time  // earliest first
	History  []SlotRecord // the latest first
}

// Query selects schedules, board by board, and those of a board in the
// order of their names.
type Query struct {
	Board string // empty: any
	After string // Page.Next of the page before; empty: from the first one on
	Limit int    // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Command is how a person steers a schedule.
type Command struct {
	Ref
	By     string     // who, for people
	Reason string     // of a pause: one sentence, for people
	Nonce  jobs.Nonce // of RunSchedule, the same for its repeats; zero: one is made, which no later call repeats
}

// Backfill asks for the slots of a time in the past.
type Backfill struct {
	Ref
	From, To time.Time // From is included, To is not
	By       string
	Nonce    jobs.Nonce // the same for its repeats; zero: one is made, which no later call repeats
}

// Scheduler keeps schedules. Its methods may be called concurrently; errors, durability
// and repeats are as described at Board.
//
// Each slot is posted once, or recorded as skipped with the reason, also across changes
// of the leader: record and posting are one write, and the state machine takes a slot
// only after the last one and only from the present leader.
type Scheduler interface {
	// SaveSchedule makes a schedule, or replaces the one of its board and name and
	// keeps its history. Slots begin with the time of the call. To save an unchanged
	// schedule changes nothing.
	SaveSchedule(ctx context.Context, schedule Schedule) (Schedule, error)
	// DeleteSchedule forgets a schedule with its history. Its jobs stay, and
	// slots that wait are not posted. ErrNotFound.
	DeleteSchedule(ctx context.Context, name Ref) error
	// Schedule reads a schedule. ErrNotFound.
	Schedule(ctx context.Context, name Ref, look Look) (Report, error)
	// Schedules reads a page of schedules without their postings.
	Schedules(ctx context.Context, query Query) (jobs.Page[Schedule], error)
	// PauseSchedule stops a schedule from posting until it is resumed. A
	// schedule that is paused already stays so, with its reason. ErrNotFound.
	PauseSchedule(ctx context.Context, request Command) error
	// ResumeSchedule ends a pause. The slots that it has covered are skipped.
	// Nothing happens to one that is not paused. ErrNotFound.
	ResumeSchedule(ctx context.Context, request Command) error
	// RunSchedule posts a job now, regardless of rule, overlap policy and pause. If the
	// board refuses the posting, the answer is a skipped slot with the reason. A repeat
	// with the same nonce has the answer of the first call. ErrNotFound.
	RunSchedule(ctx context.Context, request Command) (SlotRecord, error)
	// BackfillSchedule posts the slots of a time in the past that have no job,
	// and answers with a record for each slot. Unless overlap is allowed they
	// run one after the other. A slot that was skipped is posted, unless that is
	// a refusal of a call with the same nonce. ErrNotFound; ErrInvalid if there
	// is no slot; ErrLimit over MaxBackfill slots. Where overlap is allowed, large
	// postings take several writes (MaxSlotBytes): after an error some of them
	// may have been made, and a repeat with the same nonce makes the others.
	BackfillSchedule(ctx context.Context, backfill Backfill) ([]SlotRecord, error)
}
