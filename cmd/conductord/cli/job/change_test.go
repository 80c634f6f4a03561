package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

func TestJobChanges(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name string
		post string // additional flags of job post
		args string // several commands on one job; the test checks the last
		held bool   // claimed by a worker
		code int
		out  string
		err  string // part of stderr
	}{
		{"release", "--hold", "release", false, 0, "ID claimable, priority normal\n", ""},
		{"release again", "--hold", "release; release", false, 0, "ID claimable, priority normal\n", ""},
		{"release before its time", "--hold --not-before 1h", "release", false, 0, "ID delayed, priority normal, due TIME\n", ""},
		{"release what is not held", "", "release", false, 0, "ID claimable, priority normal\n", ""},
		{"delay for", "", "change --not-before 1h", false, 0, "ID delayed, priority normal, due TIME\n", ""},
		{"delay until", "", "change --not-before 2130-01-02T03:04:05Z", false, 0, "ID delayed, priority normal, due TIME\n", ""},
		{"bring forward", "--not-before 1h", "change --not-before 0s", false, 0, "ID claimable, priority normal\n", ""},
		{"delay what another has", "", "change --not-before 1h", true, 0, "ID claimed, priority normal\n", ""},
		{"a due time that is past", "--not-before 1h", "change --not-before -1s", false, 0, "ID claimable, priority normal\n", ""},
		{"delay until some day", "", "change --not-before monday", false, cli.ExitUsage, "", "--not-before must be a time"},
		{"delay what is cancelled", "", "cancel; change --not-before 1h", false, cli.ExitConflict, "", "the job is completed"},
		{"prefer", "", "change --priority high", false, 0, "ID claimable, priority high\n", ""},
		{"prefer by number", "", "change --priority -7", false, 0, "ID claimable, priority -7\n", ""},
		{"set a deadline", "", "change --deadline 1h", false, 0, "ID claimable, priority normal, deadline TIME\n", ""},
		{"put it off", "--deadline 1h", "change --deadline 2h --priority high", true, 0, "ID claimed, priority high, deadline TIME\n", ""},
		{"take it back", "--deadline 1h", "change --deadline none; change --deadline none", false, 0, "ID claimable, priority normal\n", ""},
		{"change nothing", "", "change", false, cli.ExitUsage, "", "name a change"},
		{"a deadline that is past", "", "change --deadline 2020-01-01T00:00:00Z", false, cli.ExitUsage, "", "has passed"},
		{"a deadline before it is due", "--not-before 2h", "change --deadline 1h", false, cli.ExitUsage, "", "is not after not_before"},
		{"a deadline of what is cancelled", "", "cancel; change --deadline 1h", false, cli.ExitConflict, "", "the job is completed"},
		{"to the front", "", "change --front", false, 0, "ID claimable, priority normal\n", ""},
		{"what is cancelled to the front", "", "cancel; change --front", false, cli.ExitConflict, "", "the job is completed"},
		{"a repeat of an earlier change", "", "change --priority high --id 0190c7e2-0000-7000-8000-000000000001; change --priority low; " +
			"change --priority high --id 0190c7e2-0000-7000-8000-000000000001", false, 0, "ID claimable, priority low\n", ""},
		{"prefer what is cancelled", "", "cancel; change --priority high", false, cli.ExitConflict, "", "the job is completed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := clitest.Post(t, cluster, append([]string{"--kind", "k"}, strings.Fields(row.post)...)...)
			if row.held {
				clitest.NewWorker(t, cluster, id)
			}
			var got clitest.Said
			for _, line := range strings.Split(row.args, ";") {
				got = clitest.Run(t, cluster, append([]string{"job"}, append(strings.Fields(line), id.String())...)...)
			}
			if got.Code != row.code || clitest.Steady(got.Out) != row.out || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := clitest.Run(t, cluster, "job", "release", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("an unknown job: %+v", got)
	}
}

func TestJobPostUnderAKey(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--key", "order 7", "--tag", "red,big", "--max-crashes", "2", "--front")
	clitest.Post(t, cluster, "--kind", "k", "--tag", "red")
	got := clitest.Run(t, cluster, "job", "post", "--kind", "k", "--key", "order 7", "--priority", "high")
	if got.Out != id.String()+"\n" || !strings.Contains(got.Err, "has the key \"order 7\" and is not finished") {
		t.Errorf("posted again: %+v", got)
	}
	shown := clitest.Run(t, cluster, "job", "get", id.String())
	for _, want := range []string{"priority: high", "front: yes", "key: order 7", "tags: red, big", "max crashes: 2"} {
		if !strings.Contains(clitest.Steady(shown.Out), want+"\n") {
			t.Errorf("the job is not shown with %q: %+v", want, shown)
		}
	}
	for args, want := range map[string]int{"--key order 7": 1, "--tag red": 2, "--tag red --tag big": 1, "--tag blue": 0} {
		words := strings.Split(args, " ")
		if words[0] == "--key" {
			words = []string{"--key", "order 7"}
		}
		listed := clitest.Run(t, cluster, append([]string{"-o", "json", "job", "list"}, words...)...)
		if n := strings.Count(listed.Out, "\"sequence\""); n != want {
			t.Errorf("%s: %d jobs are listed, not %d: %+v", args, n, want, listed)
		}
	}
}

func TestJobChangesAreTold(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--hold")
	clitest.Run(t, cluster, "job", "release", "--reason", "all is there", id.String())
	clitest.Run(t, cluster, "job", "cancel", id.String())
	watched := clitest.Run(t, cluster, "job", "watch", "--after", "0-0", id.String())
	for _, want := range []string{` posted ID "k" held`, ` changed ID "k" claimable request=change by=`, ` reason="all is there"`} {
		if !strings.Contains(clitest.Steady(watched.Out), want) {
			t.Errorf("the watch does not say %q: %+v", want, watched)
		}
	}
}

func TestJobMove(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Run(t, cluster, "board", "create", "night")
	first, second, held := clitest.Post(t, cluster, "--kind", "k"), clitest.Post(t, cluster, "--kind", "k", "--hold"), clitest.Post(t, cluster, "--kind", "k")
	clitest.NewWorker(t, cluster, held)
	for _, row := range []struct {
		args []string
		code int
		out  string
		err  string // part of stderr
	}{
		{[]string{"job", "move", "--reason", "it is late", first.String(), second.String(), "night"}, 0, "ID claimable, board night\nID held, board night\n", ""},
		{[]string{"job", "move", first.String(), "night"}, 0, "ID claimable, board night\n", ""},
		{[]string{"job", "move", first.String(), "default"}, 0, "ID claimable, board default\n", ""},
		{[]string{"job", "move", first.String(), "nihgt"}, cli.ExitNotFound, "",
			"job ID: board \"nihgt\": not found\nconductord: the first posting creates a board, or run `conductord board create nihgt`\n"},
		{[]string{"job", "move", "01890000-0000-7000-8000-000000000001", "night"}, cli.ExitNotFound, "", ": not found\n"},
		{[]string{"job", "move", held.String(), "night"}, cli.ExitConflict, "", "conductord job suspend ID"},
		{[]string{"job", "move", "night"}, cli.ExitUsage, "", ""},
		{[]string{"job", "move", "x", "night"}, cli.ExitUsage, "", "job id"},
	} {
		got := clitest.Run(t, cluster, row.args...)
		if out := clitest.Steady(got.Out); got.Code != row.code || row.out != "" && out != row.out || !strings.Contains(clitest.Steady(got.Err), row.err) {
			t.Errorf("%v: %+v", row.args, got)
		}
	}
}

// TestStartBetweenAttempts: commands that should start a job now are refused while its conductor waits for the next attempt
// of a step, because they would have no effect. The refusal names the command that helps.
func TestStartBetweenAttempts(t *testing.T) {
	cluster := clitest.Open(t)
	w := clitest.NewWorker(t, cluster, clitest.PostHello(t, cluster))
	waiting := w.Finish("make-greeting", "", &logbook.Failure{Kind: logbook.FailureExit, Message: "exit status 3"})
	waiting.State, waiting.RetryAt = logbook.AtomPending, time.Now().Add(time.Hour)
	w.Update(logbook.FlowRunning, waiting)
	id := w.Claimed.Job.ID.String()
	for _, row := range []struct {
		args string
		code int
	}{
		{"retry ID", cli.ExitConflict},
		{"release ID", cli.ExitConflict},
		{"release ID --id 5bd43f3b-7a3e-4b55-9d3a-8a2d8f1c0001", 0}, // can be a repeat
		{"change ID --not-before 0s", cli.ExitConflict},
		{"change ID --priority high", 0},
		{"change ID --not-before 2h", 0}, // applies after the claim
	} {
		got := clitest.Run(t, cluster, append([]string{"job"}, strings.Fields(strings.ReplaceAll(row.args, "ID", id))...)...)
		if got.Code != row.code || row.code != 0 && !strings.Contains(got.Err, "for its next attempt; `conductord flow retry-now "+id+"` starts it now\n") {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	if got := clitest.Run(t, cluster, "flow", "retry-now", id); got.Code != 0 {
		t.Errorf("retry-now: %+v", got)
	}
	if got := clitest.Run(t, cluster, "job", "retry", id); got.Code != 0 {
		t.Errorf("retry of a job that does not wait: %+v", got)
	}
}
