package flow

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// impatient ends the waits of a job's steps.
type impatient interface {
	RetryNow(ctx context.Context, command jobs.JobCommand) error
	Job(ctx context.Context, id jobs.JobID) (jobs.Job, error)
}

func retryNowCommand(p *cli.Program) *cobra.Command {
	var request jobs.JobCommand
	cmd := &cobra.Command{
		Use:   "retry-now JOB [STEP]",
		Short: "Start steps that wait for their next attempt, before they are due",
		Long: "Start a step that waits for its next attempt: after a failure, between the rounds of a flow's retry, or after\n" +
			"\"not yet\". Without STEP, start all such steps of the job. If the job itself waits, it is claimable immediately.\n" +
			"The maximum number of attempts stays the same. The command fails with exit code 4 if nothing waits.",
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if request.Job, err = jobs.ParseJobID(args[0]); err != nil {
			return err
		}
		if len(args) > 1 {
			request.Step = args[1]
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error { return retryNow(ctx, p, cluster, request) })
	}
	cmd.Flags().StringVar(&request.By, "by", cli.OperatorName(), "name of the operator")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	return cmd
}

// retryNow ends the wait of a job's steps, and prints the job's state.
func retryNow(ctx context.Context, p *cli.Program, cluster impatient, request jobs.JobCommand) error {
	if err := cluster.RetryNow(ctx, request); err != nil {
		return cli.Because(err, "retry job %s now", request.Job)
	}
	job, err := cluster.Job(ctx, request.Job)
	if err != nil {
		return cli.Because(err, "read job %s (the change was made)", request.Job)
	}
	if p.JSON() {
		return p.WriteJSON(command.JobToProto(&job))
	}
	return p.WriteLines([]string{job.ID.String() + " " + string(job.State)})
}
