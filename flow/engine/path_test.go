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
)

// shows is a step whose result is the JSON of its arguments.
func shows(name string, options ...flow.StepOption) *flow.Step {
	return flow.NewStep(name, secretStep{execute: func(c *flow.Call) (any, error) { return c.Arguments, nil }}, options...)
}

// TestInnerValues: a row has a flow whose last step is "s", and its result or the failure.
func TestInnerValues(t *testing.T) {
	who := func(symbol string) flow.Option { return flow.Rebind(map[string]string{"who": symbol}) }
	store := logbook.Values{
		"order": json.RawMessage(`{"id": "o1", "items": [{"price": 3}, {"price": 5}]}`),
		"login": json.RawMessage(`{"user": "u", "password": {"secret": "db"}}`), "dotted.name": json.RawMessage(`"exact"`),
		"dotted": json.RawMessage(`{"name": "inner", "other": 1}`),
	}
	for _, row := range []struct {
		name string
		root flow.Node
		want string
		err  string
	}{
		{"of the store", shows("s", flow.Requires("who"), who("order.items.1.price")), `{"who":5}`, ""},
		{"of a result", flow.Linear("f", gives("a", `{"x": [1, 2]}`, flow.Provides("r")), shows("s", flow.Requires("who"), who("r.x.1"))), `{"who":2}`, ""},
		{"of a field of a result", flow.Linear("f", gives("a", `{"x": {"y": 7}}`, flow.ProvidesFields("x")), shows("s", flow.Requires("who"), who("x.y"))), `{"who":7}`, ""},
		{"by their provider", flow.Graph("f", shows("s", flow.Requires("who"), who("r.x")), gives("a", `{"x": 1}`, flow.Provides("r"))), `{"who":1}`, ""},
		{"names with dots", shows("s", flow.Requires("who"), who("dotted.name")), `{"who":"exact"}`, ""},
		{"beside names with dots", shows("s", flow.Requires("who"), who("dotted.other")), `{"who":1}`, ""},
		{"optional", shows("s", flow.Optional("who"), who("order.none.0")), `{}`, ""},
		{"required", shows("s", flow.Requires("who"), who("order.items.2.price")), "",
			`its argument "who" has no value: there is no "order.items.2.price": "order.items" is a list`},
		{"under a secret", shows("s", flow.Requires("who"), who("login.password.secret")), "",
			`its argument "who" has no value: there is no "login.password.secret": "login.password" is a secret`},
		{"of an injected value", shows("s", flow.Requires("who"), who("order.none"), flow.Inject(map[string]any{"who": 1})), `{"who":1}`, ""},
		{"an each over a list", flow.Linear("f", flow.Each("e", "order.items", "item",
			gives("b", `1`, flow.Provides("y")), flow.Gather("y", "ys")), shows("s", flow.Requires("ys"))), `{"ys":[1,1]}`, ""},
		{"an each over no list", flow.Each("e", "order.id", "item", shows("s")), "", "not a JSON array"},
		{"an each over nothing", flow.Each("e", "order.none", "item", shows("s")), "", `there is no "order.none": "order" is an object`},
		{"of an element", flow.Linear("f", flow.Each("e", "order.items", "item",
			shows("b", flow.Requires("who"), who("item.price"), flow.ProvidesAs(map[string]string{"who": "y"})), flow.Gather("y", "ys")),
			shows("s", flow.Requires("ys"))), `{"ys":[3,5]}`, ""},
		{"of a gathered list", flow.Linear("f", flow.Each("e", "order.items", "item",
			gives("b", `{"z":9}`, flow.Provides("y")), flow.Gather("y", "ys")), shows("s", flow.Requires("who"), who("ys.1.z"))), `{"who":9}`, ""},
		{"of the rounds of a retry", flow.Linear("f", shows("s", flow.Requires("v"))).WithRetry(
			flow.ParameterizedForEach("r", "order.items", flow.Provides("v"))), `{"v":{"price":3}}`, ""},
		{"in a key", shows("s", flow.Requires("order"), flow.Concurrency("k-{order.id}", 1)), `{"order":{"id":"o1","items":[{"price":3},{"price":5}]}}`, ""},
		{"absent in a key", shows("s", flow.Requires("order"), flow.Concurrency("k-{order.none}", 1)), "",
			`cannot fill its concurrency key: there is no "order.none": "order" is an object`},
		{"absent in a key, of an optional argument", shows("s", flow.Optional("order", "none"), flow.Concurrency("{none.x}{order.none}", 1)),
			`{"order":{"id":"o1","items":[{"price":3},{"price":5}]}}`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := engine.Local{Secrets: secretsOf}.Run(t.Context(), row.root, store)
			if row.err != "" {
				var failure *logbook.Failure
				if err == nil || !strings.Contains(err.Error(), row.err) || !errors.As(err, &failure) || failure.Kind != logbook.FailureArgument {
					t.Errorf("error %v, want %s", err, row.err)
				}
				return
			}
			atom, _ := result.Detail.Atom("s")
			got, _ := atom.Result()
			var compact any
			_ = json.Unmarshal(got, &compact)
			text, _ := json.Marshal(compact)
			if err != nil || string(text) != row.want {
				t.Errorf("it was given %s, %v; want %s", text, err, row.want)
			}
		})
	}
}

// TestSecretInsideAValue: a path to a reference to a secret gives the step the secret, and the
// record does not have it.
func TestSecretInsideAValue(t *testing.T) {
	var given json.RawMessage
	var secrets []string
	step := secretStep{execute: func(c *flow.Call) (any, error) {
		given, secrets = c.Arguments["who"], c.Secrets
		return map[string]any{"used": c.Arguments["who"]}, nil
	}}
	store := logbook.Values{"login": json.RawMessage(`{"user": "u", "password": {"secret": "db"}}`)}
	result, err := engine.Local{Secrets: secretsOf}.Run(t.Context(),
		flow.NewStep("s", step, flow.Requires("who"), flow.Rebind(map[string]string{"who": "login.password"})), store)
	var text string
	if _ = json.Unmarshal(given, &text); err != nil || text != password || !slices.Equal(secrets, []string{"who"}) {
		t.Errorf("it was given %s, with secrets in %v, %v", given, secrets, err)
	}
	atom, _ := result.Detail.Atom("s")
	if got, _ := atom.Result(); string(got) != `{"used":"[secret db]"}` {
		t.Errorf("recorded is %s", got)
	}
}

// TestWorkerLabels: labels with arguments of the step, as they are offered, or the failure.
func TestWorkerLabels(t *testing.T) {
	store := logbook.Values{
		"platform": json.RawMessage(`"linux"`), "order": json.RawMessage(`{"site": {"zone": 7}, "empty": ""}`), "in": json.RawMessage(`{"secret": "db"}`),
	}
	for _, row := range []struct {
		labels []string
		want   string
		kind   string
		err    string
	}{
		{[]string{"{platform}", "zone-{order.site.zone}", "gpu", "linux"}, "[linux zone-7 gpu]", "", ""},
		{[]string{"{order.site.town}"}, "", logbook.FailureArgument, `cannot fill its worker label "{order.site.town}": there is no "order.site.town": "order.site" is an object`},
		{[]string{"{none}"}, "", logbook.FailureArgument, `there is no argument "none"`},
		{[]string{"{order.empty}"}, "", logbook.FailureArgument, `worker label is invalid: empty`},
		{[]string{"{in}"}, "", logbook.FailureSecret, `would show its argument "in", which holds a secret`},
	} {
		for _, revert := range []string{"", "undo"} {
			step := flow.NewStep("s", flow.OnWorker(flow.WorkerStep{Type: "do", Revert: revert, Labels: row.labels}), flow.Requires("platform", "order"), flow.Optional("none", "in"))
			j := newJournal(newDetail())
			offered := "none"
			_, err := engine.Run(t.Context(), engine.Options{Plan: compile(t, step, "platform", "order", "in"), Detail: j.snapshot(), Store: store, Journal: j, Begins: true, Secrets: secretsOf,
				Token: logbook.Token{Index: 5}, Offer: func(_ context.Context, _ *flow.Call, step flow.WorkerStep) (json.RawMessage, error) {
					offered = fmt.Sprint(step.Labels)
					return json.RawMessage("null"), nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			found := j.snapshot()
			atom, _ := found.Atom("s")
			last, _ := atom.Last(logbook.ActionExecute)
			switch {
			case row.err == "" && offered != row.want:
				t.Errorf("%v: offered with %s, want %s", row.labels, offered, row.want)
			case row.err != "" && (offered != "none" || last.Failure == nil || last.Failure.Kind != row.kind || !strings.Contains(last.Failure.Message, row.err)):
				t.Errorf("%v: offered with %s, failure %+v; want %s", row.labels, offered, last.Failure, row.err)
			}
		}
	}
}

func TestFaultsOfLabels(t *testing.T) {
	for _, label := range []string{"{other}", "{other.x}", "{", "a}", "{}"} {
		step := flow.NewStep("s", flow.OnWorker(flow.WorkerStep{Type: "do", Labels: []string{label}}), flow.Requires("a"))
		if _, err := flow.Compile(step, "a"); !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%s: %v", label, err)
		}
	}
	step := flow.NewStep("s", flow.OnWorker(flow.WorkerStep{Type: "do", Revert: "undo", Labels: []string{"{a.b}"}}), flow.Requires("a"), flow.RevertRequires())
	if _, err := flow.Compile(step, "a"); err == nil || !strings.Contains(err.Error(), "not an argument of its revert") {
		t.Errorf("a revert without the argument: %v", err)
	}
}
