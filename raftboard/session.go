package raftboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// OpenSession implements jobs.Attendant.
func (c *Client) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	op := operation{name: "open session " + opening.ID.String()}
	if err := jobs.CheckOpening(logbook.MaxLimits, &opening); err != nil {
		return jobs.Session{}, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	request := &v1.OpenRequest{Opening: command.OpeningToProto(&opening)}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.OpenRequest, v1.OpenResponse] { return p.sessions.Open })
	if err != nil {
		return jobs.Session{}, err
	}
	return decoded(op, answer.GetSession(), command.SessionFromProto)
}

// KeepAlive implements jobs.Attendant. It does not wait for other calls, and an attempt takes at
// most a second, so that a hanging node does not end a session.
func (c *Client) KeepAlive(ctx context.Context, id jobs.SessionID) error {
	op := operation{name: "keep session " + id.String() + " alive", try: keepAliveTime, over: conductordv1connect.SessionServiceKeepAliveProcedure}
	request := &v1.KeepAliveRequest{Session: id.String()}
	_, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.KeepAliveRequest, v1.Done] { return p.sessions.KeepAlive })
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

// Sessions implements jobs.Attendant, with as many calls as the list needs.
func (c *Client) Sessions(ctx context.Context) ([]jobs.Session, error) {
	op := operation{name: "list sessions", reads: true, stale: c.stale}
	return allPages(op, func(after string) (jobs.Page[jobs.Session], error) {
		request := &v1.ListSessionsRequest{Stale: c.stale, After: after}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListSessionsRequest, v1.ListSessionsResponse] {
			return p.sessions.ListSessions
		})
		return paged(op, answer.GetSessions(), answer.GetNext(), command.SessionFromProto, err)
	})
}

// Entities implements jobs.Attendant, with as many calls as the list needs.
func (c *Client) Entities(ctx context.Context, kind string) ([]jobs.Entity, error) {
	op := operation{name: "list entities", reads: true, stale: c.stale}
	entities, err := allPages(op, func(after string) (jobs.Page[jobs.Entity], error) {
		request := &v1.ListEntitiesRequest{Kind: kind, Stale: c.stale, After: after}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListEntitiesRequest, v1.ListEntitiesResponse] {
			return p.sessions.ListEntities
		})
		return paged(op, answer.GetEntities(), answer.GetNext(), command.EntityFromProto, err)
	})
	slices.SortStableFunc(entities, func(a, b jobs.Entity) int { // each page is in this order, but not the list of pages
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return entities, err
}

// DrainConductor implements jobs.Conductors.
func (c *Client) DrainConductor(ctx context.Context, request jobs.DrainCommand) error {
	message := &v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: command.DrainCommandToProto(&request)}}
	return c.send(ctx, fmt.Sprintf("drain conductor %q", request.Conductor), message)
}

// UndrainConductor implements jobs.Conductors.
func (c *Client) UndrainConductor(ctx context.Context, request jobs.DrainCommand) error {
	name := fmt.Sprintf("undrain conductor %q", request.Conductor)
	message := &v1.Command{Kind: &v1.Command_UndrainConductor{UndrainConductor: command.DrainCommandToProto(&request)}}
	return c.remove(ctx, name, message, jobs.ErrNotFound)
}

// Drains implements jobs.Conductors, with as many calls as the list needs.
func (c *Client) Drains(ctx context.Context) ([]jobs.Drain, error) {
	op := operation{name: "list drains", reads: true, stale: c.stale}
	return allPages(op, func(after string) (jobs.Page[jobs.Drain], error) {
		request := &v1.ListDrainsRequest{Stale: c.stale, After: after}
		answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListDrainsRequest, v1.ListDrainsResponse] {
			return p.sessions.ListDrains
		})
		return paged(op, answer.GetDrains(), answer.GetNext(), command.DrainFromProto, err)
	})
}
