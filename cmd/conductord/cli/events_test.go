package cli_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/fsmtest"
	"github.com/conductord/conductord/jobs"
)

// following runs a command that does not end by itself, until its time is up. In a
// synctest bubble it has printed everything by then.
func following(t *testing.T, cluster *testCluster, args ...string) said {
	t.Helper()
	return run(t, cluster, append(args, "--timeout", "300ms")...)
}

func TestEventsAreSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := openCluster(t)
		first := post(t, cluster, "--kind", "k", "--key", "order 7", "--tag", "eu")
		post(t, cluster, "--kind", "l", "--board", "night")
		newWorker(t, cluster, first)
		for _, row := range []struct{ name, args, kinds string }{
			{"all", "", "posted posted claimed"},
			{"of two boards", "--board night --board default", "posted posted claimed"},
			{"of a board", "--board night", "posted"},
			{"of a job", "--job " + first.String(), "posted claimed"},
			{"of a kind of event", "--event claimed", "claimed"},
			{"of a kind of job", "--kind l", "posted"},
			{"of a tag", "--tag eu", "posted claimed"},
			{"of an owner", "--owner w1 --sessions", "session_opened claimed"},
		} {
			var kinds []string
			got := following(t, cluster, append(strings.Fields("-o json events --after 0-0"), strings.Fields(row.args)...)...)
			for _, line := range strings.Split(strings.TrimSpace(got.out), "\n") {
				event := readJSON(t, line, &v1.Event{}, command.EventFromProto)
				kinds = append(kinds, string(event.Kind))
			}
			if strings.Join(kinds, " ") != row.kinds {
				t.Errorf("%s: told %q, not %q (%+v)", row.name, kinds, row.kinds, got)
			}
		}
		if got := following(t, cluster, "events", "--after", "0-0", "--event", "session_opened"); !strings.Contains(got.out, "owner=w1") {
			t.Errorf("a session is told as %+v", got)
		}
		run(t, cluster, "board", "pause", "night", "--reason", "stocktaking")
		if got := following(t, cluster, "events", "--after", "0-0", "--event", "board_paused"); !strings.Contains(got.out, ` board_paused board="night" request=suspend by=`) ||
			!strings.Contains(got.out, ` reason="stocktaking"`) {
			t.Errorf("a pause is told as %+v", got)
		}
		for _, row := range []struct{ args, err string }{
			{"events --event exploded", "watch kinds"},
			{"events --after 7", "--after must be INDEX-ITEM"},
			{"events --job 7", "job id"},
		} {
			if got := run(t, cluster, strings.Fields(row.args)...); got.code != cli.ExitUsage || !strings.Contains(got.err, row.err) {
				t.Errorf("%s: %+v", row.args, got)
			}
		}
	})
}

// A request for events that are gone is refused, with the position where events
// begin. A request for all events gets those that are kept.
func TestEventsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &testCluster{Board: fsmtest.New(t, fsmtest.Options{EventsKept: 2})}
		for range 5 {
			post(t, cluster, "--kind", "k")
		}
		got := run(t, cluster, "events", "--after", "3-1")
		if got.code != cli.ExitConflict || !strings.Contains(got.err, "--after 4-1 tells all that is kept") {
			t.Errorf("got %+v", got)
		}
		got = following(t, cluster, "events", "--after", "0-0")
		if strings.Count(got.out, "posted") != 2 || !strings.Contains(got.err, "events up to 4-1 are no longer kept") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestJobsAreWaitedFor(t *testing.T) {
	cluster := openCluster(t)
	first := post(t, cluster, "--kind", "k", "--tag", "eu")
	second := post(t, cluster, "--kind", "k", "--tag", "eu")
	worker := newWorker(t, cluster, first)
	done := make(chan said, 1)
	go func() { done <- run(t, cluster, "job", "wait", "--tag", "eu") }()
	end := func(id jobs.JobID, outcome jobs.Outcome, token jobs.Token) {
		worker.must(cluster.Consume(context.WithoutCancel(t.Context()), jobs.Ending{Job: id, Token: token, Outcome: outcome}))
	}
	end(first, jobs.OutcomeSuccess, worker.claimed.Job.Token)
	other := newWorker(t, cluster, second)
	end(second, jobs.OutcomeReverted, other.claimed.Job.Token)
	if got := <-done; (got.code != 0 && got.code != cli.ExitFailed) || !strings.Contains(got.out, "finished") {
		t.Errorf("got %+v", got)
	}
	if got := run(t, cluster, "-o", "json", "job", "wait", "--board", "default"); got.code != 0 || !strings.Contains(got.out, `"finished": 0`) {
		t.Errorf("an empty board: %+v", got)
	}
	for _, args := range []string{"job wait", "job wait --kind k " + first.String()} {
		if got := run(t, cluster, strings.Fields(args)...); got.code != cli.ExitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestParkedJobsAreToldOf: who waits for a job that is parked hears of that on
// stderr, why, and what lets it go; and goes on waiting.
func TestParkedJobsAreToldOf(t *testing.T) {
	for _, row := range []struct {
		name string
		park bool // before the command is given, and not while it waits
		args func(jobs.JobID) []string
		out  string // what stdout begins with
	}{
		{"one job", true, func(id jobs.JobID) []string { return []string{"job", "wait", id.String()} }, ""},
		{"one job, meanwhile, as JSON", false, func(id jobs.JobID) []string { return []string{"-o", "json", "job", "wait", id.String()} }, "{\n  \"jobs\": [\n    {\n      \"job\": {\n        \"id\": "},
		{"all of a kind", true, func(jobs.JobID) []string { return []string{"job", "wait", "--kind", "k"} }, "1 finished, 1 cancelled\n"},
		{"a board", false, func(jobs.JobID) []string { return []string{"board", "wait", "default"} }, "default has 0 unfinished, 1 finished, 1 cancelled\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster := openCluster(t)
			id := post(t, cluster, "--kind", "k", "--on-failure", "park")
			worker := newWorker(t, cluster, id)
			park := func() {
				worker.must(cluster.Consume(context.WithoutCancel(t.Context()), jobs.Ending{
					Job: id, Token: worker.claimed.Job.Token, Outcome: jobs.OutcomeFailed, Reason: "no snow",
				}))
			}
			if row.park {
				park()
				if got := run(t, cluster, "board", "show", "default"); !strings.Contains(steady(got.out), "parked jobs: 1\n") {
					t.Errorf("the board is shown as %q", got.out)
				}
			}
			seen, done := make(chan struct{}), make(chan said, 1)
			stderr := &signalling{Writer: new(strings.Builder), seen: seen}
			go func() { // ends with the job
				done <- runWith(t, t.Context(), cluster, func(p *cli.Program) { p.Err = stderr }, append(row.args(id), "--timeout", "1m")...)
			}()
			if !row.park {
				park()
			}
			select {
			case <-seen:
			case <-time.After(time.Minute):
				t.Fatal("nothing is said of the parked job")
			}
			run(t, cluster, "job", "cancel", id.String())
			got := <-done
			if text := strings.Join(strings.Fields(got.out), " "); !strings.HasPrefix(text, strings.Join(strings.Fields(row.out), " ")) || strings.Contains(got.out, "waits for a person") {
				t.Errorf("it wrote %q", got.out)
			}
			text, _, _ := strings.Cut(stderr.Writer.(*strings.Builder).String(), "conductord: job "+id.String()+": ") // without how it ended
			release := "to release it: `conductord job release " + id.String() + "`\n"
			if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "conductord: job "+id.String()+" waits for an operator: it was parked at ") ||
				!strings.Contains(text, "no snow") || !strings.HasSuffix(text, release) {
				t.Errorf("it said %q", text)
			}
		})
	}
}
