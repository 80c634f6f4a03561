package jobs

import (
	"context"

	"github.com/conductord/conductord/logbook"
)

// Approver decides the approvals for which steps wait: see logbook.Approval.
type Approver interface {
	// Decide approves or rejects the approval of a step, or withdraws the person's approval. A person that
	// decides again replaces the earlier approval. The decision that ends the approval continues the job in the
	// same log entry.
	//
	// With access control, the person is the caller, and must have one of the needed roles: ErrNotAllowed. The
	// job's poster may not decide, unless the approval has Self. Without access control, the person is
	// Decision.By, and has every role.
	//
	// Without an ID, the client draws one. A repeat of the same ID changes nothing.
	//
	// ErrNotFound for an unknown job or step. ErrJobOver if the job is finished. ErrDecided after the end of the
	// approval; its message names the person and the time. ErrConflict if the step waits for no approval, if the
	// person withdraws and has not approved, and if Wait names an earlier wait. ErrInvalid or ErrLimit for a
	// decision that logbook.Limits.CheckDecision refuses, for answers that the schema of the fields refuses, and
	// at logbook.MaxDecisions.
	Decide(ctx context.Context, command DecisionCommand) (DecisionReceipt, error)

	// Override approves or rejects the approval of a step alone, whatever the approval needs. It has its own
	// permission, and needs a reason. The errors are those of Decide.
	Override(ctx context.Context, command DecisionCommand) (DecisionReceipt, error)

	// Approval reads the latest approval of a step, even after its end. Without a step, it reads the one open approval
	// of the job. ErrNotFound. ErrConflict if the step has no approval.
	Approval(ctx context.Context, job JobID, step string) (StepApproval, error)

	// Approvals reads a page of the approvals that wait for decisions, the oldest first.
	Approvals(ctx context.Context, query ApprovalQuery) (Page[StepApproval], error)
}

// DecisionCommand is a decision and its step.
type DecisionCommand struct {
	Job  JobID
	Step string // empty: the one step of the job that waits for an approval
	// Wait is the number of the wait that the person has seen: see logbook.Wait. 0: the current wait.
	Wait     uint64
	Decision logbook.Decision
}

// DecisionReceipt is the durable answer to a decision.
type DecisionReceipt struct {
	Step     string
	Outcome  logbook.Outcome // empty: not decided yet
	Missing  []logbook.Need  // needs that are not filled yet
	Repeated bool            // the approval had a decision with this id before
}

// StepApproval is the approval of a step of a job.
type StepApproval struct {
	Job      JobID
	Board    string
	JobName  string
	Flow     logbook.FlowID
	Step     string
	PostedBy string // the principal that posted the job; empty without access control
	Wait     logbook.Wait
	Outcome  logbook.Outcome // empty: not decided by people
	Missing  []logbook.Need  // needs that are not filled yet
	Open     bool            // the approval accepts decisions
}

// ApprovalQuery selects open approvals.
type ApprovalQuery struct {
	Board string // empty: all boards
	After string // Next of the previous page
	Limit int    // 0: a default
}

// CheckDecisionCommand checks a decision before it is written.
func CheckDecisionCommand(l logbook.Limits, c *DecisionCommand) error {
	if c.Job.IsZero() {
		return &logbook.InvalidError{Field: "decision job", Reason: "unset"}
	}
	if c.Step != "" {
		if err := l.CheckName("decision step", c.Step); err != nil {
			return err
		}
	}
	return l.CheckDecision(&c.Decision)
}
