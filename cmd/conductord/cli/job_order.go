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
			"suspend", "Suspend a job until it is resumed",
			"Running steps finish first, and no more start. A job that is not claimed is suspended at once, a\n" +
				"claimed one when its conductor has stopped it.",
			jobs.Controller.Suspend,
		},
		{
			"resume", "Resume a suspended job",
			"Recorded steps are not executed again.",
			jobs.Controller.Resume,
		},
		{
			"cancel", "Cancel a job, and undo what it has done",
			"With --revert, the default, a conductor first undoes all that its flow has done, even if none holds the\n" +
				"job now. With --revert=false the flow is left as it is, and another job can continue it. A job whose\n" +
				"flow has not begun is cancelled at once.",
			jobs.Controller.Cancel,
		},
	}
}

func (p *Program) jobOrderCommand(how ordering) *cobra.Command {
	order := jobs.Order{}
	cmd := &cobra.Command{
		Use:   how.verb + " ID",
		Short: how.short,
		Long:  how.short + ".\n\n" + how.long + "\n\nWho requested it, when and why is kept with the job. To repeat it is harmless.",
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
