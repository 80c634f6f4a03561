package job_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/boardtest"
)

// following runs a command that does not end by itself, until its context ends. In a synctest
// bubble it has printed everything by then.
func following(t *testing.T, cluster *clitest.Cluster, args ...string) clitest.Said {
	t.Helper()
	return clitest.Run(t, cluster, append(args, "--timeout", "300ms")...)
}

func TestEventsAreSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clitest.Open(t)
		first := clitest.Post(t, cluster, "--kind", "k", "--key", "order 7", "--tag", "eu")
		clitest.Post(t, cluster, "--kind", "l", "--board", "night")
		clitest.NewWorker(t, cluster, first)
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
			for _, line := range strings.Split(strings.TrimSpace(got.Out), "\n") {
				event := clitest.ReadJSON(t, line, &v1.Event{}, command.EventFromProto)
				kinds = append(kinds, string(event.Kind))
			}
			if strings.Join(kinds, " ") != row.kinds {
				t.Errorf("%s: told %q, not %q (%+v)", row.name, kinds, row.kinds, got)
			}
		}
		if got := following(t, cluster, "events", "--after", "0-0", "--event", "session_opened"); !strings.Contains(got.Out, "owner=w1") {
			t.Errorf("the event of a session is %+v", got)
		}
		clitest.Run(t, cluster, "board", "pause", "night", "--reason", "stocktaking")
		if got := following(t, cluster, "events", "--after", "0-0", "--event", "board_paused"); !strings.Contains(got.Out, ` board_paused board="night" request=suspend by=`) ||
			!strings.Contains(got.Out, ` reason="stocktaking"`) {
			t.Errorf("the event of a pause is %+v", got)
		}
		clitest.Run(t, cluster, "signal", "publish", "payments", "--key", "o 7", "--board", "night", "--keep", "1ms")
		time.Sleep(time.Second)
		if got := following(t, cluster, "events", "--after", "0-0", "--event", "publication_expired"); !strings.HasSuffix(got.Out, ` publication_expired board="night" topic="payments" key="o 7"`+"\n") {
			t.Errorf("the event of an expired publication is %+v", got)
		}
		for _, row := range []struct{ args, err string }{
			{"events --event exploded", "watch kinds"},
			{"events --after 7", "--after must be INDEX-ITEM"},
			{"events --job 7", "job id"},
		} {
			if got := clitest.Run(t, cluster, strings.Fields(row.args)...); got.Code != cli.ExitUsage || !strings.Contains(got.Err, row.err) {
				t.Errorf("%s: %+v", row.args, got)
			}
		}
	})
}

// A watch from a position whose events were removed is refused with the first available position. A
// watch of all events gets the stored events.
func TestEventsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &clitest.Cluster{Board: boardtest.New(t, boardtest.Options{EventsKept: 2})}
		for range 5 {
			clitest.Post(t, cluster, "--kind", "k")
		}
		got := clitest.Run(t, cluster, "events", "--after", "3-1")
		if got.Code != cli.ExitConflict || !strings.Contains(got.Err, "--after 4-1 shows all events that are kept") {
			t.Errorf("got %+v", got)
		}
		got = following(t, cluster, "events", "--after", "0-0")
		if strings.Count(got.Out, "posted") != 2 || !strings.Contains(got.Err, "events up to 4-1 have been removed") {
			t.Errorf("got %+v", got)
		}
	})
}

func TestJobsAreWaitedFor(t *testing.T) {
	cluster := clitest.Open(t)
	first := clitest.Post(t, cluster, "--kind", "k", "--tag", "eu")
	second := clitest.Post(t, cluster, "--kind", "k", "--tag", "eu")
	worker := clitest.NewWorker(t, cluster, first)
	done := make(chan clitest.Said, 1)
	go func() { done <- clitest.Run(t, cluster, "job", "wait", "--tag", "eu") }()
	end := func(id jobs.JobID, outcome jobs.Outcome, token jobs.Token) {
		worker.Must(cluster.Consume(context.WithoutCancel(t.Context()), jobs.Ending{Job: id, Token: token, Outcome: outcome}))
	}
	end(first, jobs.OutcomeSuccess, worker.Claimed.Job.Token)
	other := clitest.NewWorker(t, cluster, second)
	end(second, jobs.OutcomeReverted, other.Claimed.Job.Token)
	if got := <-done; (got.Code != 0 && got.Code != cli.ExitFailed) || !strings.Contains(got.Out, "finished") {
		t.Errorf("got %+v", got)
	}
	if got := clitest.Run(t, cluster, "-o", "json", "job", "wait", "--board", "default"); got.Code != 0 || !strings.Contains(got.Out, `"finished": 0`) {
		t.Errorf("an empty board: %+v", got)
	}
	for _, args := range []string{"job wait", "job wait --kind k " + first.String()} {
		if got := clitest.Run(t, cluster, strings.Fields(args)...); got.Code != cli.ExitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestWaitEndsForOperator: a waiting command ends with exit code 1 when only an operator can
// continue the job. stderr has the reason and the next command.
func TestWaitEndsForOperator(t *testing.T) {
	type stop func(w *clitest.Worker, id jobs.JobID)
	park := func(w *clitest.Worker, id jobs.JobID) {
		w.Must(w.Cluster.Consume(context.WithoutCancel(t.Context()), jobs.Ending{Job: id, Token: w.Claimed.Job.Token, Outcome: jobs.OutcomeFailed, Reason: "no snow"}))
	}
	suspend := func(w *clitest.Worker, id jobs.JobID) {
		clitest.Run(w.T, w.Cluster, "job", "suspend", id.String(), "--reason", "no snow")
		w.Must(w.Cluster.Abandon(context.WithoutCancel(t.Context()), jobs.Ending{Job: id, Token: w.Claimed.Job.Token}))
	}
	one := func(id jobs.JobID) []string { return []string{"job", "wait", id.String()} }
	for _, row := range []struct {
		name   string
		stop   stop
		before bool // before the command starts, not while it waits
		args   func(jobs.JobID) []string
		out    string // start of stdout
		remedy string
	}{
		{"one parked job", park, true, one, "", "job release"},
		{"one job, parked meanwhile, as JSON", park, false, func(id jobs.JobID) []string { return append(one(id), "-o", "json") }, "{\n  \"jobs\": [\n    {\n      \"job\": {\n        \"id\": ", "job release"},
		{"one suspended job", suspend, true, one, "", "job resume"},
		{"one job, suspended meanwhile", suspend, false, one, "", "job resume"},
		{"all of a kind", park, true, func(jobs.JobID) []string { return []string{"job", "wait", "--kind", "k"} }, "0 finished, 1 waiting for an operator\n", "job release"},
		{"a board", park, false, func(jobs.JobID) []string { return []string{"board", "wait", "default"} }, "default has 1 unfinished, 0 finished, 1 waiting for an operator\n", "job release"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster := clitest.Open(t)
			id := clitest.Post(t, cluster, "--kind", "k", "--on-failure", "park")
			worker := clitest.NewWorker(t, cluster, id)
			if row.before {
				row.stop(worker, id)
			}
			done := make(chan clitest.Said, 1)
			go func() { done <- clitest.Run(t, cluster, append(row.args(id), "--timeout", "1m")...) }() // ends with the job
			if !row.before {
				row.stop(worker, id)
			}
			got := <-done
			if text := strings.Join(strings.Fields(got.Out), " "); got.Code != cli.ExitFailed || !strings.HasPrefix(text, strings.Join(strings.Fields(row.out), " ")) {
				t.Errorf("it ended with %d and wrote %q", got.Code, got.Out)
			}
			if text := got.Err; strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "conductord: job "+id.String()+" needs an operator: ") ||
				!strings.Contains(text, "no snow") || !strings.HasSuffix(text, "next step: `conductord "+row.remedy+" "+id.String()+"`\n") {
				t.Errorf("it said %q", text)
			}
		})
	}
	t.Run("posted on hold", func(t *testing.T) {
		got := clitest.Run(t, clitest.Open(t), "job", "post", "--kind", "k", "--hold", "--wait", "--timeout", "1m")
		if got.Code != cli.ExitFailed || !strings.Contains(got.Err, "next step: `conductord job release ") {
			t.Errorf("got %+v", got)
		}
	})
}
