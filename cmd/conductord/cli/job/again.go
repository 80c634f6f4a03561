package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

func retryCommand(p *cli.Program) *cobra.Command {
	return correctionCommand(p, &cobra.Command{
		Use:   "retry ID…",
		Short: "Retry trashed, failed, reverted or parked jobs",
		Long: "Retry trashed, failed, reverted or parked jobs. A trashed job continues where it stopped. A flow that was\n" +
			"reverted, or whose revert failed, restarts from its beginning, without reverting anything first; see `flow show`\n" +
			"for alternatives. For a job that waits for its next attempt, use `flow retry-now`. Other unfinished jobs do not\n" +
			"change. The command is idempotent.",
	}, func(ctx context.Context, cluster cli.Cluster, request jobs.JobCommand) error {
		if err := checkStart(ctx, cluster, &jobs.Change{Job: request.Job, Release: true}); err != nil {
			return cli.Because(err, "retry job %s", request.Job)
		}
		if err := cluster.Retry(ctx, request); err != nil {
			if errors.Is(err, jobs.ErrConflict) {
				err = cli.Advised(err, adviceOnRetry(ctx, cluster, request.Job))
			}
			return cli.Because(err, "retry job %s", request.Job)
		}
		return showCorrected(ctx, p, cluster, request.Job, "")
	})
}

// adviceOnRetry is for a job that cannot be retried: wait for the job that has its key, or post a new job. The
// refusal of a cooling or waiting job needs no advice.
func adviceOnRetry(ctx context.Context, cluster jobs.Reader, id jobs.JobID) string {
	job, err := cluster.Job(ctx, id)
	if err == nil && job.State.Pauses() {
		return ""
	}
	if err == nil && job.Key != "" {
		unfinished := slices.DeleteFunc(slices.Clone(jobs.States), jobs.State.Finished)
		page, err := cluster.Jobs(ctx, jobs.Query{Board: job.Board, Key: job.Key, States: unfinished})
		if err == nil && len(page.Items) == 1 {
			return fmt.Sprintf("`conductord job wait %s` waits until the key is free", page.Items[0].ID)
		}
	}
	return fmt.Sprintf("to do its work again with a new job: `conductord job repost %s`", id)
}

// showCorrected prints the state of a job after a correction on one line, followed by more
// text.
func showCorrected(ctx context.Context, p *cli.Program, cluster jobReader, id jobs.JobID, more string) error {
	job, err := cluster.Job(ctx, id)
	if err != nil {
		return cli.Because(err, "read job %s (the change was made)", id)
	}
	if p.JSON() {
		return p.WriteJSONLine(command.JobToProto(&job))
	}
	return p.WriteLines([]string{fmt.Sprintf("%s %s", job.ID, HowEnded(&job)+more)})
}

func repostCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "repost ID…",
		Short: "Post finished jobs again, each as a new job with the same work",
		Long: "Post finished jobs again as new jobs, and print their ids. A new job copies kind or flow, details and values,\n" +
			"key, tags, labels and retry policy, but not its times or its hold. The old jobs stay. Each run of the command\n" +
			"posts new jobs. If an unfinished job of the board has the same key, the command fails with exit code 4 and names\n" +
			"this job.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachJob(p, cmd, args, func(ctx context.Context, cluster cli.Cluster, id jobs.JobID) error {
				return cli.Because(repost(ctx, p, cluster, id), "post job %s again", id)
			})
		},
	}
}

// reposter reads a finished job with its flow, and posts it again.
type reposter interface {
	jobs.Poster
	cli.FlowReader
	WhoAmI(ctx context.Context) (access.Identity, error)
}

func repost(ctx context.Context, p *cli.Program, cluster reposter, id jobs.JobID) error {
	job, err := cluster.Job(ctx, id)
	switch {
	case err != nil:
		return err
	case !job.State.Finished():
		return fmt.Errorf("%w: the job is %s; wait until it is finished, or cancel it", jobs.ErrConflict, job.State)
	}
	var flow *logbook.FlowDetail
	if !job.Flow.IsZero() {
		detail, err := cluster.FlowDetail(ctx, job.Flow)
		if err != nil {
			return fmt.Errorf("its flow and book were removed: %w", err)
		}
		flow = &detail
	}
	posting := job.Again(flow)
	if err := seesValues(ctx, cluster, &posting); err != nil {
		return err
	}
	posted, err := postJob(ctx, p, cluster, posting)
	if err != nil {
		return err
	}
	existed := posted.ID != posting.ID
	if p.JSON() {
		err = p.WriteJSONLine(&v1.PostedJob{Job: command.JobToProto(&posted), Existed: existed})
	}
	switch {
	case err != nil:
		return err
	case existed:
		return fmt.Errorf("no new job was posted: %w", jobs.KeyTaken(posted.Board, posting.Key, posted.ID))
	}
	p.Note("job %s does the work of job %s again", posted.ID, id)
	if p.JSON() {
		return nil
	}
	return showPosted(p, posted)
}

// seesValues returns an error if values that this program must post again are hidden from it
// or encrypted.
func seesValues(ctx context.Context, cluster reposter, posting *jobs.Posting) error {
	who, err := cluster.WhoAmI(ctx)
	if err != nil {
		return err
	}
	text, err := cli.Document(command.PostingToProto(posting))
	switch {
	case who.HideValues:
		return fmt.Errorf("%w: its values are hidden from principal %q", jobs.ErrNotAllowed, who.Name)
	case valuekeys.Shown(string(text)) != string(text):
		return cli.UsageError(errors.New("its values are encrypted: pass the keys with --value-keys"))
	}
	return err
}
