package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/jobs"
)

func (p *Program) jobExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain ID",
		Short: "Say why a job does not run now, and what would change that",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobs.ParseJobID(args[0])
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				explanation, err := cluster.Explain(ctx, id)
				if err != nil {
					return because(err, "explain job %s", id)
				}
				if p.JSON() {
					return p.WriteJSON(explanation)
				}
				return p.writeFields([]field{
					{"job", explanation.Job.String()},
					{"state", string(explanation.State)},
					{"cause", string(explanation.Cause)},
					{"why", explanation.Text},
					{"until", timeText(explanation.Until)},
					{"to change that", explanation.Remedy},
				})
			})
		},
	}
}
