package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/memory"
)

// TestBadFlowsAreRefused: what can be known of a flow before it runs is said
// before it runs, by name, and leaves no trace in the logbook.
func TestBadFlowsAreRefused(t *testing.T) {
	step := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, nothing{}, options...)
	}
	a := step("a")
	self := flow.Linear("self")
	self.Add(flow.Linear("inner", self))
	for _, row := range []struct {
		name string
		root flow.Node
		want error
	}{
		{"cyclic by links", flow.Graph("g", step("a"), step("b")).Link("a", "b").Link("b", "a"), flow.ErrCycle},
		{"cyclic by symbols", flow.Graph("g", step("a", flow.Requires("y"), flow.Provides("x")), step("b", flow.Requires("x"), flow.Provides("y"))), flow.ErrCycle},
		{"self-containing", self, flow.ErrCycle},
		{"one step in two flows", flow.Linear("f", a, flow.Linear("g", a)), flow.ErrDuplicate},
		{"two steps of one name", flow.Linear("f", step("a"), step("a")), flow.ErrDuplicate},
		{"a step named as a retry", flow.Linear("f", step("a")).WithRetry(flow.Times("a", 2)), flow.ErrDuplicate},
		{"a missing requirement", flow.Linear("f", step("a", flow.Requires("x"))), flow.ErrMissing},
		{"a missing requirement of an undo", flow.Linear("f", flow.NewStep("a", undoable{}, flow.RevertRequires("x"))), flow.ErrMissing},
		{"a missing requirement of a retry", flow.Linear("f", step("a")).WithRetry(flow.ParameterizedForEach("r", "x")), flow.ErrMissing},
		{"an ambiguous provider", flow.Linear("f", flow.Unordered("u", step("a", flow.Provides("x")), step("b", flow.Provides("x"))),
			step("c", flow.Requires("x"))), flow.ErrAmbiguous},
		{"a link from a step that cannot be reached", flow.Graph("g", step("a"), flow.Linear("l", step("b"))).Link("b", "a"), flow.ErrUnknownNode},
		{"a link to a step that cannot be reached", flow.Graph("g", step("a"), flow.Linear("l", step("b"))).Link("a", "b"), flow.ErrUnknownNode},
		{"10,001 steps", unordered(logbook.MaxLimits.Steps + 1), flow.ErrTooLarge},
		{"1,000 levels of nesting", pile(1_000), flow.ErrTooLarge},
		{"a decider that is none", flow.Graph("g", step("a"), step("b")).Link("a", "b", flow.Decide("d", nil)), flow.ErrInvalid},
		{"a controller that is none", flow.Linear("f", step("a")).WithRetry(flow.NewRetrier("r", nil)), flow.ErrInvalid},
		{"no task", flow.NewStep("a", nil), flow.ErrInvalid},
		{"nothing", nil, flow.ErrInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			book := memory.New(logbook.MaxLimits)
			local := engine.Local{Logbook: book, Flow: logbook.NewFlowID()}
			result, err := local.Run(t.Context(), row.root, nil)
			if !errors.Is(err, row.want) || result.State != "" {
				t.Errorf("%s, %v; want %v", result.State, err, row.want)
			}
			if _, err := book.FlowDetail(t.Context(), local.Flow); !errors.Is(err, logbook.ErrNotFound) {
				t.Errorf("it has left a trace: %v", err)
			}
		})
	}
	t.Run("a target that cannot be reached", func(t *testing.T) {
		_, err := engine.Local{Targets: []string{"b"}}.Run(t.Context(), flow.Linear("f", step("a")), nil)
		if !errors.Is(err, flow.ErrUnknownNode) {
			t.Errorf("%v", err)
		}
	})
}

// pile is a step inside a number of nested flows.
func pile(levels int) flow.Node {
	var node flow.Node = flow.NewStep("s", nothing{})
	for i := range levels {
		node = flow.Linear(fmt.Sprint("f", i), node)
	}
	return node
}

// ruleless is a controller without an answer that makes sense.
type ruleless struct {
	next    func() (any, error)
	verdict func() flow.Decision
}

func (r ruleless) Next(*flow.History) (any, error)                { return r.next() }
func (r ruleless) OnFailure(*flow.History) flow.Decision          { return r.verdict() }
func (ruleless) Execute(context.Context, *flow.Call) (any, error) { return nil, errors.New("woot") }

// TestBadRunsAreResolved: a fault while a flow runs, in a step or in the code around it, is a
// failure of a step. It is resolved like any other: finished steps are undone, and nothing is
// left running.
func TestBadRunsAreResolved(t *testing.T) {
	one := func() (any, error) { return 1, nil }
	revert := func() flow.Decision { return flow.Decision{Verdict: flow.VerdictRevert} }
	retry := func(r ruleless) *flow.Flow {
		return flow.Linear("g", flow.NewStep("bad", r)).WithRetry(flow.NewRetrier("r", r))
	}
	decided := func(decider flow.Decider) *flow.Flow {
		return flow.Graph("g", flow.NewStep("b", undoable{}), flow.NewStep("bad", nothing{})).Link("b", "bad", flow.Decide("d", decider))
	}
	no := []flow.LinkOption{flow.Reaching(flow.DepthAtom), flow.Decide("no", func(logbook.Values) (bool, error) { return false, nil })}
	result := func(task flow.Task, options ...flow.StepOption) flow.Node {
		return flow.NewStep("bad", task, options...)
	}
	for _, row := range []struct {
		name string
		bad  flow.Node
		step string // that has failed
		kind string
	}{
		{"a decider that panics", decided(func(logbook.Values) (bool, error) { panic("aargh") }), "bad", logbook.FailurePanic},
		{"a decider that fails", decided(func(logbook.Values) (bool, error) { return false, errors.New("woot") }), "bad", logbook.FailureError},
		{"a controller without a verdict", retry(ruleless{one, func() flow.Decision { return flow.Decision{} }}), "r", logbook.FailureError},
		{"a controller with a verdict that there is not", retry(ruleless{one, func() flow.Decision { return flow.Decision{Verdict: 99} }}), "r", logbook.FailureError},
		{"a controller with a negative delay", retry(ruleless{one, func() flow.Decision {
			return flow.Decision{Verdict: flow.VerdictRetry, Delay: -1}
		}}), "r", logbook.FailureError},
		{"a controller that panics at a failure", retry(ruleless{one, func() flow.Decision { panic("aargh") }}), "r", logbook.FailurePanic},
		{"a controller that panics at a round", retry(ruleless{func() (any, error) { panic("aargh") }, revert}), "r", logbook.FailurePanic},
		{"a round that is not JSON", retry(ruleless{func() (any, error) { return make(chan int), nil }, revert}), "r", logbook.FailureResult},
		{"a round that is too large", retry(ruleless{func() (any, error) { return strings.Repeat("x", 9<<10), nil }, revert}), "r", logbook.FailureResult},
		{"values that are no list", flow.Linear("g", flow.NewStep("b", nothing{})).WithRetry(flow.ParameterizedForEach("r", "input")), "r", logbook.FailureError},
		{"a result that is not JSON", result(rawTask("{")), "bad", logbook.FailureResult},
		{"a result with a key twice", result(rawTask(`{"a":1,"a":2}`)), "bad", logbook.FailureResult},
		{"a result with too large a number", result(rawTask("1e400")), "bad", logbook.FailureResult},
		{"a result that is too large", result(rawTask(`"` + strings.Repeat("x", logbook.MaxLimits.Value) + `"`)), "bad", logbook.FailureResult},
		{"a result that is too deep", result(rawTask(strings.Repeat("[", 65) + strings.Repeat("]", 65))), "bad", logbook.FailureResult},
		{"a result that lacks what others require", flow.Linear("g", result(rawTask("{}"), flow.ProvidesFields("x")),
			flow.NewStep("c", nothing{}, flow.Requires("x"))), "bad", logbook.FailureResult},
		{"a step that panics", result(anyTask(func() (any, error) { panic("aargh") })), "bad", logbook.FailurePanic},
		{"an error that panics", result(anyTask(func() (any, error) { return nil, panicking{} })), "bad", logbook.FailurePanic},
		{"an argument that was ignored", flow.Graph("g", flow.NewStep("a", nothing{}), flow.NewStep("b", nothing{}, flow.Provides("x")),
			flow.NewStep("c", nothing{}, flow.Provides("x")), flow.NewStep("bad", nothing{}, flow.Requires("x"))).Link("a", "b", no...).Link("a", "c", no...),
			"bad", logbook.FailureArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := flow.Linear("f", flow.NewStep("first", undoable{}), row.bad)
			result, err := engine.RunLocal(t.Context(), root, logbook.Values{"input": json.RawMessage("1")})
			cause := result.Detail.Cause
			if result.State != logbook.FlowReverted || cause == nil || cause.Step != row.step || cause.Kind != row.kind {
				t.Fatalf("%s because of %+v, %v; want %s of step %s", result.State, cause, err, row.kind, row.step)
			}
			for _, atom := range result.Detail.Atoms {
				if !slices.Contains([]logbook.AtomState{logbook.AtomReverted, logbook.AtomIgnored}, atom.State) {
					t.Errorf("%s is left %s", atom.Name, atom.State)
				}
			}
		})
	}
}

// TestObserversCannotBreakARun: an observer that panics is not called again, and the flow
// continues.
func TestObserversCannotBreakARun(t *testing.T) {
	for at := range 8 {
		told := 0
		local := engine.Local{Observe: func(engine.Event) {
			if told++; told > at {
				panic("aargh")
			}
		}}
		result, err := local.Run(t.Context(), flow.Linear("f", row("s", 3)...), nil)
		if err != nil || result.State != logbook.FlowSuccess || told != at+1 {
			t.Errorf("panicking at event %d: %s, %v, told %d times", at, result.State, err, told)
		}
	}
}
