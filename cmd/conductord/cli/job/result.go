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
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// maxRetriedShown limits the shown failed attempts; -o json has all stored attempts.
const maxRetriedShown = 20

// JobResult is a finished job with the results of its flow, as JSON.
type JobResult struct {
	Job      cli.Part        `json:"job"`
	Results  logbook.Values  `json:"results"`  // by symbol
	Failures []FailedAttempt `json:"failures"` // of all steps

	job     *jobs.Job
	retried []string
	ignored string // failures; empty: none
}

// FailedAttempt is one attempt at a step that failed.
type FailedAttempt struct {
	Step    string         `json:"step"`
	Action  logbook.Action `json:"action"`
	Attempt int            `json:"attempt"`
	Failure cli.Part       `json:"failure"`
}

// resultOf reads the results of a finished job. If the flow was deleted already, there are
// none.
func resultOf(ctx context.Context, p *cli.Program, cluster cli.FlowReader, job *jobs.Job) (JobResult, error) {
	r := JobResult{Job: cli.Part{Message: command.JobToProto(job)}, Results: logbook.Values{}, Failures: []FailedAttempt{}, job: job}
	if job.Flow.IsZero() {
		return r, nil
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if errors.Is(err, jobs.ErrNotFound) {
		p.Note("the flow of job %s and its results have been removed", job.ID)
		return r, nil
	}
	if err != nil {
		return r, cli.Because(err, "read flow %s of job %s", job.Flow, job.ID)
	}
	if values, err := detail.Values(); err == nil {
		r.Results = values
	} else if key, encrypted := stepsKey(detail.Definition); encrypted {
		p.Note("the results are encrypted with key %s: pass a file with this key with --value-keys", key)
	} else {
		p.Note("%v: `conductord flow show %s`", err, job.ID)
	}
	r.ignored = tree.IgnoredText(&detail)
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

// stepsKey returns the id of the key with which the steps of a definition are encrypted.
func stepsKey(definition *logbook.Definition) (id string, encrypted bool) {
	if definition == nil {
		return "", false
	}
	return valuekeys.KeyID([]byte(`"` + string(definition.Packed) + `"`))
}

// writeResult writes the results of a finished job to stdout and its verdict to stderr, so $(…)
// contains only the results.
func writeResult(ctx context.Context, p *cli.Program, cluster cli.FlowReader, job *jobs.Job) error {
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
	if r.ignored != "" {
		p.Note("%s", r.ignored)
	}
	for _, line := range r.retried[:min(len(r.retried), maxRetriedShown)] {
		p.Note("retried: %s", line)
	}
	if more := len(r.retried) - maxRetriedShown; more > 0 {
		p.Note("retried: %d more: `conductord flow show --attempts %s`", more, r.job.ID)
	}
}

// writeResults is writeResult for several jobs.
func writeResults(ctx context.Context, p *cli.Program, cluster cli.FlowReader, finished []jobs.Job) error {
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

// RunOrPost posts a job. With wait, it follows the job to its end.
func RunOrPost(ctx context.Context, p *cli.Program, posting jobs.Posting, wait bool) error {
	within, post := p.With, postAndShow
	if wait {
		within, post = p.Waiting, runJob
	}
	return within(ctx, func(ctx context.Context, cluster cli.Cluster) error { return post(ctx, p, cluster, posting) })
}

// runJob posts a job and follows it to its end. It prints the id to stderr at once, and the results
// of the flow to stdout at the end.
func runJob(ctx context.Context, p *cli.Program, cluster poster, posting jobs.Posting) error {
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

// Verdict prints the result of a job on stderr; for a failure, with all known details.
func Verdict(ctx context.Context, p *cli.Program, cluster cli.FlowReader, job *jobs.Job) error {
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
