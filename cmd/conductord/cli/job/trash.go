package job

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// TrashCommand makes the noun of trashed jobs.
func TrashCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("trash", "List, show and purge trashed jobs; job retry restores them",
		trashListCommand(p), trashShowCommand(p), trashPurgeCommand(p))
}

func trashListCommand(p *cli.Program) *cobra.Command {
	query := jobs.Query{States: []jobs.State{jobs.StateTrashed}}
	order := listOrder{by: "posted"}
	trashed := jobList(&query)
	trashed.What = "trashed jobs"
	trashed.Header = []string{"id", "board", "name", "kind", "trashed", "crashes", "reason"}
	trashed.Row = func(job *jobs.Job) []string {
		return []string{
			job.ID.String(), job.Board, cli.OrDash(job.Name), cli.OrDash(job.Kind), cli.AgoText(job.FinishedAt), cli.CountOrDash(job.Crashes), cli.OrDash(job.Reason),
		}
	}
	cmd := trashed.Command(p, &cobra.Command{Use: "list", Short: "List trashed jobs with the reason, newest first"}, func([]string) (err error) {
		query.Order, err = order.read()
		return err
	})
	order.flag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&query.Board, "board", "", "only jobs on this board")
	flags.StringVar(&query.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&query.Key, "key", "", "only jobs with this key")
	flags.StringSliceVar(&query.Tags, "tag", nil, "only jobs with all of these tags; repeatable or comma-separated")
	return cmd
}

func trashShowCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a trashed job with its evidence",
		Args:  cobra.ExactArgs(1),
		RunE: cli.Get(p, "job", jobs.ParseJobID, cli.Cluster.Job, func(ctx context.Context, cluster cli.Cluster, job jobs.Job) error {
			if job.State != jobs.StateTrashed {
				return cli.Because(fmt.Errorf("%w: the job is %s", jobs.ErrConflict, job.State), "show job %s in the trash", job.ID)
			}
			return showJob(ctx, p, cluster, job)
		}),
	}
}

func trashPurgeCommand(p *cli.Program) *cobra.Command {
	return correctionCommand(p, &cobra.Command{
		Use:   "purge ID…",
		Short: "Remove finished jobs with their books permanently",
		Long:  "Remove finished jobs permanently, with books that no other job uses, before their retention ends.",
	}, func(ctx context.Context, cluster cli.Cluster, request jobs.JobCommand) error {
		if err := cluster.Purge(ctx, request); err != nil {
			return cli.Because(err, "purge job %s", request.Job)
		}
		if p.JSON() {
			return p.WriteJSONLine(map[string]any{"id": request.Job, "purged": true})
		}
		return p.WriteLines([]string{request.Job.String() + " purged"})
	})
}

// correctionCommand completes a command that applies one change to each of several jobs, and
// stops at the first error.
func correctionCommand(p *cli.Program, cmd *cobra.Command, correct func(context.Context, cli.Cluster, jobs.JobCommand) error) *cobra.Command {
	request := jobs.JobCommand{}
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		request.By = cli.OperatorName()
		return eachJob(p, cmd, args, func(ctx context.Context, cluster cli.Cluster, id jobs.JobID) error {
			request.Job = id
			return correct(ctx, cluster, request)
		})
	}
	cmd.Flags().StringVar(&request.Reason, "reason", "", "reason, in one sentence")
	return cmd
}

// eachJob calls a function for each job id, until the first error.
func eachJob(p *cli.Program, cmd *cobra.Command, args []string, do func(context.Context, cli.Cluster, jobs.JobID) error) error {
	ids, err := parseJobIDs(args)
	if err != nil {
		return err
	}
	return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
		for _, id := range ids {
			if err := do(ctx, cluster, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func parseJobIDs(args []string) ([]jobs.JobID, error) {
	ids := make([]jobs.JobID, 0, len(args))
	for _, arg := range args {
		id, err := jobs.ParseJobID(arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
