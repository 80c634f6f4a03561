package job

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// ApprovalCommand makes the noun of approvals.
func ApprovalCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("approval", "List and decide the approvals that steps wait for",
		listApprovals(p), showApproval(p), approveCommand(p), rejectCommand(p), withdrawCommand(p), overrideCommand(p))
}

func listApprovals(p *cli.Program) *cobra.Command {
	board := ""
	list := cli.List[jobs.StepApproval]{
		What: "approvals",
		Answer: func(items []jobs.StepApproval, next string) proto.Message {
			return &v1.ListApprovalsResponse{Approvals: cli.Messages(items, command.StepApprovalToProto), Next: next}
		},
		Read: func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]jobs.StepApproval, string, error) {
			page, err := cluster.Approvals(ctx, jobs.ApprovalQuery{Board: board, After: after, Limit: limit})
			return page.Items, page.Next, err
		},
		Header: []string{"JOB", "BOARD", "STEP", "SINCE", "UNTIL", "MISSING", "TEXT"},
		Row: func(a *jobs.StepApproval) []string {
			return []string{a.Job.String(), a.Board, a.Step, p.TimeText(a.Wait.Since), p.TimeText(a.Wait.Until), logbook.NeedText(a.Missing), cli.Shorten(a.Wait.Approval.Text)}
		},
	}
	cmd := list.Command(p, &cobra.Command{Use: "list", Short: "List approvals that wait for decisions, the oldest first"}, nil)
	cmd.Flags().StringVar(&board, "board", "", "only approvals of jobs on this board")
	return cmd
}

func showApproval(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "show JOB [STEP]",
		Short: "Show the latest approval of a step: text, needs, fields and decisions",
		Long:  "Show the latest approval of a step, even after its end. Without STEP, the job must have exactly one open approval.",
		Args:  cobra.RangeArgs(1, 2),
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
			id, step, err := jobAndStep(args)
			if err != nil {
				return err
			}
			a, err := cluster.Approval(ctx, id, step)
			if err != nil {
				return cli.Because(err, "show the approval")
			}
			if p.JSON() {
				return p.WriteJSON(command.StepApprovalToProto(&a))
			}
			return writeApproval(p, &a)
		}),
	}
}

// writeApproval prints an approval, and a table of its decisions.
func writeApproval(p *cli.Program, a *jobs.StepApproval) error {
	state := "ended without a decision"
	switch {
	case a.Outcome != "":
		state = a.Wait.Approval.Verdict()
	case a.Open:
		state = "open"
	}
	fields := []cli.Field{
		{"job", a.Job.String()}, {"step", a.Step}, {"text", a.Wait.Approval.Text}, {"state", state},
		{"needs", logbook.NeedText(a.Wait.Approval.Need)}, {"missing", logbook.NeedText(a.Missing)}, {"poster", a.PostedBy},
		{"since", p.TimeText(a.Wait.Since)}, {"until", p.TimeText(a.Wait.Until)},
		{"at deadline", string(a.Wait.Approval.AtDeadline)}, {"fields", string(a.Wait.Approval.Fields)},
	}
	if err := p.WriteFields(fields); err != nil || len(a.Wait.Approval.Decisions) == 0 {
		return err
	}
	var rows [][]string
	for i := range a.Wait.Approval.Decisions {
		d := &a.Wait.Approval.Decisions[i]
		kind := string(d.Kind)
		if d.Override {
			kind += " (override)"
		}
		rows = append(rows, []string{p.TimeText(d.At), d.By, kind, cli.OrDash(d.Reason), cli.OrDash(string(d.Answers))})
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	return p.WriteTable([]string{"AT", "BY", "DECISION", "REASON", "ANSWERS"}, rows)
}

// decisionFlags are the flags of a decision.
type decisionFlags struct {
	decision logbook.Decision
	answers  string
}

func (f *decisionFlags) add(cmd *cobra.Command, reason string) {
	cmd.Flags().StringVar(&f.decision.By, "by", cli.OperatorName(), "name of the person; ignored with access control, which uses the principal")
	cmd.Flags().StringVar(&f.decision.ID, "id", "", "id of the decision (default: random); repeating a decision with the same id has no effect")
	if reason != "" {
		cmd.Flags().StringVar(&f.decision.Reason, "reason", "", reason)
	}
}

func (f *decisionFlags) addAnswers(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.answers, "answers", "", "JSON object with the answers to the fields of the approval")
}

// deciding completes a command that decides. send is Decide or Override.
func (f *decisionFlags) deciding(p *cli.Program, cmd *cobra.Command, send func(cli.Cluster, context.Context, jobs.DecisionCommand) (jobs.DecisionReceipt, error)) *cobra.Command {
	cmd.Args = cobra.RangeArgs(1, 2)
	cmd.RunE = p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
		id, step, err := jobAndStep(args)
		if err != nil {
			return err
		}
		if f.answers != "" {
			f.decision.Answers = json.RawMessage(f.answers)
		}
		receipt, err := send(cluster, ctx, jobs.DecisionCommand{Job: id, Step: step, Decision: f.decision})
		if err != nil {
			return cli.Because(err, "decide")
		}
		line := "recorded; missing: " + logbook.NeedText(receipt.Missing)
		if receipt.Outcome != "" {
			line = string(receipt.Outcome)
		}
		if receipt.Repeated {
			line = "repeated; " + line
		}
		return p.Show(command.DecisionReceiptToProto(&receipt), "%s", line)
	})
	return cmd
}

func approveCommand(p *cli.Program) *cobra.Command {
	f := &decisionFlags{decision: logbook.Decision{Kind: logbook.Approve}}
	cmd := f.deciding(p, &cobra.Command{
		Use: "approve JOB [STEP]", Short: "Approve a step that waits for approval",
		Long: "Approve a step that waits for approval. The command prints \"approved\", or the needs that are still missing.\n" +
			"Without STEP, the job must have exactly one open approval. The command fails with exit code 4 if the approval has ended.",
	}, cli.Cluster.Decide)
	f.add(cmd, "remark on the decision")
	f.addAnswers(cmd)
	return cmd
}

func rejectCommand(p *cli.Program) *cobra.Command {
	f := &decisionFlags{decision: logbook.Decision{Kind: logbook.Reject}}
	cmd := f.deciding(p, &cobra.Command{Use: "reject JOB [STEP]", Short: "Reject a step that waits for approval: the step fails"}, cli.Cluster.Decide)
	f.add(cmd, "reason of the rejection; required")
	return cmd
}

func withdrawCommand(p *cli.Program) *cobra.Command {
	f := &decisionFlags{decision: logbook.Decision{Kind: logbook.Withdraw}}
	cmd := f.deciding(p, &cobra.Command{Use: "withdraw JOB [STEP]", Short: "Withdraw your approval, while the approval is open"}, cli.Cluster.Decide)
	f.add(cmd, "")
	return cmd
}

func overrideCommand(p *cli.Program) *cobra.Command {
	f := &decisionFlags{decision: logbook.Decision{Kind: logbook.Approve}}
	reject := false
	cmd := f.deciding(p, &cobra.Command{Use: "override JOB [STEP]", Short: "Approve or reject without the needed approvals; requires the role administrator"},
		func(cluster cli.Cluster, ctx context.Context, c jobs.DecisionCommand) (jobs.DecisionReceipt, error) {
			if reject {
				c.Decision.Kind = logbook.Reject
			}
			return cluster.Override(ctx, c)
		})
	f.add(cmd, "reason of the override; required")
	f.addAnswers(cmd)
	cmd.Flags().BoolVar(&reject, "reject", false, "reject instead of approving")
	return cmd
}

// jobAndStep reads the arguments JOB, JOB STEP or JOB/STEP.
func jobAndStep(args []string) (jobs.JobID, string, error) {
	id, step, found := strings.Cut(args[0], "/")
	if len(args) == 2 {
		if found {
			return jobs.JobID{}, "", cli.UsageError(fmt.Errorf("%.80q and %.80q both name a step: write JOB/STEP or JOB STEP", args[0], args[1]))
		}
		step = args[1]
	}
	job, err := jobs.ParseJobID(id)
	return job, step, err
}
