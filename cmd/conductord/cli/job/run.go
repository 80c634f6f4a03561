package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/document"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/jobs"
)

// RunOrPost posts a job, and with wait follows it to its end.
func RunOrPost(ctx context.Context, p *cli.Program, posting jobs.Posting, wait bool) error {
	within, post := p.With, postAndShow
	if wait {
		within, post = p.Waiting, runJob
	}
	return within(ctx, func(ctx context.Context, cluster cli.Cluster) error { return post(ctx, p, cluster, posting) })
}

// runJob posts a job and follows it to its end. Its id goes to stderr at once, and the results of its
// flow to stdout at the end.
func runJob(ctx context.Context, p *cli.Program, cluster cli.Cluster, posting jobs.Posting) error {
	job, err := postJob(ctx, p, cluster, posting)
	if err != nil {
		return err
	}
	p.Note("job %s is posted", job.ID)
	document.WarnOfHandlers(ctx, p, cluster, &job, document.HandlersOf(&posting))
	var finished jobs.Job
	err = NoteIdle(ctx, p, cluster, &job)
	if err == nil {
		finished, err = tree.Follow(ctx, p, cluster, job)
	}
	if err != nil {
		p.Note("the job continues; see `conductord flow show %s`, or wait with `conductord job wait %s`", job.ID, job.ID)
		return cli.Because(err, "wait for job %s", job.ID)
	}
	return writeResult(ctx, p, cluster, &finished)
}

// Verdict tells how a job went, on stderr: of a failure, all that is known.
func Verdict(ctx context.Context, p *cli.Program, cluster cli.Cluster, job *jobs.Job) error {
	if job.State.NeedsOperator() {
		return NoteStopped(ctx, p, cluster, job.ID)
	}
	p.Note("job %s: %s after %s", job.ID, HowEnded(job), cli.DurationText(job.FinishedAt.Sub(job.PostedAt)))
	if job.Outcome == jobs.OutcomeSuccess {
		return nil
	}
	evidence, err := tree.EvidenceOf(ctx, cluster, job)
	if err != nil {
		return errors.Join(cli.ErrRunFailed, err)
	}
	if job.Reason != "" && (job.Failure == nil || !strings.Contains(job.Failure.Message, job.Reason)) {
		evidence = append([]cli.Field{{"reason", job.Reason}}, evidence...)
	}
	for _, f := range evidence {
		if f[1] == "" {
			continue
		}
		for _, line := range cli.CleanLines(f[1]) {
			fmt.Fprintf(p.Err, "conductord: %s: %s\n", f[0], line)
		}
	}
	return cli.ErrRunFailed
}

// verdict is the result of one line of postings.
type verdict struct {
	line int
	*v1.PostedJob
}
