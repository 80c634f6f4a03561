package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/jobs"
)

func (p *Program) flowRunCommand() *cobra.Command {
	var (
		f      postFlags
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
			posting, err := p.posting(&f)
			if err != nil {
				return err
			}
			order := spec.Linear
			if atOnce {
				order = spec.Unordered
			}
			if err := p.attachDocuments(order, args, &posting, only...); err != nil {
				return err
			}
			return p.runOrPost(cmd.Context(), posting, f.wait)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&atOnce, "at-once", false, "run the flows of several documents in parallel")
	cmd.Flags().StringArrayVar(&only, "only", nil, "run only this step and its dependencies; repeatable (default the document's targets)")
	return cmd
}

// runOrPost posts a job, and with wait follows it to its end.
func (p *Program) runOrPost(ctx context.Context, posting jobs.Posting, wait bool) error {
	within, post := p.With, p.postAndShow
	if wait {
		within, post = p.waiting, p.runJob
	}
	return within(ctx, func(ctx context.Context, cluster Cluster) error { return post(ctx, cluster, posting) })
}

// runJob posts a job and follows it to its end. Its id goes to stderr at once, and the results of its
// flow to stdout at the end.
func (p *Program) runJob(ctx context.Context, cluster Cluster, posting jobs.Posting) error {
	job, err := p.postJob(ctx, cluster, posting)
	if err != nil {
		return err
	}
	p.Note("job %s is posted", job.ID)
	p.warnOfHandlers(ctx, cluster, &job, handlersOf(&posting))
	var finished jobs.Job
	err = p.noteIdle(ctx, cluster, &job)
	if err == nil {
		finished, err = p.follow(ctx, cluster, job)
	}
	if err != nil {
		p.Note("the job continues; see `conductord flow show %s`, or wait with `conductord job wait %s`", job.ID, job.ID)
		return because(err, "wait for job %s", job.ID)
	}
	return p.writeResult(ctx, cluster, &finished)
}

// verdict tells how a job went, on stderr: of a failure, all that is known.
func (p *Program) verdict(ctx context.Context, cluster Cluster, job *jobs.Job) error {
	if job.State.NeedsOperator() {
		return p.noteStopped(ctx, cluster, job.ID)
	}
	p.Note("job %s: %s after %s", job.ID, howEnded(job), durationText(job.FinishedAt.Sub(job.PostedAt)))
	if job.Outcome == jobs.OutcomeSuccess {
		return nil
	}
	evidence, err := evidenceOf(ctx, cluster, job)
	if err != nil {
		return errors.Join(errRunFailed, err)
	}
	if job.Reason != "" && (job.Failure == nil || !strings.Contains(job.Failure.Message, job.Reason)) {
		evidence = append([]field{{"reason", job.Reason}}, evidence...)
	}
	for _, f := range evidence {
		if f.text == "" {
			continue
		}
		for _, line := range cleanLines(f.text) {
			fmt.Fprintf(p.Err, "conductord: %s: %s\n", f.name, line)
		}
	}
	return errRunFailed
}
