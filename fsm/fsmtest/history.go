package fsmtest

import (
	"context"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Retry has a job begin again.
func (b *Board) Retry(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Retry{Retry: command.JobCommandToProto(&request)}})
	return err
}

// Purge removes a finished job.
func (b *Board) Purge(ctx context.Context, request jobs.JobCommand) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_Purge{Purge: command.JobCommandToProto(&request)}})
	return err
}

// Errors reads a page of errors.
func (b *Board) Errors(ctx context.Context, query jobs.ErrorQuery) (jobs.Page[jobs.JobError], error) {
	if err := ctx.Err(); err != nil {
		return jobs.Page[jobs.JobError]{}, err
	}
	return b.machine.Errors(query)
}

// Bulk does the same to each job of a page.
func (b *Board) Bulk(ctx context.Context, bulk jobs.Bulk) (jobs.BulkReport, error) {
	query, err := bulk.Narrowed()
	if err != nil {
		return jobs.BulkReport{}, err
	}
	page, err := b.Jobs(ctx, query)
	if err != nil {
		return jobs.BulkReport{}, err
	}
	page.Items = slices.DeleteFunc(page.Items, func(j jobs.Job) bool { return !bulk.Selects(&j) })
	report := jobs.BulkReport{Matched: len(page.Items), Next: page.Next, Scans: page.Scans}
	for i := range page.Items {
		if bulk.DryRun {
			break
		}
		if _, err := b.run(ctx, command.BulkCommand(&bulk, &page.Items[i])); err != nil {
			report.Refused = append(report.Refused, jobs.BulkRefusal{Job: page.Items[i].ID, Err: err})
			continue
		}
		report.Done++
	}
	return report, nil
}
