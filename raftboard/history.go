package raftboard

import (
	"context"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Retry implements jobs.Historian.
func (c *Client) Retry(ctx context.Context, request jobs.JobCommand) error {
	return c.order(ctx, "retry", request, &v1.Command{Kind: &v1.Command_Retry{Retry: command.JobCommandToProto(&request)}})
}

// Purge implements jobs.Historian.
func (c *Client) Purge(ctx context.Context, request jobs.JobCommand) error {
	message := &v1.Command{Kind: &v1.Command_Purge{Purge: command.JobCommandToProto(&request)}}
	return c.remove(ctx, "purge job "+request.Job.String(), message, jobs.ErrNotFound)
}

// Errors implements jobs.Historian.
func (c *Client) Errors(ctx context.Context, query jobs.ErrorQuery) (jobs.Page[jobs.JobError], error) {
	op := operation{name: "list errors", reads: true, stale: c.stale}
	query.Limit = int(pageLimit(query.Limit))
	request := command.ErrorQueryToProto(&query)
	request.Stale = c.stale
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ListErrorsRequest, v1.ListErrorsResponse] { return p.board.ListErrors })
	page, err := paged(op, answer.GetErrors(), answer.GetNext(), command.JobErrorFromProto, err)
	page.Scans = answer.GetScans()
	return page, err
}

// Bulk implements jobs.Historian.
func (c *Client) Bulk(ctx context.Context, bulk jobs.Bulk) (jobs.BulkReport, error) {
	op := operation{name: fmt.Sprintf("%s many jobs", bulk.Action)}
	if _, err := bulk.Narrowed(); err != nil {
		return jobs.BulkReport{}, fmt.Errorf("cannot apply a bulk action: %w", err)
	}
	bulk.Query.Limit = int(pageLimit(bulk.Query.Limit))
	answer, err := call(ctx, c.core, op, command.BulkToProto(&bulk), func(p *peer) unary[v1.BulkRequest, v1.BulkResponse] { return p.board.Bulk })
	if err != nil {
		return jobs.BulkReport{}, err
	}
	return decoded(op, answer, command.BulkReportFromProto)
}
