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

// Errors implements jobs.Historian.
func (c *Client) Errors(ctx context.Context, query jobs.ErrorQuery) (jobs.ErrorPage, error) {
	op := operation{name: "list errors", reads: true, stale: c.stale}
	query.Limit = int(pageLimit(query.Limit))
	request := command.ErrorQueryToProto(&query)
	request.Stale = c.stale
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListErrorsRequest, v1.ListErrorsResponse] { return p.board.ListErrors })
	if err != nil {
		return jobs.ErrorPage{}, err
	}
	page := jobs.ErrorPage{Scans: answer.GetScans()}
	if answer.GetNext() != nil {
		next := command.PositionFromProto(answer.GetNext())
		page.Next = &next
	}
	for _, message := range answer.GetErrors() {
		e, err := command.JobErrorFromProto(message)
		if err != nil {
			return jobs.ErrorPage{}, fmt.Errorf("cannot %s: the answer cannot be read: %w", op.name, err)
		}
		page.Errors = append(page.Errors, e)
	}
	return page, nil
}

// Bulk implements jobs.Historian.
func (c *Client) Bulk(ctx context.Context, bulk jobs.Bulk) (jobs.BulkReport, error) {
	op := operation{name: fmt.Sprintf("%s many jobs", bulk.Action)}
	if _, err := bulk.Narrowed(); err != nil {
		return jobs.BulkReport{}, fmt.Errorf("cannot deal with many jobs: %w", err)
	}
	bulk.Query.Limit = int(pageLimit(bulk.Query.Limit))
	answer, err := call(ctx, c.core, op, command.BulkToProto(&bulk), func(p *peer) unary[v1.BulkRequest, v1.BulkResponse] { return p.board.Bulk })
	if err != nil {
		return jobs.BulkReport{}, err
	}
	report, err := command.BulkReportFromProto(answer)
	if err != nil {
		return jobs.BulkReport{}, fmt.Errorf("cannot %s: %w", op.name, unreadable(err))
	}
	return report, nil
}
