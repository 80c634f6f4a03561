//go:build unix

package examples_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/examples"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// carried is the result of a flow document that was run by the engine.
type carried struct {
	engine.Result
	err error
}

// carryOut runs a document in the engine, with the handlers of the examples.
func carryOut(t *testing.T, file string, given logbook.Values) carried {
	t.Helper()
	text, err := fs.ReadFile(examples.Files, file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse(text, file)
	if err != nil {
		t.Fatal(err)
	}
	store, err := document.Fill(given)
	if err != nil {
		t.Fatal(err)
	}
	built, err := document.Build(handlers(t))
	if err != nil {
		t.Fatal(err)
	}
	result, err := engine.RunLocal(context.Background(), built, store)
	return carried{result, err}
}

// states are the states of the recorded steps, in order of their names.
func (c *carried) states() string {
	var states []string
	for i := range c.Detail.Atoms {
		states = append(states, c.Detail.Atoms[i].Name+" "+string(c.Detail.Atoms[i].State))
	}
	slices.Sort(states)
	return strings.Join(states, ", ")
}

// said returns the stderr of a step's executions or reverts.
func (c *carried) said(step string, action logbook.Action) string {
	atom, _ := c.Detail.Atom(step)
	var said strings.Builder
	for i := range atom.Attempts {
		if atom.Attempts[i].Action == action {
			said.WriteString(atom.Attempts[i].Stderr)
		}
	}
	return said.String()
}

func set(name, value string) logbook.Values { return logbook.Values{name: json.RawMessage(value)} }

// TestRetryExample: the first region is full. The machine is placed in the second region, and its
// reservation in the first is released.
func TestRetryExample(t *testing.T) {
	got := carryOut(t, "retry.toml", nil)
	if got.err != nil || !strings.HasSuffix(string(got.Steps["start-machine"]), ` in us"`) {
		t.Fatalf("the machine is %s, %v", got.Steps["start-machine"], got.err)
	}
	if released := got.said("reserve-address", logbook.ActionRevert); !strings.HasPrefix(released, "10.0.0.") {
		t.Errorf("released is %q", released)
	}
	got = carryOut(t, "retry.toml", set("full", `"eu us asia"`))
	if got.err == nil || got.State != logbook.FlowReverted || len(got.Steps) != 0 {
		t.Errorf("where all is full: %s, %v", got.State, got.err)
	}
}

// TestDecisionExample: the conditions decide which steps run, and packing comes after the
// approval if there is one.
func TestDecisionExample(t *testing.T) {
	for _, row := range []struct {
		name   string
		given  logbook.Values
		parcel string
		states string
	}{
		{"large", nil, `"12 x lamp, approved by Grace"`,
			"approve-order success, declare-to-customs ignore, pack-order success, price-order success"},
		{"small", set("amount", "2"), `"2 x lamp, not to be approved"`,
			"approve-order ignore, declare-to-customs ignore, pack-order success, price-order success"},
		{"abroad", set("item", `"globe"`), `"12 x globe, approved by Grace"`,
			"approve-order success, declare-to-customs success, pack-order success, price-order success"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := carryOut(t, "decision.toml", row.given)
			if got.err != nil || string(got.Steps["pack-order"]) != row.parcel || got.states() != row.states {
				t.Errorf("packed %s; %s; %v", got.Steps["pack-order"], got.states(), got.err)
			}
		})
	}
}

// TestSagaExample: both legs are paid for. If the second cannot be paid, the first is undone
// too.
func TestSagaExample(t *testing.T) {
	got := carryOut(t, "saga.toml", quick(nil))
	if got.err != nil || len(got.Steps) != 8 {
		t.Fatalf("%s, %v", got.states(), got.err)
	}
	if flight := got.said("onward.fly", logbook.ActionExecute); !strings.Contains(flight, "from Lisbon to Porto") {
		t.Errorf("the second flight: %q", flight)
	}
	got = carryOut(t, "saga.toml", quick(set("fail_at", `"onward.pay"`)))
	if got.err == nil || got.State != logbook.FlowReverted || len(got.Steps) != 0 {
		t.Fatalf("%s, %v", got.states(), got.err)
	}
	for _, step := range []string{"outward.fly", "outward.stay", "onward.fly", "onward.stay"} {
		if undone := got.said(step, logbook.ActionRevert); !strings.HasSuffix(undone, " is cancelled\n") {
			t.Errorf("the revert of %s said %q", step, undone)
		}
	}
}

// TestEachExample: every order is packed, and the van gets the list of parcels.
func TestEachExample(t *testing.T) {
	for _, row := range []struct {
		given logbook.Values
		want  string
	}{
		{nil, `{"parcels":["1 x lamp, not to be approved","1 x globe, not to be approved"]}`},
		{set("orders", "[]"), `{"parcels":[]}`},
	} {
		got := carryOut(t, "each.toml", row.given)
		if loaded := got.said("load-van", logbook.ActionExecute); got.err != nil || loaded != "loaded: "+row.want+"\n" {
			t.Errorf("%q, %s, %v", loaded, got.states(), got.err)
		}
	}
	if got := carryOut(t, "each.toml", set("orders", "7")); got.err == nil {
		t.Errorf("a number is taken for a list: %s", got.states())
	}
}

// TestEveryExampleIsRun: every document in this directory is run by a test.
func TestEveryExampleIsRun(t *testing.T) {
	run := []string{"decision.toml", "each.toml", "hello.toml", "retry.toml", "saga.toml", "travel.toml"}
	entries, err := fs.ReadDir(examples.Files, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if path.Ext(entry.Name()) == ".toml" && !slices.Contains(run, entry.Name()) {
			t.Errorf("%s is run by no test", entry.Name())
		}
	}
}
