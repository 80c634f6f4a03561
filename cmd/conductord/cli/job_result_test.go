package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// flaky is a flow whose first step fails twice; of the two behind it, both fail if they are to.
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

// TestResultsAreShown: stdout has the results alone; stderr has the id first, and then what failed.
func TestResultsAreShown(t *testing.T) {
	cluster := openCluster(t)
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
	post := func(args string, also ...string) said {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "b"}
		book.Flows = []logbook.FlowDetail{{ID: logbook.NewFlowID(), Book: book.ID, Name: "flaky", Factory: logbook.Factory{Name: "flaky", Args: json.RawMessage(args)}}}
		if err := cluster.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		return run(t, cluster, append([]string{"job", "post", "--wait", "--timeout", "1m", "--book", book.ID.String()}, also...)...)
	}
	has := func(what string, got said, code int, out string, errs ...string) {
		t.Helper()
		if got.code != code || got.out != out {
			t.Errorf("%s: got %+v", what, got)
		}
		for _, want := range errs {
			if !strings.Contains(steady(got.err), want) {
				t.Errorf("%s: no %q in\n%s", what, want, steady(got.err))
			}
		}
	}
	retried := []string{
		"conductord: retried: greet execute 1 failed: error: no voice on try 1\n",
		"conductord: retried: greet execute 2 failed: error: no voice on try 2\n",
	}
	good := post("false")
	has("a success", good, cli.ExitOK, "greeting = \"Hello, Grace!\"\n", append(retried, "conductord: job ID: completed: success after TOOK\n")...)
	if !strings.HasPrefix(steady(good.err), "conductord: job ID is posted\n") || !strings.Contains(steady(good.err), "TIME greet execute 2 failed: error: no voice on try 2\n") {
		t.Errorf("stderr is\n%s", good.err)
	}
	bad := post("true")
	has("a failure", bad, cli.ExitFailed, "", append(retried, "conductord: failure: error: no ", "conductord: also failed: ", "salt", "bread")...)

	id := strings.Fields(good.err)[2]
	has("waiting", run(t, cluster, "job", "wait", id), cli.ExitOK, "greeting = \"Hello, Grace!\"\n", retried...)
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
	waited := run(t, cluster, "-o", "json", "job", "wait", id, strings.Fields(bad.err)[2])
	if err := json.Unmarshal([]byte(waited.out), &document); err != nil || waited.code != cli.ExitFailed || len(document.Jobs) != 2 {
		t.Fatalf("%v: %+v", err, waited)
	}
	first, second := document.Jobs[0], document.Jobs[1]
	if first.Job.ID != id || first.Results["greeting"] != "Hello, Grace!" || len(first.Failures) != 2 || first.Failures[1].Failure.Message != "no voice on try 2" {
		t.Errorf("a success is %+v", first)
	}
	if second.Job.Outcome != "reverted" || len(second.Results) != 0 || len(second.Failures) != 4 {
		t.Errorf("a failure is %+v", second)
	}
	unread := run(t, forgetful{cluster}, "-o", "json", "job", "wait", id)
	if !strings.Contains(unread.out, `"results": {}`) || !strings.Contains(unread.err, "its definition was too long to be kept") {
		t.Errorf("without its definition: %+v", unread)
	}
}

// forgetful is a cluster whose flows have definitions that were too long to be kept.
type forgetful struct{ *testCluster }

func (f forgetful) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	detail, err := f.testCluster.FlowDetail(ctx, id)
	detail.Definition = &logbook.Definition{}
	return detail, err
}
