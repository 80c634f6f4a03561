package raftboard

import (
	"context"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Restore implements jobs.Historian.
func (c *Client) Restore(ctx context.Context, order jobs.Order) error {
	return c.order(ctx, "restore", order, &v1.Command{Kind: &v1.Command_Restore{Restore: command.OrderToProto(&order)}})
}

// Purge implements jobs.Historian.
func (c *Client) Purge(ctx context.Context, order jobs.Order) error {
	name := "purge job " + order.Job.String()
	message := &v1.Command{Kind: &v1.Command_Purge{Purge: command.OrderToProto(&order)}}
	if err := command.Check(logbook.MaxLimits, message); err != nil {
		return fmt.Errorf("cannot %s: %w", name, err)
	}
	return c.remove(ctx, name, message, jobs.ErrNotFound)
}
