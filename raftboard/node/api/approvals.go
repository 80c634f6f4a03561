package api

import (
	"context"
	"fmt"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/fields"
)

// checkAnswers checks the answers of a decision against the schema of the approval's fields. The state machine cannot:
// another version of the validator could decide otherwise on another node. The command gets the number of the wait whose
// schema was used, and the state machine refuses it for another wait.
func (s *Submitter) checkAnswers(c *conductordv1.Command) error {
	given := c.GetDecide()
	if given == nil {
		given = c.GetOverride()
	}
	if given == nil || given.GetKind() != string(logbook.Approve) {
		return nil
	}
	id, err := jobs.ParseJobID(given.GetJob())
	if err != nil {
		return err
	}
	approval, err := s.Machine.Approval(id, given.GetStep())
	if err != nil || !approval.Open {
		return nil //nolint:nilerr // the state machine refuses the decision, with the reason
	}
	if given.GetWait() == 0 {
		given.Wait = approval.Wait.Number
	}
	if given.GetWait() != approval.Wait.Number {
		return fmt.Errorf("cannot decide: %w: step %q waits for a new approval since you read this one: read the approval again, and then decide", jobs.ErrConflict, approval.Step)
	}
	given.Step = approval.Step
	if c.GetOverride() != nil && len(given.GetAnswers().GetJson()) == 0 {
		return nil // an override can leave the answers out
	}
	return fields.Check(approval.Wait.Approval.Fields, command.ValueFromProto(given.GetAnswers()))
}

func (s *boardService) getApproval(message *conductordv1.GetApprovalRequest) (*conductordv1.GetApprovalResponse, error) {
	id, err := jobs.ParseJobID(message.Job)
	if err != nil {
		return nil, err
	}
	approval, err := s.machine.Approval(id, message.Step)
	if err != nil {
		return nil, err
	}
	return &conductordv1.GetApprovalResponse{Approval: command.StepApprovalToProto(&approval)}, nil
}

func (s *boardService) listApprovals(ctx context.Context, message *conductordv1.ListApprovalsRequest) (*conductordv1.ListApprovalsResponse, error) {
	query, err := command.ApprovalQueryFromProto(message)
	if err != nil {
		return nil, err
	}
	shows, err := s.submit.Guard.ShownBoards(ctx)
	if err != nil {
		return nil, err
	}
	found, next, err := shown(query.After, func(after string) ([]jobs.StepApproval, string, error) {
		query.After = after
		page, err := s.machine.Approvals(query)
		return page.Items, page.Next, err
	}, func(a *jobs.StepApproval) bool { return shows(a.Board) }, nil)
	return &conductordv1.ListApprovalsResponse{Approvals: ToProto(found, command.StepApprovalToProto), Next: next}, err
}
