package api

import (
	"context"
	"fmt"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/node/lead"
)

// sessionService answers calls about sessions, entities and drains.
type sessionService struct {
	machine *fsm.Machine
	leader  *lead.State
	reads   *lead.Reads
	submit  *Submitter
}

func (s *sessionService) open(ctx context.Context, message *conductordv1.OpenRequest) (*conductordv1.OpenResponse, uint64, error) {
	index, result, err := s.submit.One(ctx, &conductordv1.Command{Kind: &conductordv1.Command_OpenSession{OpenSession: message.Opening}})
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

// renew moves the deadline of a session after a quorum round has shown that this node still leads.
// It does not wait until entries are applied: a session whose opening was acknowledged already has
// a timer, and must not expire because of a slow entry. For an unknown session, renew waits once.
func (s *sessionService) renew(ctx context.Context, id jobs.SessionID) error {
	index, err := s.reads.Confirm(ctx)
	if err != nil {
		return err
	}
	for applied := false; ; {
		current, err := s.leader.Serving()
		if err != nil {
			return err
		}
		wait, known := current.Renew(id)
		if !known && !applied {
			if err := s.reads.Applied(ctx, index); err != nil {
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
		case <-current.Over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sessionService) listSessions(ctx context.Context, message *conductordv1.ListSessionsRequest) (*conductordv1.ListSessionsResponse, error) {
	sessions, next, err := shown(message.After, func(after string) ([]jobs.Session, string, error) {
		return s.sessionsAfter(after, int(min(message.Limit, logbook.MaxPage)))
	}, func(session *jobs.Session) bool { return s.submit.Guard.MayShowSession(ctx, session) }, func(kept []jobs.Session) string { return kept[len(kept)-1].ID.String() })
	return &conductordv1.ListSessionsResponse{Next: next, Sessions: ToProto(sessions, command.SessionToProto)}, err
}

func (s *sessionService) sessionsAfter(after string, limit int) (sessions []jobs.Session, next string, err error) {
	var last jobs.SessionID
	if after != "" {
		if last, err = jobs.ParseSessionID(after); err != nil {
			return nil, "", err
		}
	}
	sessions, last, err = s.machine.SessionPage(last, limit)
	if !last.IsZero() {
		next = last.String()
	}
	return sessions, next, err
}

func (s *sessionService) listEntities(ctx context.Context, message *conductordv1.ListEntitiesRequest) (*conductordv1.ListEntitiesResponse, error) {
	entities, next, err := shown(message.After, func(after string) ([]jobs.Entity, string, error) {
		return s.machine.EntityPage(message.Kind, message.Name, after, int(min(message.Limit, logbook.MaxPage)))
	}, func(entity *jobs.Entity) bool { return s.submit.Guard.ShowEntity(ctx, entity) }, fsm.EntityCursor)
	return &conductordv1.ListEntitiesResponse{Next: next, Entities: ToProto(entities, command.EntityToProto)}, err
}

// listDrains shows the drains of the conductors that the caller may see.
func (s *sessionService) listDrains(ctx context.Context, message *conductordv1.ListDrainsRequest) (*conductordv1.ListDrainsResponse, error) {
	seen, err := s.conductors(ctx)
	if err != nil {
		return nil, err
	}
	drains, next, err := shown(message.After, s.machine.DrainPage, func(drain *jobs.Drain) bool { return seen == nil || seen[drain.Conductor] }, func(kept []jobs.Drain) string { return kept[len(kept)-1].Conductor })
	return &conductordv1.ListDrainsResponse{Next: next, Drains: ToProto(drains, command.DrainToProto)}, err
}

// conductors are the names of the conductors that the caller may see; nil: all.
func (s *sessionService) conductors(ctx context.Context) (map[string]bool, error) {
	if s.submit.Guard.MayShow(ctx, access.AllBoards) {
		return nil, nil
	}
	all, err := s.machine.Entities(jobs.EntityConductor)
	seen := make(map[string]bool)
	for i := range all {
		if s.submit.Guard.ShowEntity(ctx, &all[i]) {
			seen[all[i].Name] = true
		}
	}
	return seen, err
}
