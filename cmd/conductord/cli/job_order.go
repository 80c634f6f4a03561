package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

// ordering is one of the three ways to steer a job without owning it.
type ordering struct {
	verb, short, long string
	give              func(jobs.Controller, context.Context, jobs.Order) error
}

func orderings() []ordering {
	return []ordering{
		{
			"suspend", "Stop a job where it is, until it is resumed",
			"Steps that run come to their end first; nothing more starts. A job that nobody has claimed is\n" +
				"suspended at once, one that somebody has when its conductor has put it down.",
			jobs.Controller.Suspend,
		},
		{
			"resume", "Let a suspended job go on",
			"What was recorded is not done again.",
			jobs.Controller.Resume,
		},
		{
			"cancel", "End a job before its work is done",
			"With --revert, which is the default, all that its flow has done is undone first, by a conductor, also\n" +
				"if none has the job now. With --revert=false the flow is left as it stands, and another job could take\n" +
				"it up. A job whose flow has not begun is cancelled at once.",
			jobs.Controller.Cancel,
		},
	}
}

func (p *Program) jobOrderCommand(how ordering) *cobra.Command {
	order := jobs.Order{}
	cmd := &cobra.Command{
		Use:   how.verb + " ID",
		Short: how.short,
		Long:  how.short + ".\n\n" + how.long + "\n\nWho gave the order, when and why is kept with the job. To repeat it is harmless.",
		Args:  cobra.ExactArgs(1),
		RunE: about(p, jobs.ParseJobID, func(ctx context.Context, cluster Cluster, id jobs.JobID) error {
			order.Job, order.By = id, operatorName()
			return p.giveOrder(ctx, cluster, how, order)
		}),
	}
	cmd.Flags().StringVar(&order.Reason, "reason", "", "why, in one sentence")
	if how.verb == string(jobs.OrderCancel) {
		cmd.Flags().BoolVar(&order.Revert, "revert", true, "undo what was done")
	}
	return cmd
}

// giveOrder gives an order, and shows where the job stands then.
func (p *Program) giveOrder(ctx context.Context, cluster Cluster, how ordering, order jobs.Order) error {
	if err := how.give(cluster, ctx, order); err != nil {
		return because(err, "%s job %s", how.verb, order.Job)
	}
	return p.showChanged(ctx, cluster, order.Job, func(job *jobs.Job) string {
		line := howEnded(job)
		if job.Order != nil && !job.State.Finished() && job.State != jobs.StateSuspended {
			line += ", to be " + orderDone(job.Order)
		}
		return line
	})
}

// orderDone says what an order will have brought about.
func orderDone(order *jobs.StandingOrder) string {
	switch {
	case order.Kind == jobs.OrderSuspend:
		return "suspended"
	case order.Revert:
		return "undone and cancelled"
	}
	return "cancelled"
}

// orderText is the order that a job is under, in a line.
func orderText(order *jobs.StandingOrder) string {
	if order == nil {
		return ""
	}
	said := string(order.Kind)
	if order.Kind == jobs.OrderCancel && order.Revert {
		said += " and undo"
	}
	said += ", at " + timeText(order.At)
	if order.By != "" {
		said += " by " + Clean(order.By)
	}
	if order.Reason != "" {
		said += ": " + Clean(order.Reason)
	}
	return said
}
