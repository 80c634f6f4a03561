package node

import (
	"context"
	"fmt"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// sessionService answers calls about sessions, entities and drains.
type sessionService struct {
	machine *fsm.Machine
	leader  *leaderState
	reads   *readRounds
	submit  *submitter
}

func (s *sessionService) open(ctx context.Context, message *conductordv1.OpenRequest) (*conductordv1.OpenResponse, uint64, error) {
	index, result, err := s.submit.one(ctx, &conductordv1.Command{Kind: &conductordv1.Command_OpenSession{OpenSession: message.Opening}})
	return &conductordv1.OpenResponse{Session: result.GetSession()}, index, err
}

func (s *sessionService) keepAlive(ctx context.Context, message *conductordv1.KeepAliveRequest) (*conductordv1.Done, uint64, error) {
	id, err := jobs.ParseSessionID(message.Session)
	if err != nil {
		return nil, 0, err
	}
	if err := s.renew(ctx, id); err != nil {
		return nil, 0, err
	}
	return &conductordv1.Done{}, s.machine.AppliedIndex(), nil
}

// renew moves the deadline of a session after a round of questions has shown that this node still
// leads. It does not wait until entries are applied: a session whose opening was
// acknowledged has a timer already, and must not expire because an entry takes long.
// Only for an unknown session it waits once.
func (s *sessionService) renew(ctx context.Context, id jobs.SessionID) error {
	index, err := s.reads.confirm(ctx)
	if err != nil {
		return err
	}
	for applied := false; ; {
		current, err := s.leader.serving()
		if err != nil {
			return err
		}
		wait, known := current.deadlines.renew(id, time.Now())
		if !known && !applied {
			if err := s.reads.applied(ctx, index); err != nil {
				return err
			}
			applied = true
			continue
		}
		if !known {
			return fmt.Errorf("session %s: %w", id, jobs.ErrSessionExpired)
		}
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-current.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sessionService) listSessions(message *conductordv1.ListSessionsRequest) (*conductordv1.ListSessionsResponse, error) {
	var after jobs.SessionID
	if message.After != "" {
		var err error
		if after, err = jobs.ParseSessionID(message.After); err != nil {
			return nil, err
		}
	}
	sessions, next, err := s.machine.SessionPage(after)
	answer := &conductordv1.ListSessionsResponse{Sessions: toProto(sessions, command.SessionToProto)}
	if !next.IsZero() {
		answer.Next = next.String()
	}
	return answer, err
}

func (s *sessionService) listEntities(message *conductordv1.ListEntitiesRequest) (*conductordv1.ListEntitiesResponse, error) {
	entities, next, err := s.machine.EntityPage(message.Kind, message.After)
	return &conductordv1.ListEntitiesResponse{Next: next, Entities: toProto(entities, command.EntityToProto)}, err
}

func (s *sessionService) listDrains(message *conductordv1.ListDrainsRequest) (*conductordv1.ListDrainsResponse, error) {
	drains, next, err := s.machine.DrainPage(message.After)
	return &conductordv1.ListDrainsResponse{Next: next, Drains: toProto(drains, command.DrainToProto)}, err
}
