package raftboard

import (
	"context"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// Decide implements jobs.Approver.
func (c *Client) Decide(ctx context.Context, decision jobs.DecisionCommand) (jobs.DecisionReceipt, error) {
	if decision.Decision.ID == "" {
		decision.Decision.ID = uuid.NewString() // identifies the repeats of this call
	}
	sent := &v1.Command{Kind: &v1.Command_Decide{Decide: command.DecideCommandToProto(&decision)}}
	return c.decide(ctx, "decide an approval of job "+decision.Job.String(), sent)
}

// Override implements jobs.Approver.
func (c *Client) Override(ctx context.Context, decision jobs.DecisionCommand) (jobs.DecisionReceipt, error) {
	if decision.Decision.ID == "" {
		decision.Decision.ID = uuid.NewString() // identifies the repeats of this call
	}
	sent := &v1.Command{Kind: &v1.Command_Override{Override: command.DecideCommandToProto(&decision)}}
	return c.decide(ctx, "override an approval of job "+decision.Job.String(), sent)
}

func (c *Client) decide(ctx context.Context, name string, sent *v1.Command) (jobs.DecisionReceipt, error) {
	result, err := submit(ctx, c.others, name, sent)
	if err != nil {
		return jobs.DecisionReceipt{}, err
	}
	return decoded(operation{name: name}, result.GetDecide(), command.DecisionReceiptFromProto)
}

// Approval implements jobs.Approver.
func (c *Client) Approval(ctx context.Context, job jobs.JobID, step string) (jobs.StepApproval, error) {
	op := operation{name: "read an approval of job " + job.String(), reads: true}
	answer, err := call(ctx, c.core, op, &v1.GetApprovalRequest{Job: job.String(), Step: step}, func(p *peer) unary[v1.GetApprovalRequest, v1.GetApprovalResponse] { return p.board.GetApproval })
	if err != nil {
		return jobs.StepApproval{}, err
	}
	return decoded(op, answer.GetApproval(), command.StepApprovalFromProto)
}

// Approvals implements jobs.Approver.
func (c *Client) Approvals(ctx context.Context, query jobs.ApprovalQuery) (jobs.Page[jobs.StepApproval], error) {
	op := operation{name: "list approvals", reads: true}
	query.Limit = int(pageLimit(query.Limit))
	answer, err := call(ctx, c.core, op, command.ApprovalQueryToProto(&query), func(p *peer) unary[v1.ListApprovalsRequest, v1.ListApprovalsResponse] { return p.board.ListApprovals })
	return paged(op, answer.GetApprovals(), answer.GetNext(), command.StepApprovalFromProto, err)
}
