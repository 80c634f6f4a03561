package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// planTries is how often a change of a schedule is worked out anew because the
// schedule has changed in between.
const planTries = 5

// scheduleService answers calls about schedules. What depends on zones is
// worked out here, by the leader; its commands carry the outcome.
type scheduleService struct{ *Node }

// Save implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Save(ctx context.Context, request *connect.Request[conductordv1.SaveScheduleRequest]) (*connect.Response[conductordv1.SaveScheduleResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.SaveScheduleRequest, conductordv1.SaveScheduleResponse] {
			return c.schedule.Save
		},
		func(ctx context.Context, message *conductordv1.SaveScheduleRequest) (*conductordv1.SaveScheduleResponse, uint64, error) {
			given, err := command.ScheduleFromProto(message.Schedule)
			if err != nil {
				return nil, 0, err
			}
			index, result, err := s.planned(ctx, func(now time.Time) (*conductordv1.Command, error) {
				return s.planSave(&given, now)
			})
			return &conductordv1.SaveScheduleResponse{Schedule: result.GetSchedule().GetSchedule()}, index, err
		})
}

// planned works a command out, and does so again if what it was worked out on
// has changed meanwhile.
func (n *Node) planned(ctx context.Context, plan func(now time.Time) (*conductordv1.Command, error)) (uint64, *conductordv1.Result, error) {
	for try := 1; ; try++ {
		c, err := plan(n.clock.now())
		if err != nil {
			return 0, nil, err
		}
		if c == nil { // nothing to do
			return n.machine.AppliedIndex(), nil, nil
		}
		index, result, err := n.submitOne(ctx, c)
		if !errors.Is(err, jobs.ErrConflict) || try == planTries {
			return index, result, err
		}
	}
}

// planSave says from when on a schedule has slots, and which is the first.
func (s *scheduleService) planSave(given *jobs.Schedule, now time.Time) (*conductordv1.Command, error) {
	if err := jobs.CheckSchedule(s.options.Limits, given); err != nil {
		return nil, err
	}
	// A flow that cannot be built would make every slot a job for the trash.
	expanded := given.Expand(jobs.NewJobID(), now)
	if err := (&boardService{s.Node}).checkFlow(command.PostingToProto(&expanded)); err != nil {
		return nil, err
	}
	known, _, err := s.machine.Schedule(jobs.ScheduleName{Board: given.Board, Name: given.Name}, 0)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return command.PlanSave(given, nil, jobs.NewScheduleID(), now)
	case err != nil:
		return nil, err
	}
	return command.PlanSave(given, &known, jobs.NewScheduleID(), now)
}

// Delete implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Delete(ctx context.Context, request *connect.Request[conductordv1.DeleteScheduleRequest]) (*connect.Response[conductordv1.DeleteScheduleResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.DeleteScheduleRequest, conductordv1.DeleteScheduleResponse] {
			return c.schedule.Delete
		},
		func(ctx context.Context, message *conductordv1.DeleteScheduleRequest) (*conductordv1.DeleteScheduleResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_DeleteSchedule{
				DeleteSchedule: &conductordv1.DeleteScheduleCommand{Board: message.Board, Name: message.Name},
			}})
			return &conductordv1.DeleteScheduleResponse{}, index, err
		})
}

// Get implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Get(ctx context.Context, request *connect.Request[conductordv1.GetScheduleRequest]) (*connect.Response[conductordv1.GetScheduleResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.GetScheduleRequest, conductordv1.GetScheduleResponse] {
			return c.schedule.Get
		},
		s.get)
}

func (s *scheduleService) get(message *conductordv1.GetScheduleRequest) (*conductordv1.GetScheduleResponse, error) {
	switch {
	case message.Upcoming > jobs.MaxUpcoming:
		return nil, &logbook.LimitError{Field: "schedule upcoming", Limit: jobs.MaxUpcoming, Size: int64(message.Upcoming), Unit: "slots"}
	case message.History > jobs.MaxSlotRecords:
		return nil, &logbook.LimitError{Field: "schedule history", Limit: jobs.MaxSlotRecords, Size: int64(message.History), Unit: "records"}
	}
	schedule, history, err := s.machine.Schedule(jobs.ScheduleName{Board: message.Board, Name: message.Name}, int(message.History))
	if err != nil {
		return nil, err
	}
	answer := &conductordv1.GetScheduleResponse{
		Schedule: command.ScheduleToProto(&schedule), History: command.SlotRecordsToProto(history),
	}
	if message.Upcoming == 0 {
		return answer, nil
	}
	upcoming, err := schedule.Upcoming(s.now(), int(message.Upcoming))
	answer.Upcoming = command.TimesToProto(upcoming)
	return answer, err
}

// List implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) List(ctx context.Context, request *connect.Request[conductordv1.ListSchedulesRequest]) (*connect.Response[conductordv1.ListSchedulesResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListSchedulesRequest, conductordv1.ListSchedulesResponse] {
			return c.schedule.List
		},
		func(message *conductordv1.ListSchedulesRequest) (*conductordv1.ListSchedulesResponse, error) {
			schedules, err := s.machine.Schedules(jobs.ScheduleQuery{
				Board: message.Board, Limit: int(min(message.Limit, logbook.MaxPage)),
				After: jobs.ScheduleName{Board: message.AfterBoard, Name: message.AfterName},
			})
			if err != nil {
				return nil, err
			}
			answer := &conductordv1.ListSchedulesResponse{}
			for i := range schedules {
				listed := command.ScheduleToProto(&schedules[i])
				listed.Posting = nil
				answer.Schedules = append(answer.Schedules, listed)
			}
			return answer, nil
		})
}

// Pause implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Pause(ctx context.Context, request *connect.Request[conductordv1.PauseScheduleRequest]) (*connect.Response[conductordv1.PauseScheduleResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.PauseScheduleRequest, conductordv1.PauseScheduleResponse] {
			return c.schedule.Pause
		},
		func(ctx context.Context, message *conductordv1.PauseScheduleRequest) (*conductordv1.PauseScheduleResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_PauseSchedule{
				PauseSchedule: &conductordv1.PauseScheduleCommand{
					Board: message.Board, Name: message.Name, By: message.By, Reason: message.Reason,
				},
			}})
			return &conductordv1.PauseScheduleResponse{}, index, err
		})
}

// Resume implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Resume(ctx context.Context, request *connect.Request[conductordv1.ResumeScheduleRequest]) (*connect.Response[conductordv1.ResumeScheduleResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.ResumeScheduleRequest, conductordv1.ResumeScheduleResponse] {
			return c.schedule.Resume
		},
		func(ctx context.Context, message *conductordv1.ResumeScheduleRequest) (*conductordv1.ResumeScheduleResponse, uint64, error) {
			index, _, err := s.planned(ctx, func(now time.Time) (*conductordv1.Command, error) { return s.planResume(message, now) })
			return &conductordv1.ResumeScheduleResponse{}, index, err
		})
}

func (s *scheduleService) planResume(message *conductordv1.ResumeScheduleRequest, now time.Time) (*conductordv1.Command, error) {
	known, _, err := s.machine.Schedule(jobs.ScheduleName{Board: message.Board, Name: message.Name}, 0)
	if err != nil {
		return nil, err
	}
	return command.PlanResume(&known, now)
}

// Run implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Run(ctx context.Context, request *connect.Request[conductordv1.RunScheduleRequest]) (*connect.Response[conductordv1.RunScheduleResponse], error) {
	// It is given before the call is passed on, so that all tries of this
	// node are one.
	if request.Msg.Nonce == "" {
		request.Msg.Nonce = jobs.NewNonce().String()
	}
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.RunScheduleRequest, conductordv1.RunScheduleResponse] {
			return c.schedule.Run
		},
		func(ctx context.Context, message *conductordv1.RunScheduleRequest) (*conductordv1.RunScheduleResponse, uint64, error) {
			index, result, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_RunSchedule{
				RunSchedule: &conductordv1.RunScheduleCommand{Board: message.Board, Name: message.Name, Nonce: message.Nonce, By: message.By},
			}})
			if err != nil {
				return nil, index, err
			}
			return &conductordv1.RunScheduleResponse{Slot: result.GetSchedule().GetSlots()[0]}, index, nil
		})
}

// Backfill implements conductordv1connect.ScheduleServiceHandler.
func (s *scheduleService) Backfill(ctx context.Context, request *connect.Request[conductordv1.BackfillScheduleRequest]) (*connect.Response[conductordv1.BackfillScheduleResponse], error) {
	if request.Msg.Nonce == "" { // as of a run
		request.Msg.Nonce = jobs.NewNonce().String()
	}
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.BackfillScheduleRequest, conductordv1.BackfillScheduleResponse] {
			return c.schedule.Backfill
		},
		func(ctx context.Context, message *conductordv1.BackfillScheduleRequest) (*conductordv1.BackfillScheduleResponse, uint64, error) {
			// One at a time: several in one entry would together write too much.
			select {
			case s.backfills <- struct{}{}:
			case <-ctx.Done():
				return nil, 0, fmt.Errorf("%w: others are filled in: %w", jobs.ErrUnavailable, ctx.Err())
			}
			defer func() { <-s.backfills }()
			var next time.Time
			index, result, err := s.planned(ctx, func(time.Time) (c *conductordv1.Command, err error) {
				c, next, err = s.planBackfill(message)
				return c, err
			})
			return &conductordv1.BackfillScheduleResponse{Slots: result.GetSchedule().GetSlots(), Next: command.TimeToProto(next)}, index, err
		})
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
	known, _, err := s.machine.Schedule(jobs.ScheduleName{Board: message.Board, Name: message.Name}, 0)
	if err != nil {
		return nil, next, err
	}
	return command.PlanBackfill(&known, &jobs.Backfill{From: bounds[0], To: bounds[1], By: message.By, Nonce: nonce})
}
