package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// EvidenceOf returns why a job failed: its failure, and the stderr of the step that failed
// last. Of a job that succeeded, it returns the failures that were ignored. If the flow was deleted
// already, only the failure is known.
func EvidenceOf(ctx context.Context, cluster cli.FlowReader, job *jobs.Job) ([]cli.Field, error) {
	fields := FailureFields(job.Failure)
	between := job.Attempted != "" && job.Claim == nil // between two attempts, or parked after the last
	if job.Flow.IsZero() || !job.State.Finished() && !between && job.Claim == nil {
		return fields, nil
	}
	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if errors.Is(err, jobs.ErrNotFound) {
		return fields, nil
	}
	if err != nil {
		return nil, cli.Because(err, "read flow %s of job %s", job.Flow, job.ID)
	}
	if job.Outcome == jobs.OutcomeSuccess {
		return []cli.Field{{"failures", IgnoredText(&detail)}}, nil
	}
	if job.Claim != nil {
		t := tree{rows: rowsOf(&detail), detail: &detail, now: time.Now(), waiting: true, height: maxAlsoFailed}
		return append(fields, cli.Field{"waiting steps", strings.Join(t.lines()[1:], "\n")}), nil
	}
	cause := job.Failure
	if cause == nil {
		cause = detail.Cause
	}
	fields = CauseFields(cause, &detail)
	if detail.State == logbook.FlowFailure {
		fields = append(fields, cli.Field{"next step", fmt.Sprintf("an operator must repair the flow: `conductord flow show %s` lists the repairs", detail.ID)})
	}
	return fields, nil
}

// IgnoredText names the steps whose failure the flow ignores; empty: there are none.
func IgnoredText(detail *logbook.FlowDetail) string {
	failures := detail.IgnoredFailures()
	if len(failures) == 0 {
		return ""
	}
	var names []string
	for i := range failures[:min(len(failures), maxAlsoFailed)] {
		names = append(names, failures[i].Step)
	}
	if more := len(failures) - maxAlsoFailed; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	count := "1 failure ignored: "
	if len(failures) > 1 {
		count = fmt.Sprintf("%d failures ignored: ", len(failures))
	}
	return count + strings.Join(names, ", ")
}

// CauseFields returns the cause of a flow's failure, and the further evidence.
func CauseFields(cause *logbook.Failure, detail *logbook.FlowDetail) []cli.Field {
	fields := FailureFields(cause)
	if cause != nil && cause.Origin() == cause {
		if atom, ok := detail.Atom(cause.Step); ok && atom.IsDropped() && atom.State == logbook.AtomRevertFailure {
			fields = []cli.Field{revertField(cause)} // no failure started this revert
		}
	}
	return append(fields, FlowEvidence(cause, detail)...)
}

func revertField(failure *logbook.Failure) cli.Field {
	undo := logbook.Failure{Step: failure.Step, Message: failure.Kind + ": " + failure.Message}
	return cli.Field{"revert failed", undo.Error()}
}

// FailureFields are the lines about a failure and its causes. For a failed revert, the lines about
// the original failure come first.
func FailureFields(failure *logbook.Failure) []cli.Field {
	if failure == nil {
		return nil
	}
	if origin := failure.Origin(); origin != failure {
		return append(FailureFields(origin), revertField(failure))
	}
	kind := failure.Kind
	if logbook.CauseOf(failure).Kind == logbook.CauseDeadline {
		kind = string(logbook.CauseDeadline) // no operator has ended the job
	}
	fields := []cli.Field{
		{"failed step", failure.Step},
		{"failure", kind + ": " + failure.Message},
	}
	if len(failure.Details) > 0 && failure.Kind != logbook.FailureOperator { // there they repeat the message
		fields = append(fields, cli.Field{"failure details", cli.ValuesText(failure.Details)})
	}
	for len(failure.Causes) > 0 {
		said := failure.Message
		failure = &failure.Causes[0]
		if strings.Contains(said, failure.Message) {
			continue // an error contains its causes, which would then appear twice
		}
		fields = append(fields, cli.Field{"caused by", (&logbook.Failure{Step: failure.Step, Message: failure.Kind + ": " + failure.Message}).Error()})
	}
	return fields
}

// stderrLines is the default number of shown lines of a step's stderr.
const stderrLines = 20

// maxAlsoFailed limits the steps that are named in addition to the step that caused the failure.
const maxAlsoFailed = 10

// few returns the first fields, and the number of the other fields.
func few(fields []cli.Field) []cli.Field {
	if more := len(fields) - maxAlsoFailed; more > 0 {
		return append(fields[:maxAlsoFailed], cli.Field{fields[0][0], fmt.Sprintf("%d more steps", more)})
	}
	return fields
}

// FlowEvidence returns a flow's evidence beyond the cause of its failure: the other failed
// reverts and steps, and the end of the stderr of the step in the cause. If that step wrote nothing, the
// stderr of a deeper step of the cause is shown under that step's name.
func FlowEvidence(cause *logbook.Failure, detail *logbook.FlowDetail) (fields []cli.Field) {
	var named []*logbook.Failure
	for rest := []*logbook.Failure{cause}; len(rest) > 0 && rest[0] != nil; rest = rest[1:] {
		named = append(named, rest[0])
		for i := range rest[0].Causes {
			rest = append(rest, &rest[0].Causes[i])
		}
	}
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		last, ok := atom.Last(logbook.ActionRevert)
		if ok && atom.State == logbook.AtomRevertFailure && last.Failure != nil && (cause == nil || atom.Name != cause.Step) {
			failure := *last.Failure
			failure.Step = atom.Name
			fields = append(fields, revertField(&failure))
		}
	}
	var others []cli.Field
	for _, other := range detail.AlsoFailed(cause) {
		others = append(others, cli.Field{"also failed", other.Step + ": " + other.Kind + ": " + other.Message})
	}
	fields = append(few(fields), few(others)...)
	for i, failure := range named {
		atom, ok := detail.Atom(failure.Step)
		if !ok {
			continue
		}
		name, action := "stderr", logbook.ActionExecute
		if i == 0 && atom.State == logbook.AtomRevertFailure {
			name, action = "stderr of the revert", logbook.ActionRevert
		} else if failure.Step != cause.Step {
			name += " of " + failure.Step
		}
		if lines := stderrTail(atom, action); len(lines) > 0 {
			return append(fields, cli.Field{name, strings.Join(lines, "\n")})
		}
	}
	return fields
}

// stderrTail returns the end of the stderr of a step's last failed attempt.
func stderrTail(atom *logbook.AtomDetail, action logbook.Action) []string {
	last, ok := atom.Last(action)
	if !ok || last.Failure == nil || last.Stderr == "" {
		return nil
	}
	lines := strings.Split(strings.TrimRight(last.Stderr, "\n"), "\n")
	return lines[max(0, len(lines)-stderrLines):]
}

// FailedAttemptText is a failed attempt on one line.
func FailedAttemptText(atom *logbook.AtomDetail, attempt *logbook.Attempt) string {
	return fmt.Sprintf("%s %s %d failed: %s", atom.Name, attempt.Action, attempt.Number, cli.Shorten(attempt.Failure.Kind+": "+attempt.Failure.Message))
}
