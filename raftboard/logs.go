package raftboard

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs/steplog"
)

// ReadLogs reads the output of a job's steps, also while they run, from the node whose conductor
// has the job or had it last; see steplog.Page. Errors: ErrNotFound; ErrInvalid for an After that
// is no Next; ErrNotAllowed if the caller may not see values; ErrUnavailable if that node does
// not answer.
func (c *Client) ReadLogs(ctx context.Context, query steplog.Query) (steplog.Page, error) {
	wait := min(query.Wait, pollTime)
	op := operation{name: "read the logs of job " + query.Job.String(), reads: true, stale: true, try: wait + pollGrace}
	request := &v1.ReadLogsRequest{Job: query.Job.String(), Step: query.Step, After: query.After, Wait: command.DurationToProto(wait)}
	answer, err := call(ctx, c.core, op, request, func(p *peer) unary[v1.ReadLogsRequest, v1.ReadLogsResponse] { return p.board.ReadLogs })
	if err != nil {
		return steplog.Page{}, err
	}
	lines, err := listed(op, answer.GetLines(), command.LogLineFromProto)
	return steplog.Page{Lines: lines, Next: answer.GetNext(), Running: answer.GetRunning(), Node: answer.GetNode()}, err
}
