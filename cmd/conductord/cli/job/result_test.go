package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/valuekeys"
)

// flaky is a flow whose first step fails twice. The two steps after it fail if fails is set.
func flaky(fails bool) (*flow.Flow, error) {
	tries := 0
	greet := flow.Func("greet", func(context.Context, struct{}) (string, error) {
		if tries++; tries < 3 {
			return "", fmt.Errorf("no voice on try %d", tries)
		}
		return "Hello, Grace!", nil
	}, flow.Provides("greeting"), flow.Retry(flow.Backoff{Attempts: 3}))
	both := make(chan struct{})
	end := func(name string, together func()) *flow.Step {
		return flow.Func(name, func(context.Context, struct{}) (struct{}, error) {
			if together(); fails {
				return struct{}{}, flow.Permanent(errors.New("no " + name))
			}
			return struct{}{}, nil
		}, flow.Uninterruptible())
	}
	return flow.Linear("flaky", greet, flow.Unordered("ends", end("salt", func() { both <- struct{}{} }), end("bread", func() { <-both }))), nil
}

// TestResultsAreShown: stdout has only the results. stderr has the id, and then the failures.
func TestResultsAreShown(t *testing.T) {
	cluster := clitest.Open(t)
	registry := flow.NewRegistry()
	if err := flow.Register(registry, "flaky", flaky); err != nil {
		t.Fatal(err)
	}
	worker, err := conductor.New(conductor.Options{Client: cluster, Registry: registry, Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	post := func(args string, also ...string) clitest.Said {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "flaky", Factory: logbook.Factory{Name: "flaky", Args: json.RawMessage(args)}}}
		if err := cluster.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		return clitest.Run(t, cluster, append([]string{"job", "post", "--wait", "--timeout", "1m", "--book", book.ID.String()}, also...)...)
	}
	has := func(what string, got clitest.Said, code int, out string, errs ...string) {
		t.Helper()
		if got.Code != code || got.Out != out {
			t.Errorf("%s: got %+v", what, got)
		}
		for _, want := range errs {
			if !strings.Contains(clitest.Steady(got.Err), want) {
				t.Errorf("%s: no %q in\n%s", what, want, clitest.Steady(got.Err))
			}
		}
	}
	retried := []string{
		"conductord: retried: greet execute 1 failed: error: no voice on try 1\n",
		"conductord: retried: greet execute 2 failed: error: no voice on try 2\n",
	}
	good := post("false")
	has("a success", good, cli.ExitOK, "greeting = \"Hello, Grace!\"\n", append(retried, "conductord: job ID: completed: success after TOOK\n")...)
	if !strings.HasPrefix(clitest.Steady(good.Err), "conductord: job ID is posted\n") || !strings.Contains(clitest.Steady(good.Err), "TIME greet execute 2 failed: error: no voice on try 2\n") {
		t.Errorf("stderr is\n%s", good.Err)
	}
	bad := post("true")
	has("a failure", bad, cli.ExitFailed, "", append(retried, "conductord: failure: error: no ", "conductord: also failed: ", "salt", "bread")...)

	id := strings.Fields(good.Err)[2]
	has("waiting", clitest.Run(t, cluster, "job", "wait", id), cli.ExitOK, "greeting = \"Hello, Grace!\"\n", retried...)
	var document struct {
		Jobs []struct {
			Job      struct{ ID, Outcome string }
			Results  map[string]string
			Failures []struct {
				Step    string
				Attempt int
				Failure struct{ Message string }
			}
		}
	}
	waited := clitest.Run(t, cluster, "-o", "json", "job", "wait", id, strings.Fields(bad.Err)[2])
	if err := json.Unmarshal([]byte(waited.Out), &document); err != nil || waited.Code != cli.ExitFailed || len(document.Jobs) != 2 {
		t.Fatalf("%v: %+v", err, waited)
	}
	first, second := document.Jobs[0], document.Jobs[1]
	if first.Job.ID != id || first.Results["greeting"] != "Hello, Grace!" || len(first.Failures) != 2 || first.Failures[1].Failure.Message != "no voice on try 2" {
		t.Errorf("a success is %+v", first)
	}
	if second.Job.Outcome != "reverted" || len(second.Results) != 0 || len(second.Failures) != 4 {
		t.Errorf("a failure is %+v", second)
	}
	unread := clitest.Run(t, forgetful{cluster}, "-o", "json", "job", "wait", id)
	if !strings.Contains(unread.Out, `"results": {}`) || !strings.Contains(unread.Err, "its definition was too long to store") {
		t.Errorf("without its definition: %+v", unread)
	}
}

// optional is a flow whose first two steps can fail.
func optional(struct{}) (*flow.Flow, error) {
	fails := func(context.Context, struct{}) (string, error) { return "", errors.New("no network") }
	return flow.Linear("optional", flow.Func("fetch", fails, flow.Provides("page"), flow.IgnoreFailure("none")), flow.Func("notify", fails, flow.IgnoreFailure()),
		flow.Func("report", func(context.Context, struct{}) (string, error) { return "done", nil }, flow.Provides("report"))), nil
}

// TestIgnoredFailuresAreShown: the job succeeds, and its results have the default. All commands name the
// failures.
func TestIgnoredFailuresAreShown(t *testing.T) {
	cluster := clitest.Open(t)
	registry := flow.NewRegistry()
	if err := flow.Register(registry, "optional", optional); err != nil {
		t.Fatal(err)
	}
	worker, err := conductor.New(conductor.Options{Client: cluster, Registry: registry, Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
	book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "optional", Factory: logbook.Factory{Name: "optional"}}}
	if err := cluster.SaveBook(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	posted := clitest.Run(t, cluster, "job", "post", "--wait", "--timeout", "1m", "--book", book.ID.String())
	if posted.Code != cli.ExitOK || posted.Out != "page = \"none\"\nreport = \"done\"\n" || !strings.Contains(posted.Err, "conductord: 2 failures ignored: fetch, notify\n") {
		t.Errorf("got %+v", posted)
	}
	id := strings.Fields(posted.Err)[2]
	for _, verbs := range [][]string{{"job", "get"}, {"flow", "show"}} {
		if got := clitest.Run(t, cluster, append(verbs, id)...); !strings.Contains(got.Out, "2 failures ignored: fetch, notify\n") {
			t.Errorf("%v: %+v", verbs, got)
		}
	}
	shown := clitest.Run(t, cluster, "flow", "show", id).Out
	if want := "✗ notify  failure ignored"; !strings.Contains(shown, want) {
		t.Errorf("no %q in\n%s", want, shown)
	}
}

// forgetful is a cluster whose flows have definitions that were too long to be kept.
type forgetful struct{ *clitest.Cluster }

func (f forgetful) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	detail, err := f.Cluster.FlowDetail(ctx, id)
	detail.Definition = &logbook.Definition{}
	return detail, err
}

// TestResultsWithoutTheirKey: the note names the key with which the results are encrypted.
func TestResultsWithoutTheirKey(t *testing.T) {
	keys, err := valuekeys.Add(filepath.Join(t.TempDir(), "keys"), "2026-11")
	if err != nil {
		t.Fatal(err)
	}
	cluster := clitest.Open(t)
	w := clitest.NewWorker(t, cluster, clitest.PostHello(t, cluster))
	last := w.Next(logbook.FlowRunning)
	last.Definition = &logbook.Definition{Hash: "h", Packed: []byte(keys.Encrypt(valuekeys.Place{Field: "steps"}, []byte("p[]")))}
	verdicts, err := cluster.Update(t.Context(), last)
	w.Must(err)
	w.Must(verdicts[0])
	w.Succeed()
	got := clitest.Run(t, cluster, "job", "wait", w.Claimed.Job.ID.String())
	if !strings.Contains(got.Err, "the results are encrypted with key 2026-11: pass a file with this key with --value-keys\n") {
		t.Errorf("got %+v", got)
	}
}
