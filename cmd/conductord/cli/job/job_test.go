package job_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func TestJobPost(t *testing.T) {
	cluster := clitest.Open(t)
	id := jobs.NewJobID().String()
	same := []string{"job", "post", "--id", id, "--flow", clitest.Examples + "hello.toml", "--set", "guest=Ann", "--priority", "high"}
	clitest.Expect(t, clitest.Run(t, cluster, same...), 0, "ID\n", "")
	clitest.Expect(t, clitest.Run(t, cluster, same...), 0, "ID\n", "conductord: job ID was already posted: nothing changed\n")
	other := clitest.Run(t, cluster, append(same, "--name", "other")...)
	if other.Code != cli.ExitConflict {
		t.Errorf("the same id for another job: %+v", other)
	}
	missing := clitest.Run(t, cluster, "job", "post", "--flow", clitest.Needy(t))
	if missing.Code != cli.ExitUsage || !strings.Contains(missing.Err, "guest") {
		t.Errorf("without an input: %+v", missing)
	}
	unknown := clitest.Run(t, cluster, "job", "post", "--book", jobs.NewJobID().String())
	if unknown.Code != cli.ExitNotFound {
		t.Errorf("an unknown book: %+v", unknown)
	}

	job := clitest.ReadJob(t, clitest.Run(t, cluster, "job", "get", "-o", "json", id).Out)
	if job.Name != "hello" || job.Kind != "document" || job.Priority != jobs.High || string(job.Store["guest"]) != `"Ann"` {
		t.Errorf("posted %+v", job)
	}
}

func TestJobPostValues(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--set", "n=3", "--set", "city=Wien", "--set", `list=["a", 1]`, "--set", "empty=",
		"--details", `{"ticket": 12345678901234567890}`, "--not-before", "1h", "--board", "b", "--name", "n")
	job, err := cluster.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"n": "3", "city": `"Wien"`, "list": `["a", 1]`, "empty": `""`} {
		if got := string(job.Store[name]); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if string(job.Details) != `{"ticket": 12345678901234567890}` || job.State != jobs.StateDelayed || job.Board != "b" {
		t.Errorf("posted %+v", job)
	}
}

func TestJobGet(t *testing.T) {
	cluster := clitest.Open(t)
	idle := "conductord: the job waits: no live conductor builds flows of kind \"document\" from board \"default\"\n"
	waiting := clitest.PostHello(t, cluster)
	clitest.Expect(t, clitest.Run(t, cluster, "job", "get", waiting.String()), 0,
		"id: ID\nname: hello\nboard: default\nkind: document\npriority: normal\nstate: claimable\n"+
			"book: ID hello\nflow: ID\nstore: guest = \"Ann\"\nposted: TIME\nclaims: 0\n", idle)

	failed := clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, failed).Fail()
	got := clitest.Run(t, cluster, "job", "get", failed.String())
	for _, want := range []string{
		"state: completed\n", "outcome: failed\n", "failed step: say-greeting\n", "failure: handler.exit: exit status 3\n",
		"caused by: error: the guest has left\n", "stderr: connecting\n no such guest\\u001b[31m\n",
	} {
		if !strings.Contains(clitest.Steady(got.Out), want) {
			t.Errorf("no %q in\n%s", want, got.Out)
		}
	}
	if got.Code != 0 || got.Err != "" || strings.Count(got.Out, "status 3") != 1 {
		t.Errorf("got %+v", got)
	}

	unknown := clitest.Run(t, cluster, "job", "get", jobs.NewJobID().String())
	clitest.Expect(t, unknown, cli.ExitNotFound, "", unknownText(unknown))
}

func unknownText(got clitest.Said) string {
	if !strings.HasPrefix(got.Err, "conductord: cannot read job ") {
		return "an error that says what could not be done"
	}
	return clitest.Steady(got.Err)
}

func TestJobList(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Expect(t, clitest.Run(t, cluster, "job", "list"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n", "")
	clitest.Expect(t, clitest.Run(t, cluster, "job", "list", "-o", "json"), 0, "{\n \"jobs\": []\n}\n", "")

	clitest.Post(t, cluster, "--kind", "k", "--name", "right\u202eleft")
	claimed := clitest.Post(t, cluster, "--kind", "k", "--priority", "7", "--board", "b")
	clitest.NewWorker(t, cluster, claimed)
	clitest.Expect(t, clitest.Run(t, cluster, "job", "list"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n"+
		"ID claimed - k AGO TOOK k b 7 w1 AGO\n"+
		"ID claimable - right\\u202eleft - - k default normal - AGO\n", "")
	clitest.Expect(t, clitest.Run(t, cluster, "job", "list", "--state", "claimed"), 0, "ID STATE OUTCOME NAME STARTED TOOK KIND BOARD PRIORITY OWNER POSTED\n"+
		"ID claimed - k AGO TOOK k b 7 w1 AGO\n", "")
	got := clitest.Run(t, cluster, "job", "list", "-o", "json", "--limit", "1", "--reverse")
	if listed := clitest.ReadJobs(t, got.Out); len(listed) != 1 || listed[0].Name != "right\u202eleft" {
		t.Errorf("got %+v", got)
	}
	if rest := clitest.Run(t, cluster, "job", "list", "--reverse", "--after", clitest.CursorOf(t, got.Out)); strings.Count(rest.Out, "\n") != 2 || !strings.Contains(rest.Out, claimed.String()) {
		t.Errorf("after the first: %+v", rest)
	}
	if strings.Contains(got.Out, "\u202e") || !strings.Contains(got.Err, "shown: 1; all items: --limit 0") {
		t.Errorf("got %+v", got)
	}
}

func TestJobWait(t *testing.T) {
	cluster := clitest.Open(t)
	good, bad := clitest.PostHello(t, cluster), clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, good).Succeed()
	clitest.NewWorker(t, cluster, bad).Fail()
	for _, row := range []struct {
		name string
		ids  []string
		code int
	}{
		{"a success", []string{good.String()}, cli.ExitOK},
		{"a failure", []string{bad.String()}, cli.ExitFailed},
		{"both", []string{good.String(), bad.String()}, cli.ExitFailed},
		{"an unknown one", []string{jobs.NewJobID().String()}, cli.ExitNotFound},
	} {
		if got := clitest.Run(t, cluster, append([]string{"job", "wait"}, row.ids...)...); got.Code != row.code {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
	waiting := clitest.Post(t, cluster, "--kind", "k")
	if got := clitest.Run(t, cluster, "job", "wait", "--timeout", "1ms", waiting.String()); got.Code != cli.ExitTimeout {
		t.Errorf("a job that is not finished in time: %+v", got)
	}
}

func TestJobEnds(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name string
		args string
		held bool // claimed by a worker; its token replaces TOKEN
		code int
		out  string
		err  string // part of stderr
	}{
		{"consume", "consume ID", false, 0, "ID completed\n", ""},
		{"consume as failed", "consume --outcome failed ID", false, 0, "ID completed\n", ""},
		{"consume under a claim", "consume --token TOKEN ID", true, 0, "ID completed\n", ""},
		{"abandon under a claim", "abandon --token TOKEN --reason tired ID", true, 0, "ID claimable\n", ""},
		{"abandon for a while", "abandon --delay 1h ID", false, 0, "ID cooling\n", ""},
		{"trash", "trash ID", false, 0, "ID trashed\n", ""},
		{"trash with a reason", "trash --reason broken ID", false, 0, "ID trashed\n", ""},
		{"trash under another claim", "trash --token 0-1 ID", true, cli.ExitConflict, "", "w1 holds job"},
		{"consume what another has", "consume ID", true, cli.ExitConflict, "", `"w1" has held the job since`},
		{"trash what another has", "trash ID", true, cli.ExitConflict, "", `"w1" has held the job since`},
		{"what stops a claimed job", "trash ID", true, cli.ExitConflict, "", "`conductord job cancel ID` cancels the job, and `conductord job suspend --interrupt-steps ID` suspends it; a caller that may use the claim can add --token TOKEN\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := clitest.Post(t, cluster, "--kind", "k")
			args := strings.ReplaceAll(row.args, "ID", id.String())
			if row.held {
				token := clitest.NewWorker(t, cluster, id).Claimed.Job.Token.String()
				args, row.err = strings.ReplaceAll(args, "TOKEN", token), strings.NewReplacer("TOKEN", token, "ID", id.String()).Replace(row.err)
			}
			got := clitest.Run(t, cluster, append([]string{"job"}, strings.Fields(args)...)...)
			if got.Code != row.code || clitest.Steady(got.Out) != row.out || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
			sessions, err := cluster.Sessions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, session := range sessions {
				if session.Name != "w1" {
					t.Errorf("the command has left its session %q open", session.Name)
				}
			}
		})
	}
	id := clitest.Post(t, cluster, "--kind", "k")
	clitest.Run(t, cluster, "job", "trash", "--reason", "broken", id.String())
	got := clitest.Run(t, cluster, "job", "get", id.String())
	if !strings.Contains(clitest.Steady(got.Out), "reason: broken\n") || !strings.Contains(clitest.Steady(got.Out), "failure: operator: broken\n") {
		t.Errorf("the evidence: %+v", got)
	}
	again := clitest.Run(t, cluster, "job", "trash", id.String())
	clitest.Expect(t, again, cli.ExitConflict, "", "conductord: cannot trash job ID: the job cannot be claimed now: it is trashed\n")
	for _, row := range []struct{ flags, state, remedy string }{
		{"--not-before 1h", "delayed until TIME", "job change ID --not-before TOOK"},
		{"--hold", "held", "job release ID"},
		{"--hold --not-before 1h", "held", "job release ID"},
		{"", "suspended", "job resume ID"},
		{"--not-before 1h", "suspended", "job resume ID"}, // the time is not the end of this state
	} {
		id := clitest.Post(t, cluster, append([]string{"--kind", "k"}, strings.Fields(row.flags)...)...)
		if row.state == "suspended" {
			clitest.Run(t, cluster, "job", "suspend", id.String())
		}
		got := clitest.Run(t, cluster, "job", "trash", id.String())
		for _, want := range []string{"cannot trash job ID: the job cannot be claimed now: it is " + row.state + "\n", "`conductord job cancel ID` cancels the job in this state; to claim it, first run `conductord " + row.remedy + "`\n"} {
			if got.Code != cli.ExitConflict || !strings.Contains(clitest.Steady(got.Err), want) {
				t.Errorf("a job that is %s: %+v, want %s", row.state, got, want)
			}
		}
	}
	unknown := clitest.Run(t, cluster, "job", "consume", jobs.NewJobID().String())
	if unknown.Code != cli.ExitNotFound || !strings.HasPrefix(unknown.Err, "conductord: cannot consume job ") {
		t.Errorf("an unknown job: %+v", unknown)
	}
}

func TestJobWatch(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster, "--name", "a b")
	clitest.NewWorker(t, cluster, id).Succeed()
	got := clitest.Run(t, cluster, "job", "watch", "--after", "0-0", "--flows", id.String())
	text := regexp.MustCompile(`(?m)^\d+-\d+ `).ReplaceAllString(got.Out, "POSITION ")
	clitest.Expect(t, clitest.Said{Out: text, Err: got.Err, Code: got.Code}, 0,
		"POSITION TIME posted ID \"a b\" claimable\n"+
			"POSITION TIME claimed ID \"a b\" claimed owner=w1\n"+
			"POSITION TIME flow ID \"a b\" flow=running make-greeting=running\n"+
			"POSITION TIME flow ID \"a b\" make-greeting=success say-greeting=running\n"+
			"POSITION TIME flow ID \"a b\" flow=success say-greeting=success\n"+
			"POSITION TIME completed ID \"a b\" completed outcome=success owner=w1\n", "")

	got = clitest.Run(t, cluster, "job", "watch", "--after", "0-0", "-o", "json", id.String())
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	for _, line := range lines {
		if event := clitest.ReadJSON(t, line, &v1.Event{}, command.EventFromProto); event.Job != id {
			t.Errorf("an event of another job on the line %s", line)
		}
	}
	if len(lines) != 3 || got.Code != 0 {
		t.Errorf("%d lines: %+v", len(lines), got)
	}
}

// TestJobWatchEnds: the watch of a finished job also ends.
func TestJobWatchEnds(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, id).Succeed()
	got := clitest.Run(t, cluster, "job", "watch", id.String())
	clitest.Expect(t, got, 0, "", "conductord: job ID is already completed: success\n")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := clitest.RunWith(t, ctx, cluster, nil, "job", "watch"); got.Code != 0 {
		t.Errorf("ended from the keyboard: %+v", got)
	}
}
