package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// says is a task that returns a text.
type says string

func (s says) Execute(context.Context, *flow.Call) (any, error) { return string(s), nil }

// itself is a task that returns its argument x.
type itself struct{}

func (itself) Execute(_ context.Context, call *flow.Call) (any, error) {
	return call.Arguments["x"], nil
}

func ifEven(results logbook.Values) (bool, error) {
	return string(results["look"]) == "2" || string(results["look"]) == "4", nil
}

// TestGatheredJoins: a list of values of which each comes from one of two steps, for the next step
// and in the results that are read without the flow's code.
func TestGatheredJoins(t *testing.T) {
	body := flow.Graph("body", flow.NewStep("look", itself{}, flow.Requires("x")), flow.NewStep("even", says("even"), flow.Provides("kind")),
		flow.NewStep("other", says("odd"), flow.Provides("kind"))).
		Link("look", "even", flow.Decide("even", ifEven)).
		Link("look", "other", flow.Decide("odd", func(results logbook.Values) (bool, error) { even, err := ifEven(results); return !even, err }))
	root := flow.Linear("f", flow.Each("each", "list", "x", body, flow.Gather("kind", "kinds")), flow.NewStep("last", itself{}, flow.Requires("x"), flow.Rebind(map[string]string{"x": "kinds"}), flow.Provides("shown")))
	result, err := engine.RunLocal(t.Context(), root, logbook.Values{"list": json.RawMessage("[1,2,3,4]")})
	if want := `["odd","even","odd","even"]`; err != nil || string(result.Values["shown"]) != want || string(result.Values["kinds"]) != want {
		t.Errorf("got %s and %s, %v, want %s", result.Values["shown"], result.Values["kinds"], err, want)
	}
}

// TestJoinsBehindIgnoredFailures: if the failure of the nearest provider is ignored, the next provider supplies the
// value, unless a default replaces the result. This holds for the next step and for the results of the flow.
func TestJoinsBehindIgnoredFailures(t *testing.T) {
	woot := func(context.Context) error { return errors.New("woot") }
	yes := func(logbook.Values) (bool, error) { return true, nil }
	for want, ignored := range map[string]flow.StepOption{`"of a"`: flow.IgnoreFailure(), `"default"`: flow.IgnoreFailure("default")} {
		root := flow.Graph("f", gives("a", `"of a"`, flow.Provides("v")), act("b", woot, flow.Provides("v"), ignored),
			flow.NewStep("c", itself{}, flow.Requires("x"), flow.Rebind(map[string]string{"x": "v"}), flow.Provides("shown"))).
			Link("a", "b", flow.Reaching(flow.DepthAtom), flow.Decide("taken", yes))
		result, err := engine.RunLocal(t.Context(), root, nil)
		if err != nil || string(result.Values["shown"]) != want || string(result.Values["v"]) != want {
			t.Errorf("the step was given %s and the result is %s, %v, want %s", result.Values["shown"], result.Values["v"], err, want)
		}
	}
}

// TestPathsIntoJoins: the path applies to the value of whichever step ran. If it leads nowhere, the
// failure says why.
func TestPathsIntoJoins(t *testing.T) {
	for taken, want := range map[bool]string{true: "", false: `its argument "x" has no value: there is no "v.x": "v" is a list`} {
		root := flow.Graph("f", gives("a", "1"), gives("b", `{"x":"of b"}`, flow.Provides("v")), gives("c", "[]", flow.Provides("v")),
			flow.NewStep("d", itself{}, flow.Requires("x"), flow.Rebind(map[string]string{"x": "v.x"}), flow.Provides("shown"))).
			Link("a", "b", flow.Decide("taken", func(logbook.Values) (bool, error) { return taken, nil })).Link("b", "c", flow.Otherwise())
		result, err := engine.RunLocal(t.Context(), root, nil)
		switch {
		case want == "" && (err != nil || string(result.Values["shown"]) != `"of b"`):
			t.Errorf("taken: it was given %s, %v", result.Values["shown"], err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("not taken: error %v, want %s", err, want)
		}
	}
}

// TestSecretsInDefaults: the store supplies a reference to a secret in place of a skipped step. A
// step that runs cannot supply one.
func TestSecretsInDefaults(t *testing.T) {
	for taken, want := range map[bool]string{false: `"a secret [secret word]"`, true: `{"secret":"word"}`} {
		root := flow.Graph("f", flow.NewStep("a", says("")), flow.NewStep("b", secretive{}, flow.Provides("x")), flow.NewStep("c", secretly{}, flow.Requires("x"), flow.Provides("got"))).
			Link("a", "b", flow.Reaching(flow.DepthAtom), flow.Decide("taken", func(logbook.Values) (bool, error) { return taken, nil }))
		local := engine.Local{Secrets: func(context.Context, string) (string, error) { return "hunter2!hunter2!", nil }}
		result, err := local.Run(t.Context(), root, logbook.Values{"x": json.RawMessage(`{"secret":"word"}`)})
		if got := string(result.Values["got"]); err != nil || got != want {
			t.Errorf("taken: %v: it was given %s, %v, and should %s", taken, got, err, want)
		}
	}
}

// secretive returns what looks like a reference to a secret.
type secretive struct{}

func (secretive) Execute(context.Context, *flow.Call) (any, error) {
	return map[string]string{"secret": "word"}, nil
}

// secretly returns its argument x, and a text before it if that is a text.
type secretly struct{}

func (secretly) Execute(_ context.Context, call *flow.Call) (any, error) {
	var text string
	if err := json.Unmarshal(call.Arguments["x"], &text); err != nil {
		return call.Arguments["x"], nil
	}
	return "a secret " + text, nil
}
