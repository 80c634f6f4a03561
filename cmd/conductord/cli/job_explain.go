package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func (p *Program) jobExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job does not run, and how to change that",
		Args:  cobra.ExactArgs(1),
		RunE: get(p, "the explanation of job", jobs.ParseJobID, Cluster.Explain, func(_ context.Context, _ Cluster, e jobs.Explanation) error {
			if p.JSON() {
				return p.WriteJSON(command.ExplanationToProto(&e))
			}
			return p.writeFields([]field{
				{"job", e.Job.String()}, {"state", string(e.State)}, {"cause", string(e.Cause)}, {"why", e.Text},
				{"until", p.timeText(e.Until)}, {"next step", RemedyText(e.Remedy)},
			})
		}),
	}
}
