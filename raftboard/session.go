package raftboard

import (
	"context"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// OpenSession implements jobs.Attendant.
func (c *Client) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	name := "open session " + opening.ID.String()
	if err := jobs.CheckOpening(logbook.MaxLimits, &opening); err != nil {
		return jobs.Session{}, fmt.Errorf("cannot %s: %w", name, err)
	}
	message := &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: command.OpeningToProto(&opening)}}
	result, err := execute(ctx, c.others, name, message)
	if err != nil {
		return jobs.Session{}, err
	}
	session, err := command.SessionFromProto(result.GetSession())
	if err != nil {
		return jobs.Session{}, fmt.Errorf("cannot %s: %w", name, unreadable(err))
	}
	return session, nil
}

// KeepAlive implements jobs.Attendant. It waits behind no other call, and a
// try takes at most a second, so that a node that hangs costs no session.
func (c *Client) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	op := operation{name: "keep session " + id.String() + " alive", try: keepAliveTime}
	request := &v1.KeepAliveRequest{Session: id.String()}
	_, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.KeepAliveRequest, v1.KeepAliveResponse] { return p.sessions.KeepAlive })
	return err
}

// CloseSession implements jobs.Attendant.
func (c *Client) CloseSession(ctx context.Context, id jobs.SessionID) error {
	message := &v1.Command{Kind: &v1.Command_CloseSession{CloseSession: &v1.CloseSessionCommand{Session: id.String()}}}
	return c.remove(ctx, "close session "+id.String(), message, jobs.ErrSessionExpired)
}

// Register implements jobs.Attendant.
func (c *Client) Register(ctx context.Context, id jobs.SessionID, entity jobs.Entity) error {
	name := fmt.Sprintf("register %s %q", entity.Kind, entity.Name)
	if err := jobs.CheckEntity(logbook.MaxLimits, &entity); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	message := &v1.Command{Kind: &v1.Command_Register{
		Register: &v1.RegisterCommand{Session: id.String(), Entity: command.EntityToProto(&entity)},
	}}
	_, err := execute(ctx, c.others, name, message)
	return err
}

// Sessions implements jobs.Attendant.
func (c *Client) Sessions(ctx context.Context) ([]jobs.Session, error) {
	op := operation{name: "list sessions", reads: true, stale: c.stale}
	request := &v1.ListSessionsRequest{Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListSessionsRequest, v1.ListSessionsResponse] {
		return p.sessions.ListSessions
	})
	if err != nil {
		return nil, err
	}
	var sessions []jobs.Session
	for _, message := range answer.GetSessions() {
		session, err := command.SessionFromProto(message)
		if err != nil {
			return nil, fmt.Errorf("cannot %s: the answer cannot be read: %w", op.name, err)
		}
		sessions = append(sessions, session)
	}
	return sessions, nil
}

// Entities implements jobs.Attendant.
func (c *Client) Entities(ctx context.Context, kind string) ([]jobs.Entity, error) {
	op := operation{name: "list entities", reads: true, stale: c.stale}
	request := &v1.ListEntitiesRequest{Kind: kind, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListEntitiesRequest, v1.ListEntitiesResponse] {
		return p.sessions.ListEntities
	})
	if err != nil {
		return nil, err
	}
	var entities []jobs.Entity
	for _, message := range answer.GetEntities() {
		entity, err := command.EntityFromProto(message)
		if err != nil {
			return nil, fmt.Errorf("cannot %s: the answer cannot be read: %w", op.name, err)
		}
		entities = append(entities, entity)
	}
	return entities, nil
}

// DrainConductor implements jobs.Conductors.
func (c *Client) DrainConductor(ctx context.Context, order jobs.DrainOrder) error {
	name := fmt.Sprintf("drain conductor %q", order.Conductor)
	message := &v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: command.DrainOrderToProto(&order)}}
	if err := command.Check(logbook.MaxLimits, message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	_, err := execute(ctx, c.others, name, message)
	return err
}

// UndrainConductor implements jobs.Conductors.
func (c *Client) UndrainConductor(ctx context.Context, order jobs.DrainOrder) error {
	name := fmt.Sprintf("undrain conductor %q", order.Conductor)
	message := &v1.Command{Kind: &v1.Command_UndrainConductor{UndrainConductor: command.DrainOrderToProto(&order)}}
	if err := command.Check(logbook.MaxLimits, message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	return c.remove(ctx, name, message, jobs.ErrNotFound)
}

// Drains implements jobs.Conductors.
func (c *Client) Drains(ctx context.Context) ([]jobs.Drain, error) {
	op := operation{name: "list drains", reads: true, stale: c.stale}
	request := &v1.ListDrainsRequest{Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListDrainsRequest, v1.ListDrainsResponse] {
		return p.sessions.ListDrains
	})
	if err != nil {
		return nil, err
	}
	var drains []jobs.Drain
	for _, message := range answer.GetDrains() {
		drain, err := command.DrainFromProto(message)
		if err != nil {
			return nil, fmt.Errorf("cannot %s: the answer cannot be read: %w", op.name, err)
		}
		drains = append(drains, drain)
	}
	return drains, nil
}
