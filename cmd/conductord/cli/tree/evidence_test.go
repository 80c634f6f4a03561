package tree_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/cmd/conductord/cli/tree"
	"github.com/conductord/conductord/logbook"
)

// tried is a step with an attempt for each given action: its failure and its stderr.
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

// TestEvidence: the shown stderr is from the step that caused the failure, or is labelled with its
// step. No failed step is omitted.
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
			tried("q", logbook.AtomReverted, fails(execute, "m", "of q"), undone)}, "stderr of the revert: no way back"},
		{"a silent undo", cause("p", *cause("q")), []logbook.AtomDetail{
			tried("p", logbook.AtomRevertFailure, logbook.Attempt{Action: execute}, fails(revert, "m", "")),
			tried("q", logbook.AtomReverted, fails(execute, "m", "of q"), undone)}, "stderr of q: of q"},
		{"two failed reverts", cause("p", *cause("q")), []logbook.AtomDetail{
			tried("o", logbook.AtomRevertFailure, logbook.Attempt{Action: execute}, fails(revert, "locked", "of o")),
			tried("p", logbook.AtomRevertFailure, logbook.Attempt{Action: execute}, fails(revert, "m", "no way back")),
			tried("q", logbook.AtomReverted, fails(execute, "m", "of q"), undone)}, "revert failed: step o: handler.exit: locked|stderr of the revert: no way back"},
		{"one that a round made good", cause(""), []logbook.AtomDetail{
			tried("p", logbook.AtomReverted, fails(execute, "m", "x"), undone, logbook.Attempt{Action: execute}, undone),
			tried("q", logbook.AtomPending, fails(execute, "m", "x"), undone)}, ""},
	} {
		got := tree.Evidence(row.cause, &logbook.FlowDetail{State: logbook.FlowReverted, Cause: row.cause, Atoms: row.atoms})
		if strings.Join(got, "|") != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

// TestDeadlineIsShown: a passed deadline is not shown as an operator's action.
func TestDeadlineIsShown(t *testing.T) {
	cause := logbook.RevertCause{Kind: logbook.CauseDeadline, Reason: "its deadline has passed"}.Cancelled("the job was cancelled: its deadline has passed")
	if got := tree.FailureFields(cause); got[1][1] != "deadline: the job was cancelled: its deadline has passed" {
		t.Errorf("got %q", got)
	}
}

// TestWorkersAreShown: a step that no worker has taken is not shown as running, and an attempt names its worker.
func TestWorkersAreShown(t *testing.T) {
	cluster := clitest.Open(t)
	document := filepath.Join(t.TempDir(), "flow.toml")
	text := "name = \"mail\"\n[[steps]]\nname = \"send\"\nhandler = \"smtp\"\nworker = true\nworker_labels = [\"eu\"]\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id := clitest.Post(t, cluster, "--flow", document)
	w := clitest.NewWorker(t, cluster, id)
	offer := w.Begin("send")
	offer.Attempts[0].Offered, offer.Attempts[0].StartedAt = true, time.Now().Add(-time.Hour)
	w.Update(logbook.FlowRunning, offer)
	shows := func(want string, args ...string) {
		t.Helper()
		if got := clitest.Run(t, cluster, append(args, id.String())...); !regexp.MustCompile(want).MatchString(got.Out) {
			t.Errorf("%v: no %s in %+v", args, want, got)
		}
	}
	shows(`\n  · send  waits for a worker  1h\S*  smtp \+ eu\n`, "flow", "show")
	shows(`\nwaiting steps: +· send  waits for a worker  1h\S*  smtp \+ eu\n`, "job", "get")
	shows(`BY +WORKER +TOKEN +OUTCOME\nsend +execute +1 .* - +- +\S+ +waits for a worker\n`, "flow", "show", "--attempts")
	shows(`STATE +UNDO\n1 +send +waits for a worker +its offer to workers is withdrawn; then nothing: the step has no revert, or has not started\n`, "flow", "plan", "--revert")
	offer.Attempts[0].Worker, offer.Attempts[0].WorkerName = "0198a3c2", "mailer"
	w.Update("", offer)
	shows(`\n  ▶ send  running  `, "flow", "show")
	shows(` - +mailer +\S+ +begun\n`, "flow", "show", "--attempts")
	if got := clitest.Run(t, cluster, "job", "get", id.String()); strings.Contains(got.Out, "waiting steps") {
		t.Errorf("a worker has the step: %s", got.Out)
	}
}
