package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func (p *Program) flowRunCommand() *cobra.Command {
	var (
		f    postFlags
		only []string
	)
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a flow document: post it as a job, and print the job's id",
		Long: "Run a flow document: post it as a job, and print the job's id. With --wait, show its steps as they\n" +
			"run, and exit 1 unless the job is a success. The job does not depend on this command: after ctrl-C it\n" +
			"goes on.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			posting, err := p.posting(&f)
			if err != nil {
				return err
			}
			if err := p.attachDocument(args[0], &posting, only...); err != nil {
				return err
			}
			if f.wait {
				return p.waiting(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
					return p.runFlow(ctx, cluster, posting)
				})
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				job, err := p.postJob(ctx, cluster, posting)
				if err != nil {
					return err
				}
				return p.showPosted(job)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVar(&only, "only", nil, "run this step, what it waits for, and nothing else; can be repeated (default the document's targets)")
	return cmd
}

// runFlow posts a job and follows it to its end. The id is printed as soon as
// there is one, the JSON document at the end.
func (p *Program) runFlow(ctx context.Context, cluster Cluster, posting jobs.Posting) error {
	job, err := p.postJob(ctx, cluster, posting)
	if err != nil {
		return err
	}
	if !p.JSON() {
		if err := p.showPosted(job); err != nil {
			return err
		}
	}
	var finished jobs.Job
	err = p.noteIdle(ctx, cluster, &job)
	if err == nil {
		finished, err = p.follow(ctx, cluster, job)
	}
	if err != nil {
		p.Note("the job goes on without this command: see `conductord flow show %s`, or wait with `conductord job wait %s`", job.ID, job.ID)
		return because(err, "wait for job %s", job.ID)
	}
	if p.JSON() {
		if err := p.WriteJSON(command.JobToProto(&finished)); err != nil {
			return err
		}
	}
	return p.verdict(ctx, cluster, &finished)
}

// verdict tells how a job went, on stderr: of a failure, all that is known.
func (p *Program) verdict(ctx context.Context, cluster Cluster, job *jobs.Job) error {
	took := durationText(job.FinishedAt.Sub(job.PostedAt))
	if job.Outcome == jobs.OutcomeSuccess {
		p.Note("job %s: %s after %s", job.ID, howEnded(job), took)
		return nil
	}
	p.Note("job %s: %s after %s", job.ID, howEnded(job), took)
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
