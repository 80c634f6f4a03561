package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxRetriedShown bounds the failed attempts that a person is shown; -o json has all that are kept.
const maxRetriedShown = 20

// JobResult is a finished job with the results of its flow, as JSON.
type JobResult struct {
	Job      part            `json:"job"`
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
	Failure part           `json:"failure"`
}

// resultOf reads the results of a finished job. A flow that is gone already has none.
func (p *Program) resultOf(ctx context.Context, cluster Cluster, job *jobs.Job) (JobResult, error) {
	r := JobResult{Job: part{command.JobToProto(job)}, Results: logbook.Values{}, Failures: []FailedAttempt{}, job: job}
	if job.Flow.IsZero() {
		return r, nil
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if errors.Is(err, jobs.ErrNotFound) {
		p.Note("the flow of job %s and its results are no longer kept", job.ID)
		return r, nil
	}
	if err != nil {
		return r, because(err, "read flow %s of job %s", job.Flow, job.ID)
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
			r.Failures = append(r.Failures, FailedAttempt{atom.Name, attempt.Action, attempt.Number, part{command.FailureToProto(attempt.Failure)}})
			if last, ok := atom.Last(attempt.Action); !ok || last.Number != attempt.Number {
				r.retried = append(r.retried, failedAttemptText(atom, attempt))
			}
		}
	}
	return r, nil
}

// failedAttemptText is a failed attempt on one line.
func failedAttemptText(atom *logbook.AtomDetail, attempt *logbook.Attempt) string {
	return fmt.Sprintf("%s %s %d failed: %s", atom.Name, attempt.Action, attempt.Number, shorten(attempt.Failure.Kind+": "+attempt.Failure.Message))
}

// writeResult writes the results of a finished job to stdout and how it went to stderr: $(…) holds
// the results alone.
func (p *Program) writeResult(ctx context.Context, cluster Cluster, job *jobs.Job) error {
	r, err := p.resultOf(ctx, cluster, job)
	switch {
	case err != nil:
		return err
	case p.JSON():
		err = p.WriteJSON(r)
	case len(r.Results) > 0:
		err = p.WriteLines(cleanLines(valuesText(r.Results)))
	}
	if err != nil {
		return err
	}
	p.noteRetried(&r)
	return p.verdict(ctx, cluster, job)
}

func (p *Program) noteRetried(r *JobResult) {
	for _, line := range r.retried[:min(len(r.retried), maxRetriedShown)] {
		p.Note("retried: %s", line)
	}
	if more := len(r.retried) - maxRetriedShown; more > 0 {
		p.Note("retried: %d more: `conductord flow show --attempts %s`", more, r.job.ID)
	}
}

// writeResults is writeResult of several jobs.
func (p *Program) writeResults(ctx context.Context, cluster Cluster, finished []jobs.Job) error {
	if !p.JSON() {
		return jobList(nil).show(p, finished, "")
	}
	results := make([]JobResult, len(finished))
	for i := range finished {
		var err error
		if results[i], err = p.resultOf(ctx, cluster, &finished[i]); err != nil {
			return err
		}
	}
	return p.WriteJSON(map[string][]JobResult{"jobs": results})
}
