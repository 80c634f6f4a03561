package fsmtest

import (
	"context"
	"errors"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// schedulesAtOnce limits the schedules whose slots one wake-up decides. The rest stay due, and
// cause another wake-up at once.
const schedulesAtOnce = 64

// SaveSchedule makes a schedule, or replaces it.
func (b *Board) SaveSchedule(ctx context.Context, schedule schedules.Schedule) (schedules.Schedule, error) {
	return b.SaveScheduleSince(ctx, schedule, time.Now())
}

// SaveScheduleSince saves a schedule as if it had been saved at a time in the past, and as if no
// leader had posted its slots since then.
func (b *Board) SaveScheduleSince(ctx context.Context, schedule schedules.Schedule, since time.Time) (schedules.Schedule, error) {
	if err := schedules.Check(b.options.Limits, &schedule); err != nil {
		return schedules.Schedule{}, err
	}
	name := schedules.Ref{Board: schedule.Board, Name: schedule.Name}
	result, err := b.plan(ctx, name, func(known *schedules.Schedule) (*v1.Command, error) {
		return command.PlanSave(&schedule, known, schedules.NewID(), since)
	})
	if err != nil {
		return schedules.Schedule{}, err
	}
	saved, err := command.ScheduleFromProto(result.GetSchedule().GetSchedule())
	saved.Posting = schedule.Posting
	return saved, err
}

// plan computes a command about a schedule, and applies it before anything can change.
// If there is nothing to do, it returns neither a command nor an error.
func (b *Board) plan(ctx context.Context, name schedules.Ref, plan func(known *schedules.Schedule) (*v1.Command, error)) (*v1.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var known *schedules.Schedule
	found, _, err := b.machine.Schedule(name, 0)
	switch {
	case err == nil:
		known = &found
	case !errors.Is(err, logbook.ErrNotFound):
		return nil, err
	}
	c, err := plan(known)
	if err != nil || c == nil {
		return nil, err
	}
	if err := command.Check(b.options.Limits, c); err != nil {
		return nil, err
	}
	results, err := b.proposeLocked(c)
	if err != nil {
		return nil, err
	}
	return results[0], command.ErrorFromProto(results[0].GetError())
}

// planKnown is plan for a schedule that must exist.
func (b *Board) planKnown(ctx context.Context, name schedules.Ref, plan func(known *schedules.Schedule) (*v1.Command, error)) (*v1.Result, error) {
	return b.plan(ctx, name, func(known *schedules.Schedule) (*v1.Command, error) {
		if known == nil {
			return nil, jobs.ErrNotFound
		}
		return plan(known)
	})
}

// DeleteSchedule forgets a schedule with its history.
func (b *Board) DeleteSchedule(ctx context.Context, name schedules.Ref) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DeleteSchedule{DeleteSchedule: &v1.DeleteScheduleCommand{
		Board: name.Board, Name: name.Name,
	}}})
	return err
}

// Schedule reads a schedule.
func (b *Board) Schedule(ctx context.Context, name schedules.Ref, look schedules.Look) (schedules.Report, error) {
	if err := errors.Join(ctx.Err(), schedules.CheckLook(look)); err != nil {
		return schedules.Report{}, err
	}
	var report schedules.Report
	var err error
	if report.Schedule, report.History, err = b.machine.Schedule(name, look.History); err != nil || look.Upcoming == 0 {
		return report, err
	}
	report.Upcoming, err = report.Schedule.Upcoming(time.Now(), look.Upcoming)
	return report, err
}

// Schedules reads a page of schedules.
func (b *Board) Schedules(ctx context.Context, query schedules.Query) (jobs.Page[schedules.Schedule], error) {
	if err := ctx.Err(); err != nil {
		return jobs.Page[schedules.Schedule]{}, err
	}
	return b.machine.Schedules(query)
}

// PauseSchedule stops a schedule from posting.
func (b *Board) PauseSchedule(ctx context.Context, order schedules.Command) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_PauseSchedule{PauseSchedule: &v1.PauseScheduleCommand{
		Board: order.Board, Name: order.Name, By: order.By, Reason: order.Reason,
	}}})
	return err
}

// ResumeSchedule ends a pause.
func (b *Board) ResumeSchedule(ctx context.Context, order schedules.Command) error {
	_, err := b.planKnown(ctx, order.Ref, func(known *schedules.Schedule) (*v1.Command, error) {
		return command.PlanResume(known, time.Now())
	})
	return err
}

// RunSchedule posts a job now.
func (b *Board) RunSchedule(ctx context.Context, order schedules.Command) (schedules.SlotRecord, error) {
	if order.Nonce.IsZero() {
		order.Nonce = jobs.NewNonce()
	}
	result, err := b.run(ctx, &v1.Command{Kind: &v1.Command_RunSchedule{RunSchedule: &v1.RunScheduleCommand{
		Board: order.Board, Name: order.Name, Nonce: order.Nonce.String(), By: order.By,
	}}})
	if err != nil {
		return schedules.SlotRecord{}, err
	}
	return command.SlotRecordFromProto(result.GetSchedule().GetSlots()[0])
}

// BackfillSchedule posts the slots of a time in the past.
func (b *Board) BackfillSchedule(ctx context.Context, backfill schedules.Backfill) ([]schedules.SlotRecord, error) {
	if backfill.Nonce.IsZero() {
		backfill.Nonce = jobs.NewNonce()
	}
	var records []schedules.SlotRecord
	for {
		var next time.Time
		result, err := b.planKnown(ctx, backfill.Ref, func(known *schedules.Schedule) (c *v1.Command, err error) {
			c, next, err = command.PlanBackfill(known, &backfill)
			return c, err
		})
		if err != nil {
			return nil, err
		}
		part, err := command.SlotRecordsFromProto(result.GetSchedule().GetSlots())
		if records = append(records, part...); err != nil || next.IsZero() {
			return records, err
		}
		backfill.From = next
	}
}

// fireLocked decides the slots that are due.
func (b *Board) fireLocked(now time.Time) error {
	due, err := b.machine.DueSchedules(now, schedulesAtOnce)
	if err != nil {
		return err
	}
	for i := range due {
		rule, err := schedules.ParseRule(&due[i])
		if err != nil {
			return err
		}
		results, err := b.proposeLocked(command.PlanFire(&due[i], rule, b.epoch, now))
		if err == nil {
			err = command.ErrorFromProto(results[0].GetError())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
