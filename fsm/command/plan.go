package command

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// The state machine reads no rule and no zone. The leader computes the slots of a call from the
// stored schedule and the time, and puts them into the command. A command names the revision of the
// schedule from which it was computed. If the revision has changed, the command is refused with
// ErrConflict, and must be computed again.

// PlanSave decides the start of a schedule's slots, and its first slot. known is the schedule that
// given replaces; nil: there is none, and given gets the id.
func PlanSave(given, known *schedules.Schedule, id schedules.ID, now time.Time) (*v1.Command, error) {
	rule, err := schedules.ParseRule(given)
	if err != nil {
		return nil, err
	}
	c := &v1.SaveScheduleCommand{Schedule: ScheduleToProto(given)}
	c.Schedule.Id = id.String()
	if known != nil {
		c.Revision = known.Revision
		if now.Before(known.Decided) {
			now = known.Decided
		}
		if !given.SameTimes(known) {
			if c.Skipped, _, err = spanOf(known, now, "the schedule was changed"); err != nil {
				return nil, err
			}
		}
	}
	c.From, c.Next = TimeToProto(now), TimeToProto(rule.Next(now))
	return &v1.Command{Kind: &v1.Command_SaveSchedule{SaveSchedule: c}}, nil
}

// spanOf returns the past undecided slots of a schedule, which must be skipped, and the next
// slot after them.
func spanOf(schedule *schedules.Schedule, now time.Time, why string) (*v1.SlotDecision, time.Time, error) {
	rule, err := schedules.ParseRule(schedule)
	if err != nil {
		return nil, time.Time{}, err
	}
	span, next := rule.Span(schedule.Decided, now, why)
	return SlotDecisionToProto(span), next, nil
}

// PlanResume finds the slots that passed during a pause. Nil: the schedule is not paused, and
// there is nothing to do.
func PlanResume(known *schedules.Schedule, now time.Time) (*v1.Command, error) {
	if known.Pause == nil {
		return nil, nil
	}
	skipped, next, err := spanOf(known, now, "the schedule was paused")
	if err != nil {
		return nil, err
	}
	return &v1.Command{Kind: &v1.Command_ResumeSchedule{ResumeSchedule: &v1.ResumeScheduleCommand{
		Board: known.Board, Name: known.Name, Revision: known.Revision, Skipped: skipped, Next: TimeToProto(next),
	}}}, nil
}

// PlanBackfill finds the slots of a period, up to the maximum of one command. next is the start of
// the remaining period, or zero if no slots remain. Slots after the latest decision of the schedule
// are excluded: the schedule posts them itself. It returns ErrInvalid if there are no slots, and
// ErrLimit if there are more than one backfill posts.
func PlanBackfill(known *schedules.Schedule, backfill *schedules.Backfill) (c *v1.Command, next time.Time, err error) {
	rule, err := schedules.ParseRule(known)
	if err != nil {
		return nil, next, err
	}
	to := backfill.To
	if past := known.Decided.Add(1); to.After(past) {
		to = past
	}
	slots := rule.Between(backfill.From, to, schedules.MaxBackfill)
	switch n := len(slots); {
	case n == 0:
		return nil, next, &logbook.InvalidError{Field: "backfill from", Reason: fmt.Sprintf(
			"the schedule has no past slot between %s and %s", schedules.SlotText(backfill.From), schedules.SlotText(backfill.To))}
	case n > schedules.MaxBackfill:
		return nil, next, &logbook.LimitError{Field: "backfill slots", Limit: schedules.MaxBackfill, Size: int64(n), Unit: "slots or more"}
	}
	if known.Overlap == schedules.OverlapAllow { // otherwise one is posted, and the others wait
		if most := schedules.SlotsAtOnce(SizeOf(PostingToProto(&known.Posting))); most < len(slots) {
			slots, next = slots[:most], slots[most]
		}
	}
	return &v1.Command{Kind: &v1.Command_BackfillSchedule{BackfillSchedule: &v1.BackfillScheduleCommand{
		Board: known.Board, Name: known.Name, Revision: known.Revision, Slots: TimesToProto(slots),
		By: backfill.By, Nonce: idText(backfill.Nonce.UUID),
	}}}, next, nil
}

// PlanFire decides the due slots of a schedule. rule is its rule.
func PlanFire(s *schedules.Schedule, rule *schedules.Rule, epoch uint64, now time.Time) *v1.Command {
	decisions, next := rule.Decide(s.Decided, now, s.Missed)
	c := &v1.FireScheduleCommand{TimerEpoch: epoch, Schedule: s.ID.String(), Revision: s.Revision, Next: TimeToProto(next)}
	for i := range decisions {
		c.Decisions = append(c.Decisions, SlotDecisionToProto(&decisions[i]))
	}
	return &v1.Command{Kind: &v1.Command_FireSchedule{FireSchedule: c}}
}
