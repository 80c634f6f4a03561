package fsmtest

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Restore puts a finished job back on its board.
func (b *Board) Restore(ctx context.Context, order jobs.Order) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Restore{Restore: command.OrderToProto(&order)}})
	return err
}

// Purge removes a finished job.
func (b *Board) Purge(ctx context.Context, order jobs.Order) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Purge{Purge: command.OrderToProto(&order)}})
	return err
}

// Errors reads a page of errors.
func (b *Board) Errors(ctx context.Context, query jobs.ErrorQuery) (jobs.ErrorPage, error) {
	if err := ctx.Err(); err != nil {
		return jobs.ErrorPage{}, err
	}
	return b.machine.Errors(query)
}
