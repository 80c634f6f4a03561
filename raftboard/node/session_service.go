package node

import (
	"context"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// sessionService answers calls about presence.
type sessionService struct{ *Node }

// Open implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) Open(ctx context.Context, request *connect.Request[conductordv1.OpenRequest]) (*connect.Response[conductordv1.OpenResponse], error) {
	if err := s.shares.admit(ctx, request.Header(), request.Msg.Opening); err != nil {
		return nil, wire.ErrorToConnect(err)
	}
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.OpenRequest, conductordv1.OpenResponse] { return c.sessions.Open },
		func(ctx context.Context, message *conductordv1.OpenRequest) (*conductordv1.OpenResponse, uint64, error) {
			index, result, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_OpenSession{OpenSession: message.Opening}})
			return &conductordv1.OpenResponse{Session: result.GetSession()}, index, err
		})
}

// KeepAlive implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) KeepAlive(ctx context.Context, request *connect.Request[conductordv1.KeepAliveRequest]) (*connect.Response[conductordv1.KeepAliveResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.KeepAliveRequest, conductordv1.KeepAliveResponse] {
			return c.sessions.KeepAlive
		},
		func(ctx context.Context, message *conductordv1.KeepAliveRequest) (*conductordv1.KeepAliveResponse, uint64, error) {
			id, err := jobs.ParseSessionID(message.Session)
			if err != nil {
				return nil, 0, err
			}
			if err := s.keepAlive(ctx, id); err != nil {
				return nil, 0, err
			}
			return &conductordv1.KeepAliveResponse{}, s.machine.AppliedIndex(), nil
		})
}

// Close implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) Close(ctx context.Context, request *connect.Request[conductordv1.CloseRequest]) (*connect.Response[conductordv1.CloseResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.CloseRequest, conductordv1.CloseResponse] {
			return c.sessions.Close
		},
		func(ctx context.Context, message *conductordv1.CloseRequest) (*conductordv1.CloseResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_CloseSession{
				CloseSession: &conductordv1.CloseSessionCommand{Session: message.Session},
			}})
			return &conductordv1.CloseResponse{}, index, err
		})
}

// Register implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) Register(ctx context.Context, request *connect.Request[conductordv1.RegisterRequest]) (*connect.Response[conductordv1.RegisterResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.RegisterRequest, conductordv1.RegisterResponse] {
			return c.sessions.Register
		},
		func(ctx context.Context, message *conductordv1.RegisterRequest) (*conductordv1.RegisterResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_Register{
				Register: &conductordv1.RegisterCommand{Session: message.Session, Entity: message.Entity},
			}})
			return &conductordv1.RegisterResponse{}, index, err
		})
}

// ListSessions implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) ListSessions(ctx context.Context, request *connect.Request[conductordv1.ListSessionsRequest]) (*connect.Response[conductordv1.ListSessionsResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListSessionsRequest, conductordv1.ListSessionsResponse] {
			return c.sessions.ListSessions
		},
		func(message *conductordv1.ListSessionsRequest) (*conductordv1.ListSessionsResponse, error) {
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
		})
}

// ListEntities implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) ListEntities(ctx context.Context, request *connect.Request[conductordv1.ListEntitiesRequest]) (*connect.Response[conductordv1.ListEntitiesResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListEntitiesRequest, conductordv1.ListEntitiesResponse] {
			return c.sessions.ListEntities
		},
		func(message *conductordv1.ListEntitiesRequest) (*conductordv1.ListEntitiesResponse, error) {
			entities, next, err := s.machine.EntityPage(message.Kind, message.After)
			answer := &conductordv1.ListEntitiesResponse{Next: next}
			for i := range entities {
				answer.Entities = append(answer.Entities, command.EntityToProto(&entities[i]))
			}
			return answer, err
		})
}

// DrainConductor implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) DrainConductor(ctx context.Context, request *connect.Request[conductordv1.DrainConductorRequest]) (*connect.Response[conductordv1.DrainConductorResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.DrainConductorRequest, conductordv1.DrainConductorResponse] {
			return c.sessions.DrainConductor
		},
		func(ctx context.Context, message *conductordv1.DrainConductorRequest) (*conductordv1.DrainConductorResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_DrainConductor{
				DrainConductor: &conductordv1.DrainCommand{
					Conductor: message.Conductor, By: message.By, Reason: message.Reason, Finish: message.Finish, Absent: message.Absent,
				},
			}})
			return &conductordv1.DrainConductorResponse{}, index, err
		})
}

// UndrainConductor implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) UndrainConductor(ctx context.Context, request *connect.Request[conductordv1.UndrainConductorRequest]) (*connect.Response[conductordv1.UndrainConductorResponse], error) {
	return lead(ctx, s.Node, request,
		func(c *clients) method[conductordv1.UndrainConductorRequest, conductordv1.UndrainConductorResponse] {
			return c.sessions.UndrainConductor
		},
		func(ctx context.Context, message *conductordv1.UndrainConductorRequest) (*conductordv1.UndrainConductorResponse, uint64, error) {
			index, _, err := s.submitOne(ctx, &conductordv1.Command{Kind: &conductordv1.Command_UndrainConductor{
				UndrainConductor: &conductordv1.DrainCommand{Conductor: message.Conductor, By: message.By, Reason: message.Reason},
			}})
			return &conductordv1.UndrainConductorResponse{}, index, err
		})
}

// ListDrains implements conductordv1connect.SessionServiceHandler.
func (s *sessionService) ListDrains(ctx context.Context, request *connect.Request[conductordv1.ListDrainsRequest]) (*connect.Response[conductordv1.ListDrainsResponse], error) {
	return read(ctx, s.Node, request, request.Msg.Stale,
		func(c *clients) method[conductordv1.ListDrainsRequest, conductordv1.ListDrainsResponse] {
			return c.sessions.ListDrains
		},
		func(message *conductordv1.ListDrainsRequest) (*conductordv1.ListDrainsResponse, error) {
			drains, next, err := s.machine.DrainPage(message.After)
			answer := &conductordv1.ListDrainsResponse{Next: next}
			for i := range drains {
				answer.Drains = append(answer.Drains, command.DrainToProto(&drains[i]))
			}
			return answer, err
		})
}
