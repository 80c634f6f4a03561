package flow

import (
	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/flow/spec"
)

func runCommand(p *cli.Program) *cobra.Command {
	var (
		f      jobcmd.PostFlags
		only   []string
		atOnce bool
	)
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run a flow document: post it as a job, and print the job's id",
		Long: "Run a flow document: post it as a job, and print the job's id. With --wait, print the results of the flow, and\n" +
			"exit 1 unless the job succeeds; stderr shows the id and the progress. The job continues after ctrl-C. A held,\n" +
			"parked or suspended job ends the wait. Several documents become one job; their flows run one after another.\n" +
			"If one fails, all are reverted.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			posting, err := jobcmd.Posting(p, &f)
			if err != nil {
				return err
			}
			order := spec.Linear
			if atOnce {
				order = spec.Unordered
			}
			if err := document.AttachFiles(p, order, args, &posting, only...); err != nil {
				return err
			}
			return jobcmd.RunOrPost(cmd.Context(), p, posting, f.Wait)
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&atOnce, "at-once", false, "run the flows of several documents in parallel")
	cmd.Flags().StringArrayVar(&only, "only", nil, "run only this step and its dependencies; repeatable (default the document's targets)")
	return cmd
}
