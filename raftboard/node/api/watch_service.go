package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/node/polls"
	"github.com/conductord/conductord/raftboard/wire"
)

const eventsAtOnce = 256 // events of one message of a watch

// watchService answers watches.
type watchService struct {
	machine *fsm.Machine
	polls   *polls.Polls
	leader  *lead.State
	ready   *lead.Readiness
	guard   *guard.Guard
}

// Watch answers one watch. Every node answers from its own state, because events have the same
// order on all nodes. A watch holds only its position, so a slow reader costs no more than its
// connection.
func (s *watchService) Watch(ctx context.Context, request *connect.Request[conductordv1.WatchRequest], stream *connect.ServerStream[conductordv1.WatchResponse]) error {
	if leader, known := s.leader.Known(); known {
		stream.ResponseHeader().Set(wire.HeaderLeader, leader.API)
	}
	if err := s.watch(ctx, request.Msg, request.Header(), stream.Send); err != nil {
		return wire.ErrorToConnect(err)
	}
	return nil
}

// sender sends a message to the watcher.
type sender func(*conductordv1.WatchResponse) error

func (s *watchService) watch(ctx context.Context, message *conductordv1.WatchRequest, header http.Header, send sender) error {
	wanted, err := command.WatchFromProto(message)
	if err != nil {
		return err
	}
	if err := s.ready.AwaitMinIndex(ctx, header); err != nil {
		return err
	}
	still := func() error { return s.guard.AllowWatch(ctx, &wanted) }
	if err := still(); err != nil {
		return err
	}
	within, end := s.guard.While(ctx, still)
	defer end()
	release, err := s.guard.Hold(ctx, true, &s.guard.Watchers.Watches)
	if err != nil {
		return err
	}
	defer release()
	position := s.machine.LastPosition()
	if wanted.After != nil {
		position = *wanted.After
		// The position may be from a node that has applied more than this one.
		patience, cancel := context.WithTimeout(ctx, lead.BehindPatience)
		err := s.machine.WaitApplied(patience, position.Index)
		cancel()
		if err != nil {
			return fmt.Errorf("%w: this node has not applied entry %d yet: %w", jobs.ErrUnavailable, position.Index, err)
		}
	}
	if err = s.tell(within, send, &wanted, position); within.Err() != nil {
		return context.Cause(within)
	}
	return err
}

// tell sends events as they arrive, and a sign of life while there are none. It ends with the call
// or the node.
func (s *watchService) tell(ctx context.Context, send sender, wanted *jobs.Watch, position jobs.Position) error {
	conn := admission.ConnOf(ctx)
	signs := time.NewTicker(wire.WatchSign)
	defer signs.Stop()
	if err := send(&conductordv1.WatchResponse{Position: command.PositionToProto(position)}); err != nil {
		return err
	}
	for {
		_ = conn.Turn(admission.LookUnits) // send returns an error if the connection has ended
		more := s.polls.NextEvents()       // before the read, so that no event in between is missed
		page, err := s.machine.EventsOf(wanted, position, eventsAtOnce)
		if err != nil {
			return err
		}
		conn.PayEvents(page.Read, len(page.Events))
		if page.Reached != position {
			position = page.Reached
			shows, err := s.guard.ShownEvents(ctx, wanted)
			if err != nil {
				return err
			}
			if answer := pick(wanted, page.Events, shows); len(answer) > 0 {
				told := &conductordv1.WatchResponse{Events: answer, Position: command.PositionToProto(position)}
				s.guard.Hide(ctx, told)
				if err := send(told); err != nil {
					return err
				}
			}
		}
		if page.More {
			if err := s.showLife(ctx, send, signs.C, position); err != nil {
				return err
			}
			continue
		}
		select {
		case <-more:
		case <-signs.C:
			if err := send(&conductordv1.WatchResponse{Position: command.PositionToProto(position)}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// showLife sends a sign of life if one is due. tell calls it between two searches without a wait.
func (s *watchService) showLife(ctx context.Context, send sender, due <-chan time.Time, position jobs.Position) error {
	select {
	case <-due:
		return send(&conductordv1.WatchResponse{Position: command.PositionToProto(position)})
	case <-ctx.Done():
		return ctx.Err()
	default:
		return nil
	}
}

// pick returns the events that a watch selects and its caller may see.
func pick(wanted *jobs.Watch, events []jobs.Event, shows func(*jobs.Event) bool) []*conductordv1.Event {
	var picked []*conductordv1.Event
	for i := range events {
		if wanted.Selects(&events[i]) && shows(&events[i]) {
			picked = append(picked, command.EventToProto(&events[i]))
		}
	}
	return picked
}
