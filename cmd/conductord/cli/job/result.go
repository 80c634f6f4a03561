package job

import (
	"context"
	"errors"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxRetriedShown bounds the failed attempts that a person is shown; -o json has all that are kept.
const maxRetriedShown = 20

// JobResult is a finished job with the results of its flow, as JSON.
type JobResult struct {
	Job      cli.Part        `json:"job"`
	Results  logbook.Values  `json:"results"`  // by symbol
	Failures []FailedAttempt `json:"failures"` // of all steps

	job     *jobs.Job
	retried []string
}

// FailedAttempt is one attempt at a step that failed.
type FailedAttempt struct {
	Step    string         `json:"step"`
	Action  logbook.Action `json:"action"`
	Attempt int            `json:"attempt"`
	Failure cli.Part       `json:"failure"`
}

// resultOf reads the results of a finished job. A flow that is gone already has none.
func resultOf(ctx context.Context, p *cli.Program, cluster cli.Cluster, job *jobs.Job) (JobResult, error) {
	r := JobResult{Job: cli.Part{Message: command.JobToProto(job)}, Results: logbook.Values{}, Failures: []FailedAttempt{}, job: job}
	if job.Flow.IsZero() {
		return r, nil
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if errors.Is(err, jobs.ErrNotFound) {
		p.Note("the flow of job %s and its results are no longer kept", job.ID)
		return r, nil
	}
	if err != nil {
		return r, cli.Because(err, "read flow %s of job %s", job.Flow, job.ID)
	}
	if values, err := detail.Values(); err == nil {
		r.Results = values
	} else {
		p.Note("%v: `conductord flow show %s`", err, job.ID)
	}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		for j := range atom.Attempts {
			attempt := &atom.Attempts[j]
			if attempt.Failure == nil {
				continue
			}
			r.Failures = append(r.Failures, FailedAttempt{atom.Name, attempt.Action, attempt.Number, cli.Part{Message: command.FailureToProto(attempt.Failure)}})
			if last, ok := atom.Last(attempt.Action); !ok || last.Number != attempt.Number {
				r.retried = append(r.retried, tree.FailedAttemptText(atom, attempt))
			}
		}
	}
	return r, nil
}

// writeResult writes the results of a finished job to stdout and how it went to stderr: $(…) holds
// the results alone.
func writeResult(ctx context.Context, p *cli.Program, cluster cli.Cluster, job *jobs.Job) error {
	r, err := resultOf(ctx, p, cluster, job)
	switch {
	case err != nil:
		return err
	case p.JSON():
		err = p.WriteJSON(r)
	case len(r.Results) > 0:
		err = p.WriteLines(cli.CleanLines(cli.ValuesText(r.Results)))
	}
	if err != nil {
		return err
	}
	noteRetried(p, &r)
	return Verdict(ctx, p, cluster, job)
}

func noteRetried(p *cli.Program, r *JobResult) {
	for _, line := range r.retried[:min(len(r.retried), maxRetriedShown)] {
		p.Note("retried: %s", line)
	}
	if more := len(r.retried) - maxRetriedShown; more > 0 {
		p.Note("retried: %d more: `conductord flow show --attempts %s`", more, r.job.ID)
	}
}

// writeResults is writeResult of several jobs.
func writeResults(ctx context.Context, p *cli.Program, cluster cli.Cluster, finished []jobs.Job) error {
	if !p.JSON() {
		return jobList(nil).Show(p, finished, "")
	}
	results := make([]JobResult, len(finished))
	for i := range finished {
		var err error
		if results[i], err = resultOf(ctx, p, cluster, &finished[i]); err != nil {
			return err
		}
	}
	return p.WriteJSON(map[string][]JobResult{"jobs": results})
}
