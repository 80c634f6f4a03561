package raftboard

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// CreateBoard implements jobs.Boards.
func (c *Client) CreateBoard(ctx context.Context, name string) error {
	return c.send(ctx, "create board "+name, &v1.Command{Kind: &v1.Command_CreateBoard{CreateBoard: &v1.BoardCommand{Board: name}}})
}

// LimitBoard implements jobs.Boards.
func (c *Client) LimitBoard(ctx context.Context, name string, limits jobs.BoardLimits) error {
	limit := &v1.LimitBoardCommand{Board: name, Limits: command.BoardLimitsToProto(limits)}
	return c.send(ctx, "limit board "+name, &v1.Command{Kind: &v1.Command_LimitBoard{LimitBoard: limit}})
}

// AgeBoard implements jobs.Boards.
func (c *Client) AgeBoard(ctx context.Context, name string, step time.Duration) error {
	age := &v1.AgeBoardCommand{Board: name, Step: command.DurationToProto(step)}
	return c.send(ctx, "age the jobs of board "+name, &v1.Command{Kind: &v1.Command_AgeBoard{AgeBoard: age}})
}

// PauseBoard implements jobs.Boards.
func (c *Client) PauseBoard(ctx context.Context, request jobs.BoardCommand) error {
	pause := &v1.BoardCommand{Board: request.Board, By: request.By, Reason: request.Reason}
	return c.send(ctx, "pause board "+request.Board, &v1.Command{Kind: &v1.Command_PauseBoard{PauseBoard: pause}})
}

// ResumeBoard implements jobs.Boards.
func (c *Client) ResumeBoard(ctx context.Context, request jobs.BoardCommand) error {
	resume := &v1.BoardCommand{Board: request.Board, By: request.By, Reason: request.Reason}
	return c.send(ctx, "resume board "+request.Board, &v1.Command{Kind: &v1.Command_ResumeBoard{ResumeBoard: resume}})
}

// DeleteBoard implements jobs.Boards.
func (c *Client) DeleteBoard(ctx context.Context, name string) error {
	message := &v1.Command{Kind: &v1.Command_DeleteBoard{DeleteBoard: &v1.BoardCommand{Board: name}}}
	return c.remove(ctx, "delete board "+name, message, jobs.ErrNotFound)
}

// BoardStatus implements jobs.Boards.
func (c *Client) BoardStatus(ctx context.Context, name string) (jobs.BoardStatus, error) {
	op := operation{name: fmt.Sprintf("read board %q", name), reads: true, stale: c.stale}
	request := &v1.GetBoardRequest{Board: name, Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.GetBoardRequest, v1.GetBoardResponse] { return p.board.GetBoard })
	if err != nil {
		return jobs.BoardStatus{}, err
	}
	return decoded(op, answer.GetBoard(), command.BoardFromProto)
}

// BoardList implements jobs.Boards.
func (c *Client) BoardList(ctx context.Context, after string, limit int) (jobs.Page[jobs.BoardStatus], error) {
	op := operation{name: "list boards", reads: true, stale: c.stale}
	request := &v1.ListBoardsRequest{After: after, Limit: pageLimit(limit), Stale: c.stale}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListBoardsRequest, v1.ListBoardsResponse] { return p.board.ListBoards })
	return paged(op, answer.GetBoards(), answer.GetNext(), command.BoardFromProto, err)
}
