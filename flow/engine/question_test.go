package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// is is a question whether all values and results that it finds are as given, sorted by name.
func is(want string, question flow.Question) flow.Question {
	question.Name = "is " + want
	question.Decide = func(found flow.Found) (bool, error) {
		text, err := json.Marshal([]logbook.Values{found.Steps, found.Values})
		if string(text) != want {
			return false, fmt.Errorf("found %s", text)
		}
		return true, err
	}
	return question
}

func no(question flow.Question) flow.Question {
	question.Name, question.Decide = "no", func(flow.Found) (bool, error) { return false, nil }
	return question
}

// TestQuestions: a row has a flow with questions, and the states of its steps. A question that does
// not find what it expects fails its step.
func TestQuestions(t *testing.T) {
	store := logbook.Values{"env": json.RawMessage(`"prod"`), "order": json.RawMessage(`{"kind":"big","lines":[1,2]}`), "token": json.RawMessage(`{"secret":"db"}`)}
	for _, row := range []struct {
		name string
		root flow.Node
		want string
		err  string
	}{
		{"a value of the store", flow.Graph("f", gives("a", "1")).Ask("a", is(`[{},{"env":"\"prod\""}]`, flow.Question{Values: []string{"env"}})), "", `found [{},{"env":"prod"}]`},
		{"the first step", flow.Graph("f", gives("a", "1")).Ask("a", is(`[{},{"env":"prod"}]`, flow.Question{Values: []string{"env"}})), "a success", ""},
		{"no", flow.Graph("f", gives("a", "1"), gives("b", "1")).Ask("a", no(flow.Question{Values: []string{"env"}})), "a ignore, b success", ""},
		{"no to all", flow.Graph("f", gives("a", "1")).Ask("a", no(flow.Question{Values: []string{"env"}})), "a ignore", ""},
		{"inner values", flow.Graph("f", gives("a", "1")).Ask("a", is(`[{},{"order.kind":"big"}]`, flow.Question{Values: []string{"order.kind", "order.none"}, Optional: []string{"nowhere"}})), "a success", ""},
		{"the value of a sibling", flow.Graph("f", gives("a", "1"), gives("b", `{"x":2}`, flow.Provides("v"))).Ask("a", is(`[{},{"v.x":2}]`, flow.Question{Values: []string{"v.x"}})), "b success, a success", ""},
		{"the result of a sibling and a value", flow.Graph("f", gives("a", "1"), gives("b", `7`)).Ask("a", is(`[{"b":7},{"env":"prod"}]`, flow.Question{Steps: []string{"b"}, Values: []string{"env"}})), "b success, a success", ""},
		{"the value of a step around it", flow.Graph("f", gives("b", `2`, flow.Provides("v")),
			flow.Graph("g", gives("a", "1")).Ask("a", is(`[{},{"v":2}]`, flow.Question{Values: []string{"v"}}))), "b success, a success", ""},
		{"a step around it", flow.Linear("f", gives("b", `2`), flow.Graph("g", gives("a", "1")).Ask("a", is(`[{"b":2},{}]`, flow.Question{Steps: []string{"b"}}))), "b success, a success", ""},
		{"elements", flow.Each("e", "order.lines", "line", flow.Graph("g", gives("a", "1")).Ask("a", flow.Question{Name: "odd", Values: []string{"line"},
			Decide: func(found flow.Found) (bool, error) { return string(found.Values["line"]) == "1", nil }})), "e success, a[0] success, a[1] ignore", ""},
		{"steps around an each, and in its instance", flow.Linear("f", gives("b", `2`), flow.Each("e", "order.lines", "line", flow.Linear("h", gives("c", "3"),
			flow.Graph("g", gives("a", "1")).Ask("a", is(`[{"b":2,"c":3},{}]`, flow.Question{Steps: []string{"b", "c"}}))))),
			"b success, e success, c[0] success, a[0] success, c[1] success, a[1] success", ""},
		{"all steps of the question are ignored", flow.Graph("f", gives("b", "1", flow.Provides("v")), gives("a", "1"), gives("c", "1")).
			Ask("b", no(flow.Question{Values: []string{"env"}, Depth: flow.DepthAtom})).
			Ask("a", no(flow.Question{Values: []string{"v"}})).Ask("c", no(flow.Question{Steps: []string{"b"}})), "b ignore, c success, a success", ""},
		{"some are not", flow.Graph("f", gives("b", "1", flow.Provides("v")), gives("a", "1")).
			Ask("b", no(flow.Question{Values: []string{"env"}, Depth: flow.DepthAtom})).
			Ask("a", is(`[{},{"env":"prod"}]`, flow.Question{Values: []string{"v", "env"}})), "b ignore, a success", ""},
		{"an otherwise beside a value", flow.Graph("f", gives("a", "1"), gives("b", "1"), gives("c", "1")).
			Ask("a", no(flow.Question{Values: []string{"env"}, Depth: flow.DepthAtom})).Link("a", "b", flow.Otherwise()).Link("a", "c", flow.Otherwise()).
			Ask("b", is(`[{},{"env":"prod"}]`, flow.Question{Values: []string{"env"}})).Ask("c", no(flow.Question{Values: []string{"env"}})), "a ignore, b success, c ignore", ""},
		{"otherwise than a yes", flow.Graph("f", gives("a", "1"), gives("b", "1")).
			Ask("a", is(`[{},{"env":"prod"}]`, flow.Question{Values: []string{"env"}})).Link("a", "b", flow.Otherwise()), "a success, b ignore", ""},
		{"otherwise than by the result of a step around it", flow.Linear("f", gives("d", "1"), flow.Graph("g", gives("a", "1"), gives("b", "1")).
			Ask("a", no(flow.Question{Steps: []string{"d"}, Depth: flow.DepthAtom})).Link("a", "b", flow.Otherwise())), "d success, a ignore, b success", ""},
		{"otherwise than a question that does not count", flow.Graph("f", gives("d", "1", flow.Provides("v")), gives("a", "1"), gives("b", "1")).
			Ask("d", no(flow.Question{Values: []string{"env"}, Depth: flow.DepthAtom})).
			Ask("a", no(flow.Question{Values: []string{"v"}})).Link("a", "b", flow.Otherwise()), "d ignore, a success, b ignore", ""},
		{"an inner value of one of two steps", flow.Graph("f", gives("b", `{"x":1}`, flow.Provides("v")), gives("c", `{"x":2}`, flow.Provides("v")), gives("a", "1")).
			Ask("b", no(flow.Question{Values: []string{"env"}})).Link("b", "c", flow.Otherwise()).
			Ask("a", is(`[{},{"v.x":2}]`, flow.Question{Values: []string{"v.x"}})), "b ignore, c success, a success", ""},
		{"an inner value of two steps that are ignored", flow.Graph("f", gives("b", `{"x":1}`, flow.Provides("v")), gives("c", `{"x":2}`, flow.Provides("v")), gives("a", "1")).
			Ask("b", no(flow.Question{Values: []string{"env"}})).Ask("c", no(flow.Question{Values: []string{"order"}})).
			Ask("a", is(`nothing`, flow.Question{Values: []string{"v.x"}})), "b ignore, c ignore, a ignore", ""},
		{"an ignored failure and an inner value of it", flow.Graph("f", act("b", func(context.Context) error { return flow.Fail("weather", errors.New("it rains")) }, flow.IgnoreFailure()), gives("a", "1")).
			Ask("a", is(`[{"b.failure":{"kind":"weather","message":"it rains"}},{"b.failure.kind":"weather"}]`, flow.Question{Steps: []string{"b"}, Values: []string{"b.failure.kind"}})), "b failure, a success", ""},
		{"a secret", flow.Graph("f", gives("a", "1")).Ask("a", no(flow.Question{Values: []string{"token"}})), "", `"token" is a secret, and a condition cannot test a secret`},
		{"inside a secret", flow.Graph("f", gives("a", "1")).Ask("a", no(flow.Question{Values: []string{"token.secret"}})), "", `"token" is a secret`},
		{"under a retry", flow.Graph("f", gives("a", "1"), gives("b", `2`, flow.Provides("v"))).WithRetry(flow.Times("r", 2)).
			Ask("a", is(`[{},{"v":2}]`, flow.Question{Values: []string{"v"}})), "r success, b success, a success", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := engine.Local{Secrets: secretsOf}.Run(t.Context(), row.root, store)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("error %v, want %s", err, row.err)
				}
				return
			}
			plan, _ := flow.Compile(row.root, "env", "order", "token")
			states := make(map[string]logbook.AtomState)
			for i := range result.Detail.Atoms {
				states[result.Detail.Atoms[i].Name] = result.Detail.Atoms[i].State
			}
			var got []string
			if elements := len(states) > 0 && plan.Grows(); elements {
				plan, _ = plan.Grown(map[string]int{"e": 2})
			}
			for _, step := range plan.Steps() {
				got = append(got, step.Name()+" "+string(states[step.Name()]))
			}
			if err != nil || strings.Join(got, ", ") != row.want {
				t.Errorf("%s, %v; want %s", strings.Join(got, ", "), err, row.want)
			}
		})
	}
}

func TestFaultsOfQuestions(t *testing.T) {
	question := func(q flow.Question) flow.Question { return no(q) }
	graph := func(q flow.Question) *flow.Flow { return flow.Graph("g", gives("a", "1")).Ask("a", q) }
	deep := question(flow.Question{Values: []string{"env"}})
	deep.Depth = 9
	for name, row := range map[string]struct {
		root flow.Node
		kind error
		says string
	}{
		"missing value":          {graph(question(flow.Question{Values: []string{"other.x"}})), flow.ErrMissing, `step "a" tests "other.x", which no earlier step provides`},
		"unknown step":           {graph(question(flow.Question{Steps: []string{"b"}})), flow.ErrUnknownNode, `step "a" tests step "b", which is not in the flow`},
		"unknown child":          {graph(no(flow.Question{})).Ask("b", no(flow.Question{})), flow.ErrUnknownNode, `before "b"`},
		"a step beside it":       {flow.Unordered("f", gives("b", "1"), graph(question(flow.Question{Steps: []string{"b"}}))), flow.ErrInvalid, `step "a" tests step "b", which does not always come first`},
		"a later step":           {flow.Linear("f", graph(question(flow.Question{Steps: []string{"b"}})), gives("b", "1")), flow.ErrInvalid, "does not always come first"},
		"nothing to decide by":   {graph(flow.Question{Name: "x"}), flow.ErrInvalid, "has no function Decide"},
		"no name":                {graph(flow.Question{Decide: deep.Decide}), flow.ErrInvalid, "empty"},
		"an unknown depth":       {graph(deep), flow.ErrInvalid, "depth 9"},
		"not in a graph":         {flow.Linear("f", gives("a", "1")).Ask("a", deep), flow.ErrInvalid, "only a graph can have links"},
		"of two unordered steps": {flow.Graph("f", gives("b", "1", flow.Provides("v")), gives("c", "1", flow.Provides("v")), gives("a", "1")).Ask("a", question(flow.Question{Values: []string{"v"}})), flow.ErrAmbiguous, "make it wait for one of them"},
	} {
		if _, err := flow.Compile(row.root, "env"); !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
