package job

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func explainCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job does not run, and how to change that",
		Args:  cobra.ExactArgs(1),
		RunE: cli.Get(p, "the explanation of job", jobs.ParseJobID, cli.Cluster.Explain, func(_ context.Context, _ cli.Cluster, e jobs.Explanation) error {
			if p.JSON() {
				return p.WriteJSON(command.ExplanationToProto(&e))
			}
			return p.WriteFields([]cli.Field{
				{"job", e.Job.String()}, {"state", string(e.State)}, {"cause", string(e.Cause)}, {"why", e.Text},
				{"until", p.TimeText(e.Until)}, {"next step", cli.RemedyText(e.Remedy)},
			})
		}),
	}
}
