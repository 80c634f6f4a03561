package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/clock"
)

// planTries limits the plans for one change of a schedule. A plan is refused if the schedule has
// changed since it was read.
const planTries = 5

// scheduleService answers calls about schedules. The leader computes the parts that depend on time
// zones; its commands carry the result.
type scheduleService struct {
	limits    logbook.Limits
	checks    *flowChecks
	machine   *fsm.Machine
	clock     *clock.Clock
	submit    *Submitter
	backfills chan struct{} // holds a value during a backfill
}

// save creates or replaces a schedule.
func (s *scheduleService) save(ctx context.Context, message *conductordv1.SaveScheduleRequest) (*conductordv1.SaveScheduleResponse, uint64, error) {
	given, err := command.ScheduleFromProto(message.Schedule)
	if err != nil {
		return nil, 0, err
	}
	index, result, err := s.planned(ctx, func(now time.Time) (*conductordv1.Command, error) {
		return s.planSave(ctx, &given, now)
	})
	return &conductordv1.SaveScheduleResponse{Schedule: result.GetSchedule().GetSchedule()}, index, err
}

// planned plans a command and replicates it. If the schedule has changed meanwhile, planned plans
// again.
func (s *scheduleService) planned(ctx context.Context, plan func(now time.Time) (*conductordv1.Command, error)) (uint64, *conductordv1.Result, error) {
	for try := 1; ; try++ {
		c, err := plan(s.clock.Now())
		if err != nil {
			return 0, nil, err
		}
		if c == nil { // nothing to change
			return s.machine.AppliedIndex(), nil, nil
		}
		index, result, err := s.submit.One(ctx, c)
		if !errors.Is(err, jobs.ErrConflict) || try == planTries {
			return index, result, err
		}
	}
}

// planSave decides the start of a schedule's slots, and its first slot.
func (s *scheduleService) planSave(ctx context.Context, given *schedules.Schedule, now time.Time) (*conductordv1.Command, error) {
	if err := schedules.Check(s.limits, given); err != nil {
		return nil, err
	}
	// With a flow that cannot be built, every slot would post a job that is trashed.
	expanded := given.Expand(jobs.NewJobID(), now)
	if err := s.checks.posting(ctx, &expanded); err != nil {
		return nil, err
	}
	known, _, err := s.machine.Schedule(schedules.Ref{Board: given.Board, Name: given.Name}, 0)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return command.PlanSave(given, nil, schedules.NewID(), now)
	case err != nil:
		return nil, err
	}
	return command.PlanSave(given, &known, schedules.NewID(), now)
}

func (s *scheduleService) get(message *conductordv1.GetScheduleRequest) (*conductordv1.GetScheduleResponse, error) {
	switch {
	case message.Upcoming > schedules.MaxUpcoming:
		return nil, &logbook.LimitError{Field: "schedule upcoming", Limit: schedules.MaxUpcoming, Size: int64(message.Upcoming), Unit: "slots"}
	case message.History > schedules.MaxSlotRecords:
		return nil, &logbook.LimitError{Field: "schedule history", Limit: schedules.MaxSlotRecords, Size: int64(message.History), Unit: "records"}
	}
	schedule, history, err := s.machine.Schedule(schedules.Ref{Board: message.Board, Name: message.Name}, int(message.History))
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.GetScheduleResponse{Schedule: evaluated(&schedule), History: command.SlotRecordsToProto(history)}
	if message.Upcoming == 0 || answer.Schedule.Error != "" {
		return answer, nil
	}
	upcoming, err := schedule.Upcoming(s.clock.AnswerTime(), int(message.Upcoming))
	answer.Upcoming = command.TimesToProto(upcoming)
	return answer, err
}

// evaluated is a schedule for an answer, with the reason why this node cannot evaluate it.
func evaluated(s *schedules.Schedule) *conductordv1.Schedule {
	if _, err := schedules.ParseRule(s); err != nil {
		s.Error = err.Error()
	}
	return command.ScheduleToProto(s)
}

func (s *scheduleService) list(ctx context.Context, message *conductordv1.ListSchedulesRequest) (*conductordv1.ListSchedulesResponse, error) {
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	page, err := s.machine.Schedules(schedules.Query{Board: message.Board, After: message.After, Limit: int(min(message.Limit, logbook.MaxPage))}, shows)
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.ListSchedulesResponse{Next: page.Next}
	for i := range page.Items {
		listed := evaluated(&page.Items[i])
		listed.Posting = nil
		answer.Schedules = append(answer.Schedules, listed)
	}
	return answer, nil
}

func (s *scheduleService) resume(ctx context.Context, message *conductordv1.ResumeScheduleRequest) (*conductordv1.Done, uint64, error) {
	index, _, err := s.planned(ctx, func(now time.Time) (*conductordv1.Command, error) {
		known, _, err := s.machine.Schedule(schedules.Ref{Board: message.Board, Name: message.Name}, 0)
		if err != nil {
			return nil, err
		}
		return command.PlanResume(&known, now)
	})
	return &conductordv1.Done{}, index, err
}

// nameRun and nameBackfill add a nonce before the call is forwarded, so that all attempts of this
// node are one request.
func nameRun(_ context.Context, _ http.Header, request *conductordv1.RunScheduleRequest) error {
	request.Nonce = cmp.Or(request.Nonce, jobs.NewNonce().String())
	return nil
}

func nameBackfill(_ context.Context, _ http.Header, request *conductordv1.BackfillScheduleRequest) error {
	request.Nonce = cmp.Or(request.Nonce, jobs.NewNonce().String())
	return nil
}

// run posts a job between slots.
func (s *scheduleService) run(ctx context.Context, message *conductordv1.RunScheduleRequest) (*conductordv1.RunScheduleResponse, uint64, error) {
	index, result, err := s.submit.One(ctx, &conductordv1.Command{Kind: &conductordv1.Command_RunSchedule{
		RunSchedule: &conductordv1.RunScheduleCommand{Board: message.Board, Name: message.Name, Nonce: message.Nonce, By: message.By},
	}})
	if err != nil {
		return nil, index, err
	}
	return &conductordv1.RunScheduleResponse{Slot: result.GetSchedule().GetSlots()[0]}, index, nil
}

// backfill posts past slots. It allows one call at a time, because several in one entry would write
// too much.
func (s *scheduleService) backfill(ctx context.Context, message *conductordv1.BackfillScheduleRequest) (*conductordv1.BackfillScheduleResponse, uint64, error) {
	select {
	case s.backfills <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: another backfill is in progress: %w", jobs.ErrUnavailable, ctx.Err())
	}
	defer func() { <-s.backfills }()
	var next time.Time
	index, result, err := s.planned(ctx, func(time.Time) (c *conductordv1.Command, err error) {
		c, next, err = s.planBackfill(message)
		return c, err
	})
	return &conductordv1.BackfillScheduleResponse{Slots: result.GetSchedule().GetSlots(), Next: command.TimeToProto(next)}, index, err
}

func (s *scheduleService) planBackfill(message *conductordv1.BackfillScheduleRequest) (c *conductordv1.Command, next time.Time, err error) {
	bounds, err := command.TimesFromProto("backfill from or to", []*timestamppb.Timestamp{message.From, message.To})
	if err != nil {
		return nil, next, err
	}
	nonce, err := jobs.ParseNonce(message.Nonce)
	if err != nil {
		return nil, next, err
	}
	known, _, err := s.machine.Schedule(schedules.Ref{Board: message.Board, Name: message.Name}, 0)
	if err != nil {
		return nil, next, err
	}
	return command.PlanBackfill(&known, &schedules.Backfill{From: bounds[0], To: bounds[1], By: message.By, Nonce: nonce})
}
