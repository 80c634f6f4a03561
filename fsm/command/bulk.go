package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// BulkCommand returns the command of a bulk for one of its jobs. All tries give the same command
// for a job that was not claimed meanwhile.
func BulkCommand(b *jobs.Bulk, j *jobs.Job) *v1.Command {
	request := JobCommandToProto(&jobs.JobCommand{Job: j.ID, Revert: b.Revert, By: b.By, Reason: b.Reason})
	switch b.Action {
	case jobs.ActionCancel:
		return &v1.Command{Kind: &v1.Command_Cancel{Cancel: request}}
	case jobs.ActionSuspend:
		return &v1.Command{Kind: &v1.Command_Suspend{Suspend: request}}
	case jobs.ActionResume:
		return &v1.Command{Kind: &v1.Command_Resume{Resume: request}}
	case jobs.ActionPurge:
		return &v1.Command{Kind: &v1.Command_Purge{Purge: request}}
	case jobs.ActionRetry:
		return &v1.Command{Kind: &v1.Command_Retry{Retry: request}}
	}
	panic("internal error: no command for bulk action " + string(b.Action))
}

// BulkToProto converts a bulk; nil stays nil.
func BulkToProto(b *jobs.Bulk) *v1.BulkRequest {
	if b == nil {
		return nil
	}
	return &v1.BulkRequest{
		Action: string(b.Action), Query: QueryToProto(&b.Query), By: b.By, Reason: text(b.Reason), Revert: b.Revert, DryRun: b.DryRun,
	}
}

// BulkFromProto converts a bulk. Nil is the zero bulk.
func BulkFromProto(message *v1.BulkRequest) (jobs.Bulk, error) {
	query, err := QueryFromProto(message.GetQuery())
	if err != nil {
		return jobs.Bulk{}, err
	}
	return jobs.Bulk{
		Action: jobs.Action(message.GetAction()), Query: query, By: message.GetBy(), Reason: message.GetReason(),
		Revert: message.GetRevert(), DryRun: message.GetDryRun(),
	}, nil
}

// BulkReportFromProto converts the result of one page of a bulk. Nil is the zero
// report.
func BulkReportFromProto(message *v1.BulkResponse) (jobs.BulkReport, error) {
	var r reader
	report := jobs.BulkReport{
		Matched: r.count("bulk matched", message.GetMatched()), Done: r.count("bulk done", message.GetDone()),
		Next: message.GetNext(), Scans: message.GetScans(),
	}
	for _, refused := range message.GetRefused() {
		report.Refused = append(report.Refused, jobs.BulkRefusal{
			Job: jobs.JobID{UUID: r.id("bulk job", refused.GetJob())}, Err: ErrorFromProto(refused.GetError()),
		})
	}
	if r.err != nil {
		return jobs.BulkReport{}, r.err
	}
	return report, nil
}
