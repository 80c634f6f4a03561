package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/engine/enginetest"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// ones is a list with a number of elements.
func ones(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]"
}

// TestListsThatCannotBe: a value that is no list, or a list that is too long, fails the
// opening permanently. The longest list that fits does not.
func TestListsThatCannotBe(t *testing.T) {
	two := flow.Linear("two", gives("a", "1"), gives("b", "1"))
	for _, row := range []struct {
		list  string
		body  flow.Node
		steps int    // the limit; 0: the largest
		says  string // empty: it succeeds
	}{
		{`{"a": 1}`, gives("a", "1"), 0, "not a JSON array"},
		{`7`, gives("a", "1"), 0, "not a JSON array"},
		{`null`, gives("a", "1"), 0, "not a JSON array"},
		{ones(flow.MaxElements + 1), flow.Linear("nothing"), 0, "10001 elements; the limit is 10000"},
		{ones(flow.MaxElements), flow.Linear("nothing"), 0, ""},
		{ones(5_000), two, 0, "with the 5000 elements of its list, the flow would have more steps than the limit, 10000"},
		{ones(6), two, 12, "more steps than the limit, 12"},
		{ones(6), two, 13, ""},
	} {
		store := logbook.Values{"list": json.RawMessage(row.list)}
		result, err := engine.Local{Limits: logbook.Limits{Steps: row.steps}}.Run(t.Context(), flow.Each("e", "list", "x", row.body), store)
		var failure *logbook.Failure
		switch {
		case row.says == "" && err != nil:
			t.Errorf("a list of %d bytes: %v", len(row.list), err)
		case row.says != "" && (!errors.As(err, &failure) || failure.Kind != logbook.FailureArgument || !failure.Permanent ||
			failure.Step != "e" || !strings.Contains(failure.Message, row.says) || result.State != logbook.FlowReverted):
			t.Errorf("a list of %d bytes: %s, %v", len(row.list), result.State, err)
		}
	}
}

// TestInstancesOfAllRoundsCount: a logbook keeps the atoms of every round, so
// lists that take turns in being long can have too many together.
func TestInstancesOfAllRoundsCount(t *testing.T) {
	for _, row := range []struct {
		steps int
		want  logbook.FlowState
	}{{13, logbook.FlowReverted}, {14, logbook.FlowSuccess}} {
		// Six steps, and in each round one list of one element and one of four.
		lists := flow.ForEach("r", []map[string][]int{{"d": {1, 1, 1, 1}, "e": {1}}, {"d": {1}, "e": {1, 1, 1, 1}}}, flow.Provides("v"))
		split := flow.Func("split", func(_ context.Context, in struct {
			V map[string][]int `json:"v"`
		}) (map[string][]int, error) {
			return in.V, nil
		}, flow.ProvidesFields("d", "e"))
		last := flow.Func("last", func(_ context.Context, in struct {
			D []int `json:"d"`
		}) (struct{}, error) {
			if len(in.D) > 1 {
				return struct{}{}, errors.New("not with this one")
			}
			return struct{}{}, nil
		})
		root := flow.Linear("f", flow.Linear("g", split, flow.Each("each d", "d", "x", gives("a", "1")), flow.Each("each e", "e", "x", gives("b", "1")), last).WithRetry(lists),
			gives("z", "1"))
		book := memory.New(logbook.Limits{Steps: row.steps})
		result, err := engine.Local{Logbook: book, Limits: logbook.Limits{Steps: row.steps}}.Run(t.Context(), root, nil)
		if result.State != row.want {
			t.Errorf("with %d steps: %s with %d atoms: %v", row.steps, result.State, len(result.Detail.Atoms), err)
		}
	}
}

func TestGatheredValues(t *testing.T) {
	root := flow.Linear("f",
		flow.Each("o", "lists", "list", flow.Linear("body",
			flow.Each("e", "list", "x", flow.Func("double", func(_ context.Context, in struct {
				X int `json:"x"`
			}) (int, error) {
				return 2 * in.X, nil
			}, flow.Provides("y")), flow.Gather("y", "ys")),
			flow.Reduce("sum", "ys", "sum", 0, func(_ context.Context, sum, y int) (int, error) { return sum + y, nil })),
			flow.Gather("sum", "sums"), flow.Gather("ys", "all"), flow.Gather("list", "lists again"), flow.Place("i"), flow.Gather("i", "places")))
	result, err := engine.RunLocal(t.Context(), root, logbook.Values{"lists": json.RawMessage(`[[1, 2], [], [3]]`)})
	want := `all=[[2,4],[],[6]] lists again=[[1,2],[],[3]] places=[0,1,2] sums=[6,0,6]`
	if got := listed(result.Values); err != nil || got != want {
		t.Errorf("got %v and %s, want %s", err, got, want)
	}
}

// TestGatheredIsTooLarge: a list that no message could hold is a missing argument, and does
// not break the daemon.
func TestGatheredIsTooLarge(t *testing.T) {
	value := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	big := flow.NewStep("big", rawTask(value), flow.Provides("y"))
	root := flow.Linear("f", flow.Each("e", "list", "x", big, flow.Gather("y", "ys")), flow.NewStep("z", rawTask("1"), flow.Requires("ys")))
	for n, state := range map[int]logbook.FlowState{20: logbook.FlowSuccess, 21: logbook.FlowReverted} {
		result, err := engine.RunLocal(t.Context(), root, logbook.Values{"list": json.RawMessage(ones(n))})
		if result.State != state {
			t.Errorf("with %d: %s, %v", n, result.State, err)
		}
	}
}

// TestCrashesOfGrowingFlows: nested, under retries and over them, with lists
// that differ from round to round, a failing instance and a decider in it.
func TestCrashesOfGrowingFlows(t *testing.T) {
	build := func() *flow.Flow {
		step := func(name string, options ...flow.StepOption) *flow.Step {
			return flow.FuncRevert(name, func(context.Context, logbook.Values) (string, error) { return name, nil },
				func(context.Context, logbook.Values, *string) error { return nil }, options...)
		}
		choosy := flow.Func("choosy", func(_ context.Context, in struct {
			X int `json:"x"`
			T int `json:"t"`
		}) (int, error) {
			if in.X == 9 || in.X == 2 && in.T == 1 {
				return 0, flow.Permanent(fmt.Errorf("not %d", in.X))
			}
			return in.X, nil
		}, flow.Provides("y"))
		odd := func(results logbook.Values) (bool, error) { return string(results["choosy"]) != "3", nil }
		graph := flow.Graph("g", choosy, step("odd")).Link("choosy", "odd", flow.Decide("odd", odd), flow.Reaching(flow.DepthAtom))
		inner := flow.Each("inner", "list", "x", flow.Linear("again", graph).WithRetry(flow.Times("t", 2, flow.Provides("t"), flow.RetryPermanent())), flow.Gather("y", "ys"))
		outer := flow.Each("outer", "lists", "list", flow.Linear("both", step("first"), inner, step("second", flow.Requires("ys"))), flow.Gather("ys", "all"))
		rounds := [][][]int{{{1, 9}, {2}, {3}}, {{9}}, {{}, {1, 2, 3}}}
		return flow.Linear("f", step("before"), outer.WithRetry(flow.ForEach("r", rounds, flow.Provides("lists"), flow.RetryPermanent())), step("after", flow.Requires("all")))
	}
	for _, workers := range []int{1, 4} {
		trace := enginetest.CrashEverywhere(t, build, nil, enginetest.Workers(workers))
		if got := string(trace.Result.Values["all"]); got != "[[],[1,2,3]]" {
			t.Errorf("gathered is %s, at the end %v", got, trace.Err)
		}
	}
}

// TestRerunOfLoopStep: an operator names an instance of a loop's step, and not the step itself. A plan of an
// intervention lists no on_error step, because these run only after another failure.
func TestRerunOfLoopStep(t *testing.T) {
	step := func(name string) *flow.Step {
		return flow.Func(name, func(context.Context, none) (int, error) {
			if name == "b" {
				return 0, errors.New("fails")
			}
			return 1, nil
		})
	}
	plan := compile(t, flow.Linear("f", flow.Each("e", "list", "x", step("b")), step("c")).OnError(step("tell")).OnFailure(flow.HoldOnFailure), "list")
	j := newJournal(newDetail())
	options := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Store: logbook.Values{"list": []byte("[7,8]")}, Workers: 1, Token: logbook.Token{Index: 1}}
	end, err := engine.Run(context.Background(), options)
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	if err != nil {
		t.Fatal(err)
	}
	options.Detail = j.snapshot()
	rerun := func(name string) (engine.Forecast, error) {
		return engine.PlanIntervention(options, logbook.Intervention{ID: uuid.New(), Kind: logbook.InterveneRerun, Step: name})
	}
	if _, err := rerun("b"); !errors.Is(err, engine.ErrLoopStep) || !errors.Is(err, logbook.ErrConflict) || !strings.Contains(err.Error(), `name one instance, such as "b[0]"`) {
		t.Errorf("rerun of the step of the loop: %v", err)
	}
	got, err := rerun("b[0]")
	want := []engine.Execution{{Step: "b[0]", Again: true}, {Step: "b[1]"}, {Step: "c"}}
	if err != nil || !slices.Equal(got.Executions, want) {
		t.Errorf("rerun of an instance executes %v, want %v: %v", got.Executions, want, err)
	}
}
