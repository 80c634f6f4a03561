package job

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
)

// maxStoppedNotes limits the jobs that a waiting command names one by one.
const maxStoppedNotes = 10

func waitCommand(p *cli.Program) *cobra.Command {
	var waiting await.Waiting
	cmd := &cobra.Command{
		Use:   "wait [ID…]",
		Short: "Wait until jobs are finished; exit 1 unless all are successes",
		Long: "Wait until the named jobs are finished. With --board, --kind, --key or --tag, wait until all matching jobs are\n" +
			"finished, including jobs posted meanwhile. For one named job, stdout shows the results of its flow, and stderr\n" +
			"its progress. For several jobs, stdout shows a list of outcomes; -o json includes all results.\n\n" +
			"Held, parked and suspended jobs need an operator. When no other job is unfinished, the command exits 1: stderr\n" +
			"shows the reason and the next command.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseJobIDs(args)
			if err != nil {
				return err
			}
			waiting.Jobs = ids
			chosen := waiting.Board != "" || waiting.Kind != "" || waiting.Key != "" || len(waiting.Tags) > 0
			if chosen == (len(args) > 0) {
				return cli.UsageError(fmt.Errorf("name either job ids or a filter: --board, --kind, --key or --tag"))
			}
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cli.CheckBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				if chosen {
					return waitForAll(ctx, p, cluster, waiting)
				}
				return waitForJobs(ctx, p, cluster, waiting)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&waiting.Board, "board", "", "wait for jobs on this board")
	flags.StringVar(&waiting.Kind, "kind", "", "wait for jobs of this kind")
	flags.StringVar(&waiting.Key, "key", "", "wait for jobs with this key")
	flags.StringSliceVar(&waiting.Tags, "tag", nil, "wait for jobs with all of these tags; repeatable")
	return cmd
}

// waitForJobs waits for the named jobs, and shows their results.
func waitForJobs(ctx context.Context, p *cli.Program, cluster cli.FlowReader, waiting await.Waiting) error {
	if len(waiting.Jobs) > 1 {
		waiting.Progress = progress(p)
	}
	status, err := await.Jobs(ctx, cluster, waiting)
	if err != nil {
		return waitFault(waiting, status, err)
	}
	finished := make([]jobs.Job, 0, len(waiting.Jobs))
	failed := false
	for _, id := range waiting.Jobs {
		job, err := cluster.Job(ctx, id)
		if err != nil {
			return cli.Because(err, "get job %s", id)
		}
		failed = failed || job.Outcome != jobs.OutcomeSuccess
		finished = append(finished, job)
	}
	if len(finished) == 1 && !p.JSON() {
		return writeResult(ctx, p, cluster, &finished[0])
	}
	err = writeResults(ctx, p, cluster, finished)
	if err == nil {
		err = NoteStopped(ctx, p, cluster, status.Stopped...)
	}
	if err == nil && failed {
		err = cli.ErrRunFailed
	}
	return err
}

// waitFault names the unfinished jobs at the end of the wait.
func waitFault(waiting await.Waiting, status await.Status, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jobs.ErrUnavailable) || status.Left == 0 {
		return cli.Because(err, "wait for jobs")
	}
	if len(waiting.Jobs) == 1 {
		id := waiting.Jobs[0]
		return cli.Advised(fmt.Errorf("job %s is not finished: %w", id, context.DeadlineExceeded), fmt.Sprintf("`conductord job explain %s` shows the reason", id))
	}
	return cli.Advised(fmt.Errorf("%d jobs are not finished: %w", status.Left, context.DeadlineExceeded), "list them with `conductord job list`")
}

// waitForAll prints how the awaited jobs ended.
func waitForAll(ctx context.Context, p *cli.Program, cluster jobs.Reader, waiting await.Waiting) error {
	waiting.Progress = progress(p)
	status, err := await.Jobs(ctx, cluster, waiting)
	if err != nil {
		return waitFault(waiting, status, err)
	}
	err = p.Show(map[string]any{
		"finished": status.Finished, "outcomes": status.Outcomes, "trashed": status.Trashed, "needs_operator": len(status.Stopped),
	}, "%s", WaitStatusText(status))
	if err == nil {
		err = NoteStopped(ctx, p, cluster, status.Stopped...)
	}
	if err == nil && status.Outcomes[jobs.OutcomeSuccess] != status.Finished {
		err = cli.ErrRunFailed
	}
	return err
}

// progress prints the status of a wait at a terminal, but not in scripts.
func progress(p *cli.Program) func(await.Status) {
	return Saying(p, func(status await.Status) string {
		return fmt.Sprintf("%d left, %s", status.Left, WaitStatusText(status))
	})
}

// Saying prints the progress of a wait on a terminal, at a limited rate.
func Saying(p *cli.Program, text func(await.Status) string) func(await.Status) {
	var last time.Time
	return func(status await.Status) {
		if !p.Terminal || time.Since(last) < cli.ProgressPause {
			return
		}
		last = time.Now()
		p.Note("%s", text(status))
	}
}

// NoteStopped names on stderr the jobs that need an operator, each with the reason and the next
// command. If there is one, it returns ErrRunFailed.
func NoteStopped(ctx context.Context, p *cli.Program, reader jobs.Reader, stopped ...jobs.JobID) error {
	for i, id := range stopped {
		if i == maxStoppedNotes {
			p.Note("%d more jobs need an operator: `conductord job list --state %s,%s`", len(stopped)-i, jobs.StateHeld, jobs.StateSuspended)
			break
		}
		why, err := reader.Explain(ctx, id)
		if err != nil {
			return cli.Because(err, "explain job %s", id)
		}
		p.Note("job %s needs an operator: %s; next step: `%s`", id, why.Text, cli.RemedyText(why.Remedy))
	}
	if len(stopped) > 0 {
		return cli.ErrRunFailed
	}
	return nil
}

// WaitStatusText counts the jobs of a wait by outcome, and the jobs that need an operator.
func WaitStatusText(status await.Status) string {
	parts := []string{fmt.Sprintf("%d finished", status.Finished)}
	for _, outcome := range slices.Sorted(maps.Keys(status.Outcomes)) {
		parts = append(parts, fmt.Sprintf("%d %s", status.Outcomes[outcome], outcome))
	}
	if status.Trashed > 0 {
		parts = append(parts, fmt.Sprintf("%d trashed", status.Trashed))
	}
	if len(status.Stopped) > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting for an operator", len(status.Stopped)))
	}
	return strings.Join(parts, ", ")
}
