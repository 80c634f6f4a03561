package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

// stopping is one of the three commands to steer a job without owning it.
type stopping struct {
	verb, short, long string
	give              func(jobs.Controller, context.Context, jobs.JobCommand) error
}

func stopCommands() []stopping {
	return []stopping{
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

func (p *Program) jobOrderCommand(how stopping) *cobra.Command {
	request := jobs.JobCommand{}
	cmd := &cobra.Command{
		Use:   how.verb + " ID",
		Short: how.short,
		Long:  how.short + ".\n\n" + how.long + "\n\nWho requested it, when and why is kept with the job. To repeat it is harmless.",
		Args:  cobra.ExactArgs(1),
		RunE: about(p, jobs.ParseJobID, func(ctx context.Context, cluster Cluster, id jobs.JobID) error {
			request.Job, request.By = id, operatorName()
			return p.requestStop(ctx, cluster, how, request)
		}),
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "why, in one sentence")
	if how.verb == string(jobs.RequestCancel) {
		cmd.Flags().BoolVar(&request.Revert, "revert", true, "undo what was done")
	}
	return cmd
}

// requestStop sends a request, and shows where the job stands then.
func (p *Program) requestStop(ctx context.Context, cluster Cluster, how stopping, request jobs.JobCommand) error {
	if err := how.give(cluster, ctx, request); err != nil {
		return because(err, "%s job %s", how.verb, request.Job)
	}
	return p.showChanged(ctx, cluster, request.Job, func(job *jobs.Job) string {
		line := howEnded(job)
		if job.StopRequest != nil && !job.State.Finished() && job.State != jobs.StateSuspended {
			line += ", to be " + stopDone(job.StopRequest)
		}
		return line
	})
}

// stopDone says what a stop request will have brought about.
func stopDone(request *jobs.OperatorRequest) string {
	switch {
	case request.Kind == jobs.RequestSuspend:
		return "suspended"
	case request.Revert:
		return "undone and cancelled"
	}
	return "cancelled"
}

// stopText is the order that a job is under, in a line.
func stopText(request *jobs.OperatorRequest) string {
	if request == nil {
		return ""
	}
	said := string(request.Kind)
	if request.Kind == jobs.RequestCancel && request.Revert {
		said += " and undo"
	}
	said += ", at " + timeText(request.At)
	if request.By != "" {
		said += " by " + Clean(request.By)
	}
	if request.Reason != "" {
		said += ": " + Clean(request.Reason)
	}
	return said
}
