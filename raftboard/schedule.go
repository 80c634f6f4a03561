package raftboard

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// SaveSchedule implements schedules.Scheduler.
func (c *Client) SaveSchedule(ctx context.Context, schedule schedules.Schedule) (schedules.Schedule, error) {
	op := operation{name: "save schedule " + schedule.Name}
	if err := schedule.Posting.Err; err != nil {
		return schedules.Schedule{}, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	message := &v1.SaveScheduleRequest{Schedule: command.ScheduleToProto(&schedule)}
	if c.options.ValueKeys != nil {
		// The node cannot check an encrypted value.
		if err := schedules.Check(c.plainLimits(), &schedule); err != nil {
			return schedules.Schedule{}, fmt.Errorf("cannot %s: %w", op.name, err)
		}
		c.encrypt(message)
	}
	answer, err := call(ctx, c.core, op, message, func(p *peer) unary[v1.SaveScheduleRequest, v1.SaveScheduleResponse] { return p.schedule.Save })
	if err != nil {
		return schedules.Schedule{}, err
	}
	saved, err := decoded(op, answer.GetSchedule(), command.ScheduleFromProto)
	if err != nil {
		return schedules.Schedule{}, err
	}
	saved.Posting = schedule.Posting // no answer repeats the posting
	return saved, nil
}

// DeleteSchedule implements schedules.Scheduler.
func (c *Client) DeleteSchedule(ctx context.Context, name schedules.Ref) error {
	message := &v1.Command{Kind: &v1.Command_DeleteSchedule{DeleteSchedule: &v1.DeleteScheduleCommand{Board: name.Board, Name: name.Name}}}
	return c.remove(ctx, "delete schedule "+name.Name, message, jobs.ErrNotFound)
}

// Schedule implements schedules.Scheduler.
func (c *Client) Schedule(ctx context.Context, name schedules.Ref, look schedules.Look) (schedules.Report, error) {
	op := operation{name: "read schedule " + name.Name, reads: true, stale: c.stale}
	if err := schedules.CheckLook(look); err != nil {
		return schedules.Report{}, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	request := &v1.GetScheduleRequest{
		Board: name.Board, Name: name.Name, Upcoming: uint32(look.Upcoming), History: uint32(look.History), Stale: c.stale,
	}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetScheduleRequest, v1.GetScheduleResponse] { return p.schedule.Get })
	if err != nil {
		return schedules.Report{}, err
	}
	return decoded(op, answer, readReport)
}

func readReport(answer *v1.GetScheduleResponse) (report schedules.Report, err error) {
	if report.Schedule, err = command.ScheduleFromProto(answer.GetSchedule()); err != nil {
		return report, err
	}
	if report.Upcoming, err = command.TimesFromProto("upcoming", answer.GetUpcoming()); err != nil {
		return report, err
	}
	report.History, err = command.SlotRecordsFromProto(answer.GetHistory())
	return report, err
}

// Schedules implements schedules.Scheduler.
func (c *Client) Schedules(ctx context.Context, query schedules.Query) (jobs.Page[schedules.Schedule], error) {
	op := operation{name: "list schedules", reads: true, stale: c.stale}
	request := &v1.ListSchedulesRequest{Board: query.Board, After: query.After, Limit: pageLimit(query.Limit), Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListSchedulesRequest, v1.ListSchedulesResponse] { return p.schedule.List })
	return paged(op, answer.GetSchedules(), answer.GetNext(), command.ScheduleFromProto, err)
}

// PauseSchedule implements schedules.Scheduler.
func (c *Client) PauseSchedule(ctx context.Context, request schedules.Command) error {
	op := operation{name: "pause schedule " + request.Name}
	if err := schedules.CheckCommand(logbook.MaxLimits, &request); err != nil {
		return fmt.Errorf("cannot %s: %w", op.name, err)
	}
	message := &v1.PauseScheduleCommand{Board: request.Board, Name: request.Name, By: request.By, Reason: request.Reason}
	_, err := call(ctx, c.core, op, message, func(p *peer) unary[v1.PauseScheduleCommand, v1.Done] { return p.schedule.Pause })
	return err
}

// ResumeSchedule implements schedules.Scheduler.
func (c *Client) ResumeSchedule(ctx context.Context, request schedules.Command) error {
	op := operation{name: "resume schedule " + request.Name}
	message := &v1.ResumeScheduleRequest{Board: request.Board, Name: request.Name}
	_, err := call(ctx, c.core, op, message, func(p *peer) unary[v1.ResumeScheduleRequest, v1.Done] { return p.schedule.Resume })
	return err
}

// RunSchedule implements schedules.Scheduler.
func (c *Client) RunSchedule(ctx context.Context, request schedules.Command) (schedules.SlotRecord, error) {
	op := operation{name: "run schedule " + request.Name}
	if request.Nonce.IsZero() {
		request.Nonce = jobs.NewNonce()
	}
	message := &v1.RunScheduleRequest{Board: request.Board, Name: request.Name, Nonce: request.Nonce.String(), By: request.By}
	answer, err := call(ctx, c.core, op, message, func(p *peer) unary[v1.RunScheduleRequest, v1.RunScheduleResponse] { return p.schedule.Run })
	if err != nil {
		return schedules.SlotRecord{}, err
	}
	return decoded(op, answer.GetSlot(), command.SlotRecordFromProto)
}

// BackfillSchedule implements schedules.Scheduler, with as many calls as needed.
func (c *Client) BackfillSchedule(ctx context.Context, backfill schedules.Backfill) ([]schedules.SlotRecord, error) {
	op := operation{name: "backfill schedule " + backfill.Name}
	if backfill.Nonce.IsZero() {
		backfill.Nonce = jobs.NewNonce()
	}
	message := &v1.BackfillScheduleRequest{Board: backfill.Board, Name: backfill.Name, By: backfill.By, Nonce: backfill.Nonce.String()}
	for _, bound := range []time.Time{backfill.From, backfill.To} {
		if _, err := command.TimeFromProto("backfill from or to", command.TimeToProto(bound)); err != nil {
			return nil, fmt.Errorf("cannot %s: %w", op.name, err)
		}
	}
	message.From, message.To = command.TimeToProto(backfill.From), command.TimeToProto(backfill.To)
	var records []schedules.SlotRecord
	for {
		answer, err := call(ctx, c.core, op, message, func(p *peer) unary[v1.BackfillScheduleRequest, v1.BackfillScheduleResponse] {
			return p.schedule.Backfill
		})
		if err != nil {
			return nil, err
		}
		part, err := decoded(op, answer.GetSlots(), command.SlotRecordsFromProto)
		if err != nil {
			return nil, err
		}
		records = append(records, part...)
		switch {
		case answer.GetNext() == nil:
			return records, nil
		case len(part) == 0:
			return nil, endless(op)
		}
		message.From = answer.GetNext()
	}
}
