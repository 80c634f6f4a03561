package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

func injecting(name string, values map[string]any, options ...flow.StepOption) *flow.Step {
	return flow.NewStep(name, idle{}, append(options, flow.Inject(values))...)
}

func TestInjectedValuesComeFirst(t *testing.T) {
	x := map[string]any{"x": 1}
	for _, row := range []struct {
		name   string
		root   flow.Node
		inputs []string
		want   string
	}{
		{"where nobody provides it", injecting("a", x, flow.Requires("x")), nil, "a.x=itself"},
		{"over the store", injecting("a", x, flow.Requires("x")), []string{"x"}, "a.x=itself"},
		{"over a provider", flow.Linear("f", step("a gives:x"), injecting("b", x, flow.Requires("x")), step("c needs:x")), nil, "b.x=itself c.x=a"},
		{"an optional one", injecting("a", x, flow.Optional("x", "y")), nil, "a.x=itself a.y=nothing"},
		{"by the name that the step uses", injecting("a", x, flow.Requires("x"), flow.Rebind(map[string]string{"x": "y"})), nil, "a.x=itself"},
		{"a graph links nobody for it", flow.Graph("g", injecting("a", x, flow.Requires("x"), flow.Provides("z")), step("b needs:z gives:x")), nil, "a.x=itself b.z=a"},
		{"nor calls it ambiguous", flow.Graph("g", injecting("a", x, flow.Requires("x")), step("b gives:x"), step("c gives:x")), nil, "a.x=itself"},
		{"twice", injecting("a", x, flow.Requires("x", "y"), flow.Inject(map[string]any{"y": nil})), nil, "a.x=itself a.y=itself"},
		{"for the revert alone", flow.NewStep("a", idleReverter{}, flow.RevertRequires("x"), flow.Inject(x)), nil, ""},
	} {
		plan, err := flow.Compile(row.root, row.inputs...)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if got := sources(plan); got != row.want {
			t.Errorf("%s: got %s, wanted %s", row.name, got, row.want)
		}
	}
}

func TestFaultsOfInjectedValues(t *testing.T) {
	for _, row := range []struct {
		name   string
		values map[string]any
		want   error
		says   string
	}{
		{"not required", map[string]any{"y": 1}, flow.ErrInvalid, `injects "y"`},
		{"no JSON", map[string]any{"x": func() {}}, flow.ErrInvalid, `as "x"`},
		{"too large", map[string]any{"x": strings.Repeat("v", logbook.MaxLimits.Value)}, logbook.ErrLimit, "injected value.x"},
		{"too deep", map[string]any{"x": deep(logbook.MaxJSONDepth + 1)}, logbook.ErrLimit, "levels"},
	} {
		_, err := flow.Compile(injecting("a", row.values, flow.Requires("x")), "x")
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	if _, err := flow.Compile(injecting("a", map[string]any{"x": deep(logbook.MaxJSONDepth)}, flow.Requires("x"))); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func deep(levels int) any {
	var value any
	for range levels {
		value = []any{value}
	}
	return value
}

func TestShadowedNames(t *testing.T) {
	for _, row := range []struct {
		name string
		root flow.Node
		want string
	}{
		{"nothing is hidden", flow.Linear("f", steps("a needs:x", "b gives:y", "c needs:y")...), ""},
		{"one name, once", flow.Linear("f", steps("a gives:x", "b needs:x", "c needs:x")...), "x of b by a"},
		{"a provider without a consumer hides nothing", flow.Linear("f", steps("a gives:x", "b")...), ""},
		{"what is injected is meant", flow.Linear("f", step("a gives:x"), injecting("b", map[string]any{"x": 1}, flow.Requires("x"))), ""},
		{"only the revert is given it", flow.Linear("f", step("a gives:x"), flow.NewStep("b", idleReverter{}, flow.RevertRequires("x"))), "x of b by a"},
		{"a finally step takes the store's value by default", flow.Linear("f", steps("a gives:x", "b needs:x")...).Finally(step("z needs:x")), ""},
		{"two", flow.Linear("f", steps("a gives:x,z", "b needs:z", "c needs:x")...), "z of b by a; x of c by a"},
	} {
		plan, err := flow.Compile(row.root, "x", "z")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, shadow := range plan.Shadowed() {
			got = append(got, fmt.Sprintf("%s of %s by %s", shadow.Symbol, shadow.Step, shadow.Provider))
			if !strings.Contains(shadow.String(), `the store has "`+shadow.Symbol) {
				t.Errorf("%s: the warning is %s", row.name, shadow)
			}
		}
		if got := strings.Join(got, "; "); got != row.want {
			t.Errorf("%s: got %q, wanted %q", row.name, got, row.want)
		}
	}
}

// TestAttemptsOfSteps: a step is tried as often as it says, and a policy that is out of
// bounds is a fault.
func TestAttemptsOfSteps(t *testing.T) {
	step := flow.NewStep("a", idle{}, flow.Retry(flow.Backoff{Attempts: 3, Delay: time.Hour, BackoffPercent: 200, JitterPercent: 50}))
	woot := &logbook.Failure{Kind: "error"}
	for failures, again := range map[int]bool{1: true, 2: true, 3: false} {
		longest := step.Retry().Longest(failures)
		if delay, more := step.Again(failures, woot); more != again || delay > longest || delay < longest/2 {
			t.Errorf("after %d failures: %s, %v", failures, delay, more)
		}
	}
	spoilt := flow.NewStep("a", idle{}, flow.Retry(flow.Backoff{Attempts: 3}), flow.RetryOnly("error", "75"), flow.RetryNever("74"))
	for _, row := range []struct {
		failure logbook.Failure
		want    bool
	}{
		{*woot, true}, {logbook.Failure{Kind: "error", Permanent: true}, false}, {logbook.Failure{Kind: "spoilt"}, false},
		{logbook.Failure{Kind: "handler.exit", Code: 75}, true}, {logbook.Failure{Kind: "error", Code: 74}, false},
	} {
		if _, more := spoilt.Again(1, &row.failure); more != row.want {
			t.Errorf("after %+v: tried again %t, want %t", row.failure, more, row.want)
		}
	}
	if _, more := flow.NewStep("a", idle{}).Again(1, woot); more {
		t.Error("a step without a policy is tried again")
	}
	_, err := flow.Compile(flow.NewStep("a", idle{}, flow.Retry(flow.Backoff{JitterPercent: 101})))
	if !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), "jitter_percent") {
		t.Errorf("too much chance: %v", err)
	}
}
