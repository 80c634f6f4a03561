package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/logbook"
)

// gives makes a step that provides a value.
func gives(name, symbol string, value any, options ...flow.StepOption) *flow.Step {
	return flow.Func(name, func(context.Context, logbook.Values) (any, error) { return value, nil }, append(options, flow.Provides(symbol))...)
}

// TestClientReadsResultsBySymbol: a program with only the client reads the values of a job's flow by symbol.
func TestClientReadsResultsBySymbol(t *testing.T) {
	tries := 0
	no := flow.Decide("no", func(logbook.Values) (bool, error) { return false, nil })
	kinds := factories{
		"fields": func() ([]flow.Node, error) {
			return []flow.Node{flow.Func("a", func(context.Context, nothing) (struct {
				X int    `json:"x"`
				Y string `json:"y"`
			}, error) {
				return struct {
					X int    `json:"x"`
					Y string `json:"y"`
				}{1, "why"}, nil
			})}, nil
		},
		"retried": func() ([]flow.Node, error) {
			part := flow.Linear("part", flow.Func("b", func(context.Context, nothing) (int, error) {
				if tries++; tries == 1 {
					return 0, flow.Permanent(errors.New("not yet"))
				}
				return tries, nil
			}, flow.Provides("try")))
			return []flow.Node{part.WithRetry(flow.ForEach("places", []string{"here", "there"}, flow.Provides("place"), flow.RetryPermanent()))}, nil
		},
		"each": func() ([]flow.Node, error) {
			body := flow.Linear("body", flow.Func("square", func(_ context.Context, in struct {
				X int `json:"x"`
			}) (int, error) {
				return in.X * in.X, nil
			}, flow.Provides("square")))
			return []flow.Node{gives("a", "list", []int{1, 2, 3}), flow.Each("e", "list", "x", body, flow.Gather("square", "squares"))}, nil
		},
		"decided": func() ([]flow.Node, error) {
			return []flow.Node{flow.Graph("g", gives("first", "v", 1), gives("never", "v", 2), gives("other", "v", 3)).
				Link("first", "never", no).Link("first", "other")}, nil
		},
		"beside": func() ([]flow.Node, error) {
			return []flow.Node{flow.Unordered("u", gives("a", "v", 1), gives("b", "v", 2)), gives("z", "w", 3)}, nil
		},
		"failed": func() ([]flow.Node, error) {
			return []flow.Node{gives("a", "v", 1), do("b", func(context.Context) error { return flow.Permanent(errors.New("no seats")) })}, nil
		},
	}
	c := openCluster(t)
	running(t, options(c, kinds.registry(t)))
	for _, row := range []struct {
		kind string
		want string
		err  error
	}{
		{"fields", `{"x":1,"y":"why"}`, nil},
		{"retried", `{"place":"there","try":2}`, nil},
		{"each", `{"list":[1,2,3],"squares":[1,4,9]}`, nil},
		{"decided", `{"v":3}`, nil},
		{"beside", `{"w":3}`, nil},
		{"failed", `{}`, jobs.ErrReverted},
	} {
		detail, err := await.Result(t.Context(), c, post(t, c, row.kind, nil).ID)
		values, valuesErr := detail.Values()
		got, _ := json.Marshal(values)
		if string(got) != row.want || !errors.Is(err, row.err) || valuesErr != nil {
			t.Errorf("%s: got %s, %v, %v; want %s, %v", row.kind, got, err, valuesErr, row.want, row.err)
		}
	}
}

// TestFailuresOfJobs: a job's error contains the job's end and all failures of its flow.
func TestFailuresOfJobs(t *testing.T) {
	fails := func(name string, running func()) flow.Node {
		return do(name, func(context.Context) error {
			running()
			return flow.Permanent(fmt.Errorf("no %s", name))
		}, flow.Uninterruptible())
	}
	both := make(chan struct{})
	p, q := fails("p", func() { both <- struct{}{} }), fails("q", func() { <-both })
	stuck := flow.FuncRevert("stuck", func(context.Context, nothing) (nothing, error) { return nothing{}, nil },
		func(context.Context, nothing, *nothing) error { return flow.Permanent(errors.New("no way back")) })
	var heard []string
	hears := flow.FuncRevert("hears", func(context.Context, nothing) (nothing, error) { return nothing{}, nil },
		func(ctx context.Context, _ nothing, _ *nothing) error {
			for step := range flow.CallFrom(ctx).FlowFailures {
				heard = append(heard, step)
			}
			return nil
		})
	kinds := factories{
		"beside":  func() ([]flow.Node, error) { return []flow.Node{hears, flow.Unordered("u", p, q)}, nil },
		"stuck":   func() ([]flow.Node, error) { return []flow.Node{stuck, fails("a", func() {})}, nil },
		"refused": func() ([]flow.Node, error) { return nil, errors.New("the arguments are wrong") },
	}
	c := openCluster(t)
	running(t, options(c, kinds.registry(t)))
	result := func(kind string) error {
		_, err := await.Result(t.Context(), c, post(t, c, kind, nil).ID)
		return err
	}

	var ended *logbook.EndError
	if err := result("beside"); !errors.Is(err, jobs.ErrReverted) || !errors.As(err, &ended) || len(ended.Failures) != 2 {
		t.Fatalf("two that failed: %v", err)
	}
	steps := []string{ended.Failures[0].Step, ended.Failures[1].Step}
	slices.Sort(steps)
	slices.Sort(heard)
	if !slices.Equal(steps, []string{"p", "q"}) || !slices.Equal(heard, steps) {
		t.Errorf("the failures are of %v, and the revert has heard of %v", steps, heard)
	}
	if err := result("stuck"); !errors.Is(err, jobs.ErrFailed) || errors.Is(err, jobs.ErrReverted) {
		t.Errorf("a job whose revert fails: %v", err)
	}
	var failure *logbook.Failure
	if err := result("refused"); !errors.Is(err, jobs.ErrTrashed) || !errors.As(err, &failure) || failure.Kind != logbook.FailureBuild {
		t.Errorf("a job that no conductor can build: %v", err)
	}
	held := postOne(t, c, jobs.Posting{Name: "held", Kind: "none", Hold: true})
	if err := c.Cancel(t.Context(), jobs.JobCommand{Job: held.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := await.Result(t.Context(), c, held.ID); !errors.Is(err, jobs.ErrCancelled) {
		t.Errorf("a cancelled job: %v", err)
	}
}
