package node

import (
	"context"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// sessionService answers calls about sessions, entities and drains.
type sessionService struct{ *Node }

func (s *sessionService) open(ctx context.Context, message *conductordv1.OpenRequest) (*conductordv1.OpenResponse, uint64, error) {
	index, result, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_OpenSession{OpenSession: message.Opening}})
	return &conductordv1.OpenResponse{Session: result.GetSession()}, index, err
}

func (s *sessionService) keepAlive(ctx context.Context, message *conductordv1.KeepAliveRequest) (*conductordv1.Done, uint64, error) {
	id, err := jobs.ParseSessionID(message.Session)
	if err != nil {
		return nil, 0, err
	}
	if err := s.Node.keepAlive(ctx, id); err != nil {
		return nil, 0, err
	}
	return &conductordv1.Done{}, s.machine.AppliedIndex(), nil
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
	answer := &conductordv1.ListSessionsResponse{}
	if !next.IsZero() {
		answer.Next = next.String()
	}
	for i := range sessions {
		answer.Sessions = append(answer.Sessions, command.SessionToProto(&sessions[i]))
	}
	return answer, err
}

func (s *sessionService) listEntities(message *conductordv1.ListEntitiesRequest) (*conductordv1.ListEntitiesResponse, error) {
	entities, next, err := s.machine.EntityPage(message.Kind, message.After)
	answer := &conductordv1.ListEntitiesResponse{Next: next}
	for i := range entities {
		answer.Entities = append(answer.Entities, command.EntityToProto(&entities[i]))
	}
	return answer, err
}

func (s *sessionService) listDrains(message *conductordv1.ListDrainsRequest) (*conductordv1.ListDrainsResponse, error) {
	drains, next, err := s.machine.DrainPage(message.After)
	answer := &conductordv1.ListDrainsResponse{Next: next}
	for i := range drains {
		answer.Drains = append(answer.Drains, command.DrainToProto(&drains[i]))
	}
	return answer, err
}
