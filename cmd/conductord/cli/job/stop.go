package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
)

// stopping is one of the three commands that make a stop request, or withdraw one, without owning
// the job.
type stopping struct {
	verb, short, long string
	give              func(controller, context.Context, jobs.JobCommand) error
}

func stopCommands() []stopping {
	return []stopping{
		{
			"suspend", "Suspend a job until it is resumed",
			"No more steps start, and running steps finish. With --interrupt-steps, running steps are\n" +
				"interrupted, and start again when you resume the job; at_most_once steps still finish. A job without\n" +
				"a claim is suspended immediately. A claimed job is suspended when its conductor has stopped it.",
			controller.Suspend,
		},
		{
			"resume", "Resume a suspended job",
			"Finished steps do not run again.",
			controller.Resume,
		},
		{
			"cancel", "Cancel a job, and revert its finished steps",
			"Running steps are interrupted: a handler gets SIGTERM, and SIGKILL after the grace. With\n" +
				"--wait-for-steps, running steps finish first; uninterruptible steps always do. With\n" +
				"--revert, the default, a conductor then reverts the flow's finished steps, even if no conductor holds\n" +
				"the job now. With --revert=false, the flow stays as it is, and another job can continue it. A job\n" +
				"whose flow has not started is cancelled immediately.",
			controller.Cancel,
		},
	}
}

func orderCommand(p *cli.Program, how stopping) *cobra.Command {
	request := jobs.JobCommand{}
	var steps func() jobs.StepsPolicy
	cmd := &cobra.Command{
		Use:   how.verb + " ID",
		Short: how.short,
		Long:  how.short + ".\n\n" + how.long + "\n\nThe job records the operator, the time and the reason. The command is idempotent.",
		Args:  cobra.ExactArgs(1),
		RunE: cli.About(p, jobs.ParseJobID, func(ctx context.Context, cluster cli.Cluster, id jobs.JobID) error {
			request.Job, request.By, request.Steps = id, cli.OperatorName(), steps()
			return requestStop(ctx, p, cluster, how, request)
		}),
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	steps = stepsFlags(cmd, jobs.RequestKind(how.verb), &request)
	return cmd
}

// stepsFlags adds the flags of a stop request. The returned function reads the policy after the flags are
// parsed.
func stepsFlags(cmd *cobra.Command, kind jobs.RequestKind, request *jobs.JobCommand) func() jobs.StepsPolicy {
	asked, policy := new(bool), jobs.StepsFinish
	switch kind {
	case jobs.RequestCancel:
		cmd.Flags().BoolVar(&request.Revert, "revert", true, "revert finished steps")
		cmd.Flags().BoolVar(asked, "wait-for-steps", false, "let running steps finish first")
	case jobs.RequestSuspend:
		cmd.Flags().BoolVar(asked, "interrupt-steps", false, "interrupt running steps")
		policy = jobs.StepsInterrupt
	default:
		return func() jobs.StepsPolicy { return jobs.StepsDefault }
	}
	cmd.Flags().DurationVar(&request.Grace, "grace", 0, fmt.Sprintf("time for interrupted steps to end before handlers are killed, at most %s (default %s)", jobs.MaxGrace, flow.DefaultGrace))
	return func() jobs.StepsPolicy {
		if *asked {
			return policy
		}
		return jobs.StepsDefault
	}
}

// requestStop sends a stop request, and then shows the job.
func requestStop(ctx context.Context, p *cli.Program, cluster controller, how stopping, request jobs.JobCommand) error {
	if err := how.give(cluster, ctx, request); err != nil {
		return cli.Because(err, "%s job %s", how.verb, request.Job)
	}
	return showChanged(ctx, p, cluster, request.Job, func(job *jobs.Job) string {
		line := HowEnded(job)
		if job.StopRequest != nil && !job.State.Finished() && job.State != jobs.StateSuspended {
			line += ", to be " + stopDone(job.StopRequest)
		}
		return line
	})
}

// stopDone describes the effect of a stop request.
func stopDone(request *jobs.OperatorRequest) string {
	switch {
	case request.Kind == jobs.RequestSuspend:
		return "suspended"
	case request.Revert:
		return "reverted and cancelled"
	}
	return "cancelled"
}

// stopText describes a job's stop request on one line.
func stopText(p *cli.Program, request *jobs.OperatorRequest) string {
	if request == nil {
		return ""
	}
	said := string(request.Kind)
	if request.To != "" {
		said += " to " + cli.Clean(request.To)
	}
	if request.Kind == jobs.RequestCancel && request.Revert {
		said += " and revert"
	}
	if request.Interrupts() {
		said += ", with its running steps interrupted"
	}
	said += ", at " + p.TimeText(request.At)
	if request.By != "" {
		said += " by " + cli.Clean(request.By)
	}
	if request.Reason != "" {
		said += ": " + cli.Clean(request.Reason)
	}
	return said
}
