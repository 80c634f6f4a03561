package schedules

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Bounds of schedules.
const (
	// SlotGrace is the delay after which a slot counts as missed. It is longer than a change of
	// leaders, so a failover misses no slot.
	SlotGrace = 30 * time.Second
	// MaxSchedules bounds the schedules of a cluster. The leader reads each schedule that is due.
	MaxSchedules = 10_000
	// MaxSlotRecords bounds the kept records of a schedule, without records of waiting slots.
	MaxSlotRecords = 1_000
	// MaxCatchUp bounds the missed slots that are posted late.
	MaxCatchUp = 1_000
	// MaxBackfill bounds the slots of one backfill.
	MaxBackfill = 1_000
	// MaxWaitingSlots bounds the waiting slots of a schedule. Further slots are skipped. A
	// backfill always fits.
	MaxWaitingSlots = 1_000
	// MaxUpcoming bounds Look.Upcoming.
	MaxUpcoming = 100
	// MaxRule bounds the bytes of a rule. Six fields with long lists fit.
	MaxRule = 1 << 10
	// MaxMissedWindow bounds Missed.Window.
	MaxMissedWindow = 365 * 24 * time.Hour

	// MaxScheduleJobs bounds the unfinished jobs of a schedule, because its next slot may have to
	// cancel all of them in one write.
	MaxScheduleJobs = 5_000
	// MaxSlotDecisions bounds the slots that one command posts, so that other commands do not
	// wait long.
	MaxSlotDecisions = 100
	// MaxSlotBytes bounds the postings that one command makes from slots. A command only names
	// slots, but each slot becomes a whole posting. Without the bound, a small log entry could
	// cause a large write.
	MaxSlotBytes = 4 << 20
	// maxWalk bounds the slots of one evaluation. More missed slots are decided in several.
	maxWalk = 10_000
)

// SlotDecision is the decision about one slot, or about consecutive slots to skip.
type SlotDecision struct {
	Slot    time.Time
	Through time.Time // the last of several slots; equals Slot for one
	Count   uint64    // number of slots
	Skip    string    // reason to skip; empty: post the slot
}

// Decide decides the slots after decided until now, and returns the next slot that it has not
// decided. If next is not after now, call Decide again. If there are no decisions and next is after
// now, no slot is due.
func (r *Rule) Decide(decided, now time.Time, missed Missed) (decisions []SlotDecision, next time.Time) {
	slots, next := r.walk(decided, now)
	more := !next.IsZero() && !next.After(now)
	late := 0
	for late < len(slots) && now.Sub(slots[late]) > SlotGrace {
		late++
	}
	first := missed.firstKept(slots[:late], now)
	if more && first > 0 {
		// The last slots are known only at the end of the walk. Skip the slots that cannot be
		// among them now.
		cut := max(0, len(slots)-MaxCatchUp)
		next, slots = slots[cut], slots[:cut]
		first = min(first, cut)
		if missed.Policy != MissedWindow {
			first = cut
		}
	}
	if first > 0 {
		decisions = append(decisions, SlotDecision{
			Slot: slots[0], Through: slots[first-1], Count: uint64(first), Skip: missed.why(),
		})
	}
	for i, slot := range slots[first:] {
		if i == MaxSlotDecisions {
			return decisions, slot
		}
		decisions = append(decisions, SlotDecision{Slot: slot, Through: slot, Count: 1})
	}
	return decisions, next
}

// walk returns the slots after decided until now, at most maxWalk, and the slot after them.
func (r *Rule) walk(decided, now time.Time) (slots []time.Time, next time.Time) {
	for next = r.Next(decided); !next.IsZero() && !next.After(now); next = r.Next(next) {
		if len(slots) == maxWalk {
			break
		}
		slots = append(slots, next)
	}
	return slots, next
}

// Span returns one decision that skips all slots after decided until now, for one reason; nil if there
// are none. It also returns the next slot. The span covers all slots, but Count is at most maxWalk.
func (r *Rule) Span(decided, now time.Time, why string) (span *SlotDecision, next time.Time) {
	slots, next := r.walk(decided, now)
	if len(slots) == 0 {
		return nil, next
	}
	span = &SlotDecision{Slot: slots[0], Through: slots[len(slots)-1], Count: uint64(len(slots)), Skip: why}
	if !next.IsZero() && !next.After(now) {
		span.Through, next = now, r.Next(now)
	}
	return span, next
}

// SlotsAtOnce returns the number of slots that one command may post, for a posting of this size.
func SlotsAtOnce(size int) int { return max(1, MaxSlotBytes/max(1, size)) }

// Between returns the slots in a time span. It returns at most most+1 slots, so that the caller sees
// that there are too many.
func (r *Rule) Between(from, to time.Time, most int) []time.Time {
	var slots []time.Time
	for next := r.Next(from.Add(-1)); !next.IsZero() && next.Before(to) && len(slots) <= most; next = r.Next(next) {
		slots = append(slots, next)
	}
	return slots
}

// firstKept returns the index of the first missed slot that is posted late.
func (m Missed) firstKept(slots []time.Time, now time.Time) int {
	switch m.Policy {
	case MissedNone:
		return len(slots)
	case MissedWindow:
		first := 0
		for first < len(slots) && now.Sub(slots[first]) > m.Window {
			first++
		}
		return first
	}
	return max(0, len(slots)-m.last())
}

func (m Missed) last() int { return max(m.Last, 1) }

// why returns the reason to skip a missed slot.
func (m Missed) why() string {
	switch m.Policy {
	case MissedNone:
		return "missed"
	case MissedWindow:
		return fmt.Sprintf("missed, and older than %s", m.Window)
	}
	return fmt.Sprintf("missed, and not among the last %d", m.last())
}

// Check checks a schedule before it is written.
func Check(l logbook.Limits, s *Schedule) error {
	if err := l.CheckName("schedule name", s.Name); err != nil {
		return err
	}
	if err := jobs.CheckOptionalName(l, "schedule board", s.Board); err != nil {
		return err
	}
	if len(s.Rule) > MaxRule {
		return &logbook.LimitError{Field: "schedule rule", Limit: MaxRule, Size: int64(len(s.Rule)), Unit: "bytes"}
	}
	if !utf8.ValidString(s.Rule) {
		return &logbook.InvalidError{Field: "schedule rule", Reason: "not UTF-8"}
	}
	if _, err := ParseRule(s); err != nil {
		return err
	}
	if err := checkPolicies(s); err != nil {
		return err
	}
	return checkTemplate(l, s)
}

func checkPolicies(s *Schedule) error {
	switch s.Overlap {
	case "", OverlapSkip, OverlapQueue, OverlapCancel, OverlapAllow:
	default:
		return &logbook.InvalidError{Field: "schedule overlap", Reason: fmt.Sprintf("%.64q is not skip, queue, cancel or allow", s.Overlap)}
	}
	m := s.Missed
	switch {
	case m.Policy != "" && m.Policy != MissedNone && m.Policy != MissedLast && m.Policy != MissedWindow:
		return &logbook.InvalidError{Field: "schedule missed", Reason: fmt.Sprintf("%.64q is not none, last or window", m.Policy)}
	case m.Last < 0 || (m.Last > 0 && m.Policy != "" && m.Policy != MissedLast):
		return &logbook.InvalidError{Field: "schedule missed_last", Reason: "negative, or set with a policy other than last"}
	case m.Last > MaxCatchUp:
		return &logbook.LimitError{Field: "schedule missed_last", Limit: MaxCatchUp, Size: int64(m.Last), Unit: "slots"}
	case m.Policy == MissedWindow && (m.Window <= 0 || m.Window > MaxMissedWindow):
		return &logbook.InvalidError{Field: "schedule missed_window", Reason: fmt.Sprintf("%s is not between 0s and %s", m.Window, MaxMissedWindow)}
	case m.Policy != MissedWindow && m.Window != 0:
		return &logbook.InvalidError{Field: "schedule missed_window", Reason: "set with a policy other than window"}
	}
	return nil
}

// checkTemplate checks the posting of a schedule, both as a template and expanded for a slot.
func checkTemplate(l logbook.Limits, s *Schedule) error {
	p := &s.Posting
	refused := func(field, why string) error {
		return &logbook.InvalidError{Field: "schedule posting " + field, Reason: why}
	}
	switch {
	case p.Err != nil:
		return p.Err
	case !p.ID.IsZero():
		return refused("id", "must not be set: each slot posts its own job")
	case p.Board != "":
		return refused("board", "must not be set: the schedule determines the board")
	case !p.NotBefore.IsZero():
		return refused("not_before", "must not be set: the slot determines the time")
	case !p.Deadline.IsZero():
		return refused("deadline", "must not be set: it would be the same time for every slot; set deadline_after, which counts from the slot")
	case p.Traceparent != "":
		return refused("traceparent", "must not be set: each slot starts its own trace")
	case p.Signal != nil:
		return refused("signal", "must not be set: each slot posts its own job")
	case !p.BookID.IsZero() || !p.Flow.IsZero():
		return refused("book_id", "must not be set: each slot creates its own book")
	case p.Book != nil && len(p.Book.Flows) != 1:
		return refused("book", fmt.Sprintf("has %d flows; it must have 1", len(p.Book.Flows)))
	}
	for _, name := range []string{SlotKey, NameKey} {
		if _, taken := p.Store[name]; taken {
			return refused("store", fmt.Sprintf("contains %q, which every slot sets; use another name", name))
		}
	}
	// The longest text that a slot can have.
	slot := time.Date(2262, 1, 1, 0, 0, 0, 123_456_789, time.UTC)
	expanded := s.Expand(NewID().SlotJob(slot), slot)
	return jobs.CheckPosting(l, &expanded)
}

// CheckCommand checks a command about a schedule before it is written.
func CheckCommand(l logbook.Limits, o *Command) error {
	switch {
	case len(o.Reason) > jobs.MaxReason:
		return &logbook.LimitError{Field: "schedule reason", Limit: jobs.MaxReason, Size: int64(len(o.Reason)), Unit: "bytes"}
	case !utf8.ValidString(o.Reason):
		return &logbook.InvalidError{Field: "schedule reason", Reason: "not UTF-8"}
	}
	if err := jobs.CheckOptionalName(l, "schedule by", o.By); err != nil {
		return err
	}
	return CheckRef(l, o.Ref)
}

// CheckRef checks the name of a schedule.
func CheckRef(l logbook.Limits, n Ref) error {
	if err := jobs.CheckOptionalName(l, "schedule board", n.Board); err != nil {
		return err
	}
	return l.CheckName("schedule name", n.Name)
}

// CheckLook checks the bounds of a Look.
func CheckLook(look Look) error {
	switch {
	case look.Upcoming < 0 || look.History < 0:
		return &logbook.InvalidError{Field: "schedule look", Reason: "negative"}
	case look.Upcoming > MaxUpcoming:
		return &logbook.LimitError{Field: "schedule upcoming", Limit: MaxUpcoming, Size: int64(look.Upcoming), Unit: "slots"}
	case look.History > MaxSlotRecords:
		return &logbook.LimitError{Field: "schedule history", Limit: MaxSlotRecords, Size: int64(look.History), Unit: "records"}
	}
	return nil
}
