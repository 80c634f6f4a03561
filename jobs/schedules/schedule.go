// Package schedules defines schedules, and Scheduler, the contract of a board that keeps them.
//
// A Schedule has a rule and a posting. Each fire time of the rule is a slot, and for each slot the
// board posts a job. A Rule reads no clock: the leader asks it for the slots until now, and
// the log stores the leader's decisions.
package schedules

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ID names a schedule until it is deleted. A new schedule with the name of a deleted one has
// another id, so its slots are new jobs.
type ID struct{ uuid.UUID }

// NewID makes a UUID of version 7, which sorts by creation time.
func NewID() ID { return ID{uuid.Must(uuid.NewV7())} }

// IsZero reports whether the id is unset.
func (id ID) IsZero() bool { return id.UUID == uuid.Nil }

// SlotJob returns the id of the job of a slot (UUID version 5). It depends only on the schedule and
// the slot, so a slot has one job, even if several leaders post it.
func (id ID) SlotJob(slot time.Time) jobs.JobID { return id.derived("slot " + SlotText(slot)) }

// RunJob returns the id of the job of a RunSchedule call.
func (id ID) RunJob(nonce jobs.Nonce) jobs.JobID { return id.derived("run " + nonce.String()) }

func (id ID) derived(of string) jobs.JobID {
	return jobs.JobID{UUID: uuid.NewSHA1(id.UUID, []byte(of))}
}

// SlotText returns the text form of a slot in the store of its job: RFC 3339, in UTC.
func SlotText(slot time.Time) string { return slot.UTC().Format(time.RFC3339Nano) }

// The names of the values that each slot adds to the store of its job. They override the flow's
// store. Check refuses a posting whose store has one of these names.
const (
	SlotKey = "slot"     // the slot, as SlotText writes it
	NameKey = "schedule" // the name of the schedule
)

// Overlap decides what happens at a slot while an earlier job of the schedule is unfinished.
type Overlap string

// The overlap policies. The default is OverlapSkip.
const (
	OverlapSkip   Overlap = "skip"   // the slot is skipped
	OverlapQueue  Overlap = "queue"  // the slot waits until all earlier jobs are finished
	OverlapCancel Overlap = "cancel" // the earlier jobs are cancelled and undone; then the slot is posted
	OverlapAllow  Overlap = "allow"  // the slot is posted
)

// MissedPolicy decides which missed slots are posted late. A slot is missed if it is decided more
// than SlotGrace after its time, for example because the cluster was down.
type MissedPolicy string

// The policies for missed slots. The default is MissedLast with 1.
const (
	MissedNone   MissedPolicy = "none"   // no missed slot is posted
	MissedLast   MissedPolicy = "last"   // the latest Missed.Last slots are posted
	MissedWindow MissedPolicy = "window" // slots not older than Missed.Window are posted
)

// Missed is a policy for missed slots with its parameter.
type Missed struct {
	Policy MissedPolicy
	Last   int           // only for MissedLast: number of slots; 0: 1
	Window time.Duration // only for MissedWindow
}

// Schedule posts a job at every slot of a rule. Callers set the fields above the line, and the board
// sets the fields below it.
type Schedule struct {
	Board string // empty: DefaultBoard
	Name  string // unique on its board
	// Rule computes the slots: see ParseRule. Zone is the IANA name of its time zone; empty:
	// UTC.
	Rule string
	Zone string
	// Posting is the template of the jobs. It has no id, board, times, traceparent or saved book:
	// see Expand. Without a name, the job has the name of the schedule.
	Posting jobs.Posting
	Overlap Overlap
	Missed  Missed
	Start   time.Time // earliest slot; zero: unbounded
	End     time.Time // latest slot; zero: unbounded

	// ────────────────────────────────────────────────────────────────────────

	ID        ID
	Revision  uint64 // raised by every change of the schedule
	CreatedAt time.Time
	UpdatedAt time.Time
	Decided   time.Time // every slot until this time, inclusive, is decided
	Next      time.Time // next slot; zero: none
	Pause     *Pause    // nil: not paused
	Active    int       // unfinished jobs
	Waiting   int       // slots that wait for unfinished jobs
	Posted    uint64    // total of posted jobs
	Skipped   uint64    // total of skipped slots
	Records   int       // kept slot records
	SavedBy   string    // the principal that saved the schedule last and posts its jobs; empty without access control
	Error     string    // why the answering node cannot evaluate the rule: as the leader, it would post no jobs; empty: it can
}

// SameTimes reports whether two schedules have the same slots.
func (s *Schedule) SameTimes(other *Schedule) bool {
	return s.Rule == other.Rule && s.Zone == other.Zone && s.Start.Equal(other.Start) && s.End.Equal(other.End)
}

// Upcoming returns the next undecided slots, at most most. For a paused schedule, it returns the next
// slots after a resumption now.
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

// Pause is the pause of a schedule: operator, reason and time.
type Pause struct {
	By     string
	Reason string
	At     time.Time
}

// Expand returns the posting of a slot. The posting depends only on the schedule, the id and the
// slot: all ids in it are derived from the job's id. Its store has SlotKey and NameKey in addition.
// Its details equal the details of the schedule's posting.
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

// SlotState is the decision about a slot.
type SlotState string

// The states of a slot.
const (
	SlotPosted  SlotState = "posted"  // the job was posted
	SlotWaiting SlotState = "waiting" // the slot waits for earlier jobs
	SlotSkipped SlotState = "skipped" // no job, for the Reason
)

// Trigger is the origin of a slot record.
type Trigger string

// The triggers.
const (
	TriggerSchedule Trigger = "schedule" // the slot of the rule
	TriggerRun      Trigger = "run"      // RunSchedule
	TriggerBackfill Trigger = "backfill" // BackfillSchedule
)

// SlotRecord is the decision about one slot, or about consecutive slots that were skipped for the
// same reason.
type SlotRecord struct {
	Number  uint64 // number of the record in its schedule
	Slot    time.Time
	Through time.Time // the last of several slots
	Count   uint64    // number of several slots
	State   SlotState
	Job     jobs.JobID
	Reason  string
	At      time.Time // when the slot got its State
	Trigger Trigger
	By      string // only for run and backfill: the operator
	// Request is only for run and backfill: the nonce. While the record is stored, it identifies a
	// repeat, even if the board refused the posting.
	Request jobs.Nonce
}

// Slots returns the number of slots of the record.
func (r *SlotRecord) Slots() uint64 { return max(r.Count, 1) }

// Ref names a schedule.
type Ref struct {
	Board string // empty: DefaultBoard
	Name  string
}

// Look selects the slots and records to read with a schedule.
type Look struct {
	Upcoming int // number of next slots; at most MaxUpcoming
	History  int // number of latest records; at most MaxSlotRecords
}

// Report is a schedule with the slots and records of a Look.
type Report struct {
	Schedule Schedule
	Upcoming []time.Time  // earliest first
	History  []SlotRecord // the latest first
}

// Query selects schedules. They are sorted by board and name.
type Query struct {
	Board string // empty: any
	After string // Page.Next of the previous page; empty: first page
	Limit int    // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Command is an operator's request about a schedule.
type Command struct {
	Ref
	By     string     // the operator, for display
	Reason string     // only for a pause: one sentence, for display
	Nonce  jobs.Nonce // only for RunSchedule: equal for all repeats; zero: the client makes one for this call
}

// Backfill selects past slots to post.
type Backfill struct {
	Ref
	From, To time.Time // From is inclusive, To is exclusive
	By       string
	Nonce    jobs.Nonce // equal for all repeats; zero: the client makes one for this call
}

// Scheduler keeps schedules. The rules of jobs.Board for concurrency, durability, errors and repeats
// apply.
//
// Each slot is posted once, or recorded as skipped with a reason, even across changes of the leader.
// Record and posting are one write, and the board accepts slots only in order, and only from the
// current leader.
type Scheduler interface {
	// SaveSchedule creates a schedule, or replaces the schedule with its board and name. The history
	// of a replaced schedule stays. Slots start at the time of the call. Saving an unchanged
	// schedule changes nothing. ErrInvalid, ErrLimit.
	SaveSchedule(ctx context.Context, schedule Schedule) (Schedule, error)
	// DeleteSchedule removes a schedule with its history. Its jobs stay, and waiting slots are not
	// posted. ErrNotFound.
	DeleteSchedule(ctx context.Context, name Ref) error
	// Schedule reads a schedule. ErrNotFound.
	Schedule(ctx context.Context, name Ref, look Look) (Report, error)
	// Schedules reads a page of schedules without their postings.
	Schedules(ctx context.Context, query Query) (jobs.Page[Schedule], error)
	// PauseSchedule stops a schedule from posting jobs until ResumeSchedule. Pausing a paused schedule
	// changes nothing, not even its reason. ErrNotFound.
	PauseSchedule(ctx context.Context, request Command) error
	// ResumeSchedule ends a pause. The slots during the pause are skipped. Resuming a schedule that is
	// not paused changes nothing. ErrNotFound.
	ResumeSchedule(ctx context.Context, request Command) error
	// RunSchedule posts a job now, regardless of rule, overlap policy and pause. If the
	// board refuses the posting, the result is a skipped slot with the reason. A repeat
	// with the same nonce returns the result of the first call. ErrNotFound.
	RunSchedule(ctx context.Context, request Command) (SlotRecord, error)
	// BackfillSchedule posts jobs for past slots without a job, and returns a record for each slot of
	// the time span. Without OverlapAllow, the jobs run one after the other. Skipped slots are posted
	// too, except slots that an earlier call with the same nonce skipped.
	//
	// ErrNotFound; ErrInvalid if the time span has no slot; ErrLimit over MaxBackfill slots. With
	// OverlapAllow, large postings take several writes: see MaxSlotBytes. After an error, some jobs may
	// be posted, and a repeat with the same nonce posts the others.
	BackfillSchedule(ctx context.Context, backfill Backfill) ([]SlotRecord, error)
}
