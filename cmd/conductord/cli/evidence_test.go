package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/logbook"
)

// tried is a step with an attempt at each action that is given: how it failed,
// and what it wrote to stderr.
func tried(name string, state logbook.AtomState, attempts ...logbook.Attempt) logbook.AtomDetail {
	atom := logbook.AtomDetail{Name: name, Kind: logbook.KindTask, State: state}
	for i, attempt := range attempts {
		attempt.Number, attempt.StartedAt, attempt.EndedAt = i+1, noon, noon
		atom.Attempts = append(atom.Attempts, attempt)
	}
	return atom
}

func fails(action logbook.Action, message, stderr string) logbook.Attempt {
	return logbook.Attempt{Action: action, Failure: &logbook.Failure{Kind: logbook.FailureExit, Message: message}, Stderr: stderr}
}

// TestEvidence: what is shown of a failed flow is that of the step which the
// cause names, or says whose it is; and no step that failed is passed over.
func TestEvidence(t *testing.T) {
	const execute, revert = logbook.ActionExecute, logbook.ActionRevert
	undone := logbook.Attempt{Action: revert}
	cause := func(step string, causes ...logbook.Failure) *logbook.Failure {
		return &logbook.Failure{Kind: logbook.FailureExit, Message: "m", Step: step, Causes: causes}
	}
	for _, row := range []struct {
		name  string
		cause *logbook.Failure
		atoms []logbook.AtomDetail
		want  string
	}{
		{"a silent failure", cause("silent"), []logbook.AtomDetail{
			tried("flaky", logbook.AtomReverted, fails(execute, "m", "harmless"), logbook.Attempt{Action: execute}, undone),
			tried("silent", logbook.AtomReverted, fails(execute, "m", ""), undone)}, ""},
		{"silent at last", cause("silent"), []logbook.AtomDetail{
			tried("silent", logbook.AtomReverted, fails(execute, "m", "the first time"), fails(execute, "m", ""), undone)}, ""},
		{"a loud failure", cause("loud"), []logbook.AtomDetail{
			tried("loud", logbook.AtomReverted, fails(execute, "m", "no room"), fails(revert, "m", "not now"), undone)}, "stderr: no room"},
		{"two at once", cause("p"), []logbook.AtomDetail{
			tried("p", logbook.AtomReverted, fails(execute, "m", "of p"), undone),
			tried("q", logbook.AtomReverted, fails(execute, "too", "of q"), undone)}, "also failed: q: handler.exit: too|stderr: of p"},
		{"an undo", cause("p", *cause("q")), []logbook.AtomDetail{
			tried("p", logbook.AtomRevertFailure, logbook.Attempt{Action: execute}, fails(revert, "m", "no way back")),
			tried("q", logbook.AtomReverted, fails(execute, "m", "of q"), undone)}, "stderr of the undo: no way back"},
		{"a silent undo", cause("p", *cause("q")), []logbook.AtomDetail{
			tried("p", logbook.AtomRevertFailure, logbook.Attempt{Action: execute}, fails(revert, "m", "")),
			tried("q", logbook.AtomReverted, fails(execute, "m", "of q"), undone)}, "stderr of q: of q"},
		{"one that a round made good", cause(""), []logbook.AtomDetail{
			tried("p", logbook.AtomReverted, fails(execute, "m", "x"), undone, logbook.Attempt{Action: execute}, undone),
			tried("q", logbook.AtomPending, fails(execute, "m", "x"), undone)}, ""},
	} {
		got := cli.Evidence(row.cause, &logbook.FlowDetail{State: logbook.FlowReverted, Cause: row.cause, Atoms: row.atoms})
		if strings.Join(got, "|") != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

// TestAttemptsThatAreNotShown: what is folded is counted, and a result that an
// answer leaves out is not taken for none.
func TestAttemptsThatAreNotShown(t *testing.T) {
	atom := tried("a", logbook.AtomSuccess, logbook.Attempt{Action: logbook.ActionExecute, Shortened: true}, logbook.Attempt{Action: logbook.ActionExecute})
	atom.Folded = logbook.Folded{Executions: 300, Reverts: 2}
	got := cli.Attempts(&logbook.FlowDetail{Atoms: []logbook.AtomDetail{atom}})
	for _, want := range []string{"no longer kept: 300 executions, 2 reverts, 0 resets\n", "done; a result is left out of this answer\n", "done\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
