package board

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	jobcmd "github.com/conductord/conductord/cmd/conductord/cli/job"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
)

func waitCommand(p *cli.Program) *cobra.Command {
	var (
		waiting await.Waiting
		states  []string
	)
	cmd := &cobra.Command{
		Use:   "wait BOARD",
		Short: "Wait until a board has no unfinished job, or none in some states",
		Long: "Wait until a board has no unfinished jobs. With --state, wait until no job is in any of these states; with\n" +
			"--some, wait until at least one job is in one of these states. --kind, --key and --tag select jobs. The exit code\n" +
			"is 0 for every outcome of the jobs, and 5 after --timeout. `conductord job wait --board BOARD` also reports\n" +
			"failures in its exit code.\n\n" +
			"Held, parked and suspended jobs need an operator. When all other jobs are finished, the command names these\n" +
			"jobs on stderr and exits with 1.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if waiting.States, err = jobcmd.ParseStates(states); err != nil {
				return err
			}
			waiting.Board = args[0]
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				return waitForBoard(ctx, p, cluster, waiting)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&states, "state", nil, "wait until no job is in any of these states; repeatable or comma-separated")
	flags.BoolVar(&waiting.Some, "some", false, "wait until at least one job matches")
	flags.StringVar(&waiting.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&waiting.Key, "key", "", "only jobs with this key")
	flags.StringSliceVar(&waiting.Tags, "tag", nil, "only jobs with all of these tags; repeatable or comma-separated")
	return cmd
}

// waited reads the board and the jobs that a command waits for.
type waited interface {
	jobs.Reader
	BoardStatus(ctx context.Context, name string) (jobs.BoardStatus, error)
}

// waitForBoard waits for the jobs of a board and prints the final counts. A board that does
// not exist is an error, unless the command waits for the board's first job.
func waitForBoard(ctx context.Context, p *cli.Program, cluster waited, waiting await.Waiting) error {
	if _, err := cluster.BoardStatus(ctx, waiting.Board); err != nil && (!waiting.Some || !errors.Is(err, jobs.ErrNotFound)) {
		return cli.Because(cli.AdviseCreate(err, waiting.Board), "wait for board %s", waiting.Board)
	}
	what := statesSaid(waiting.States)
	waiting.Progress = jobcmd.Saying(p, func(status await.Status) string {
		return fmt.Sprintf("board %s: %d %s, %d gone", waiting.Board, status.Left, what, status.Gone)
	})
	status, err := await.Jobs(ctx, cluster, waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cannot wait any longer: board %s has %d %s jobs: %w", waiting.Board, status.Left, what, context.DeadlineExceeded)
	}
	if err != nil {
		return cli.Because(err, "wait for board %s", waiting.Board)
	}
	err = p.Show(map[string]any{
		"board": waiting.Board, "left": status.Left + len(status.Stopped), "gone": status.Gone, "needs_operator": len(status.Stopped),
		"finished": status.Finished, "outcomes": status.Outcomes, "trashed": status.Trashed,
	}, "%s has %d %s, %s", waiting.Board, status.Left+len(status.Stopped), what, jobcmd.WaitStatusText(status))
	if err == nil {
		err = jobcmd.NoteStopped(ctx, p, cluster, status.Stopped...)
	}
	return err
}

// statesSaid are the awaited states, in words.
func statesSaid(states []jobs.State) string {
	if len(states) == 0 {
		return "unfinished"
	}
	return strings.Join(cli.Texts(states), " or ")
}
