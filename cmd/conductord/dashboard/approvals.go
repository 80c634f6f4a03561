package dashboard

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// approvalsData is the data of the list of open approvals.
type approvalsData struct {
	Open      bool // without access control, decisions carry any name
	Approvals []approvalData
	More      pager
}

// approvalData is an approval, and the data of its page.
type approvalData struct {
	*jobs.StepApproval
	State      badge
	Anyone     bool // without access control, decisions carry any name
	Needs      string
	Missing    string
	Deciders   []string // people that approved, without withdrawn approvals
	Text       string
	Verdict    string // the end of a decided approval
	Unable     string // why the user cannot decide; empty: the user can, or has no permission
	Operations []operation
}

// loadApprovals lists the approvals that wait for decisions, the oldest first.
func loadApprovals(ctx context.Context, v *visit) (view, error) {
	board := v.query("board")
	answer, err := ask(ctx, v.api.board.ListApprovals, &v1.ListApprovalsRequest{Board: board, After: v.query("after"), Limit: v.rows(), Stale: true})
	data := approvalsData{Open: !v.who.GetEnforced(), More: v.more(answer.GetNext())}
	for _, message := range answer.GetApprovals() {
		a, err := command.StepApprovalFromProto(message)
		if err != nil {
			return view{}, err
		}
		data.Approvals = append(data.Approvals, v.shownApproval(&a))
	}
	return view{Title: "Approvals", Command: "conductord approval list" + boardFlag(board), Data: data, Watch: &v1.WatchRequest{Board: board}}, err
}

func (v *visit) shownApproval(a *jobs.StepApproval) approvalData {
	asked := a.Wait.Approval
	data := approvalData{
		StepApproval: a, Anyone: !v.who.GetEnforced(), Needs: logbook.NeedText(asked.Need), Missing: logbook.NeedText(a.Missing),
		Text: cut(asked.Text, v.bound(maxResult)), State: badge{"open", "○", "wait"},
	}
	for _, d := range asked.Standing() {
		data.Deciders = append(data.Deciders, d.By)
	}
	switch {
	case a.Outcome != "":
		data.State, data.Verdict = stateOf("completed", map[logbook.Outcome]string{logbook.Approved: "success", logbook.Rejected: "failed"}[a.Outcome]), asked.Verdict()
		data.State.Text = string(a.Outcome)
	case !a.Open:
		data.State = badge{"ended without a decision", "⊘", "calm"}
	}
	return data
}

// loadApproval shows the latest approval of a step, and the decisions that the user can make.
func loadApproval(ctx context.Context, v *visit) (view, error) {
	id, step := v.part("id"), v.part("step")
	a, err := v.approval(ctx, id, step, true)
	if err != nil {
		return view{}, err
	}
	data := v.shownApproval(&a)
	if a.Open {
		data.Unable = v.unable(&a)
		data.Operations = v.offered(approvalOperations(&a, v), a.Board, "approvals", id, step)
	}
	return view{Title: "Approval " + step, Command: "conductord approval show " + id + " " + cli.Operand(step), Data: data}, nil
}

func (v *visit) approval(ctx context.Context, id, step string, stale bool) (jobs.StepApproval, error) {
	got, err := ask(ctx, v.api.board.GetApproval, &v1.GetApprovalRequest{Job: id, Step: step, Stale: stale})
	if err != nil {
		return jobs.StepApproval{}, err
	}
	return command.StepApprovalFromProto(got.GetApproval())
}

// unable returns the reason for which the cluster will refuse a decision of the user. It only explains a missing
// button: the state machine decides.
func (v *visit) unable(a *jobs.StepApproval) string {
	if !v.who.GetEnforced() || !v.allowed(command.Decide, a.Board) {
		return ""
	}
	if !a.Wait.Approval.Self && a.PostedBy == v.who.GetName() {
		return "You posted the job, and the approval excludes the poster."
	}
	if _, err := a.Wait.Approval.NeededOf(v.who.GetName(), v.who.GetApproves()); err != nil {
		return "You have none of the needed roles. An administrator gives roles with conductord access save."
	}
	return ""
}

// approvalOperations is the table of decisions about an approval.
func approvalOperations(a *jobs.StepApproval, v *visit) []operation {
	said := func(verb, flags string) string {
		return "conductord approval " + verb + " " + a.Job.String() + " " + cli.Operand(a.Step) + flags
	}
	seen := []input{
		{Name: "wait", Kind: "hidden", Value: fmt.Sprint(a.Wait.Number)},
		{Name: "id", Kind: "hidden", Value: uuid.NewString()}, // a form that is sent twice decides once
	}
	if !v.who.GetEnforced() {
		seen = append(seen, input{Name: "by", Label: "Your name", Required: true})
	}
	with := func(more ...input) []input { return append(slices.Clip(seen), more...) }
	reason := input{Name: "reason", Label: "Reason", Required: true}
	approved := slices.ContainsFunc(a.Wait.Approval.Standing(), func(d logbook.Decision) bool { return !v.who.GetEnforced() || d.By == v.who.GetName() })
	unable := v.unable(a) != ""
	return []operation{
		{
			Verb: "approve", Text: "Approve", Command: said("approve", ""), Help: "The approval ends when one person for each need has approved.",
			Inputs: with(append(answerInputs(a.Wait.Approval.Fields), input{Name: "reason", Label: "Remark"})...), permission: command.Decide, unfit: unable,
		},
		{
			Verb: "reject", Text: "Reject", Sure: "Reject this approval", Command: said("reject", " --reason TEXT"), Help: "The approval ends, and the step fails.", Danger: true,
			Inputs: with(reason), permission: command.Decide, unfit: unable,
		},
		{
			Verb: "withdraw", Text: "Withdraw", Command: said("withdraw", ""), Help: "Withdraw your approval. The approval stays open.",
			Inputs: with(), permission: command.Decide, unfit: !approved,
		},
		{
			Verb: "override", Text: "Override", Sure: "Decide alone", Command: said("override", " --reason TEXT"), Help: "Approve or reject without the needed approvals.", Danger: true,
			Inputs:     with(input{Name: "kind", Label: "Decision", Choices: []string{string(logbook.Approve), string(logbook.Reject)}}, reason),
			permission: command.Override,
		},
	}
}

// decideApproval sends the decision of a form. The form's fields follow the schema of the approval that the user has
// seen.
func decideApproval(ctx context.Context, v *visit) (string, error) {
	id, step, verb := v.part("id"), v.part("step"), v.part("verb")
	decision := &v1.DecideCommand{Job: id, Step: step, Kind: verb, Id: v.form("id"), By: v.form("by"), Reason: v.form("reason")}
	if _, err := fmt.Sscan(v.form("wait"), &decision.Wait); err != nil {
		return "", fmt.Errorf("%w: field wait is %.64q, and must be the number of the wait", jobs.ErrInvalid, v.form("wait"))
	}
	next := addressBelow("approvals", id, step)
	switch verb {
	case "override":
		decision.Kind = v.form("kind")
		_, err := ask(ctx, v.api.board.Override, decision)
		return next, err
	case string(logbook.Approve):
		a, err := v.approval(ctx, id, step, false)
		if err != nil {
			return "", err
		}
		answers, err := v.answers(a.Wait.Approval.Fields)
		if err != nil {
			return "", err
		}
		decision.Answers = command.ValueToProto(answers)
	case string(logbook.Reject), string(logbook.Withdraw):
	default:
		return "", fmt.Errorf("%w: there is no action %.64q", jobs.ErrNotFound, verb)
	}
	_, err := ask(ctx, v.api.board.Decide, decision)
	return next, err
}
