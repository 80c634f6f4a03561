package engine_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// waited runs a flow until it waits for the signal "paid", and gives the signal.
func waited(t *testing.T, plan *flow.Plan, more func(o *engine.Options), signals ...logbook.Signal) *journal {
	t.Helper()
	j := newJournal(newDetail())
	o := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 1}, MaxIdle: time.Second, Store: logbook.Values{"list": []byte("[1]")}}
	if more != nil {
		more(&o)
		j.detail = o.Detail
	}
	end, err := engine.Run(t.Context(), o)
	if err == nil && end.Update != nil {
		err = j.apply(*end.Update)
	}
	if err != nil || end.Awaits == nil {
		t.Fatalf("the flow is %s and waits for %+v, %v", end.State, end.Awaits, err)
	}
	for _, signal := range signals {
		if !j.give(signal) {
			t.Fatalf("no step waits for signal %s", signal.Name)
		}
	}
	return j
}

func paid(name string) logbook.Signal {
	return logbook.Signal{Name: name, ID: "1", Data: json.RawMessage(`{"amount":7}`)}
}

// TestStepsThatBeginAfterAWait: the steps after a wait that a signal has ended begin before anything is durable, if
// the claim replaces their marks.
func TestStepsThatBeginAfterAWait(t *testing.T) {
	line := func(nodes func(c *calls) []flow.Node) func(c *calls) flow.Node {
		return func(c *calls) flow.Node {
			return flow.Linear("f", append([]flow.Node{c.step("a"), flow.Signal[payment]("paid")}, nodes(c)...)...)
		}
	}
	after := func(options ...flow.StepOption) func(c *calls) flow.Node {
		return line(func(c *calls) []flow.Node { return []flow.Node{c.step("b", options...), c.step("c")} })
	}
	died := logbook.Token{Index: 1}
	for _, row := range []struct {
		name  string
		build func(c *calls) flow.Node
		more  func(o *engine.Options)
		want  int
	}{
		{"the next step", after(), nil, 1},
		{"all that wait for the signal alone", line(func(c *calls) []flow.Node { return []flow.Node{flow.Unordered("many", c.step("b"), c.step("c"))} }), nil, 2},
		{"as many as may run", line(func(c *calls) []flow.Node { return []flow.Node{flow.Unordered("many", c.step("b"), c.step("c"))} }),
			func(o *engine.Options) { o.Workers = 1 }, 1},
		{"a step that takes the signal's data", after(flow.Requires("amount")), nil, 1},
		{"a step with a retry around all", func(c *calls) flow.Node {
			return flow.Linear("f", flow.Signal[payment]("paid"), c.step("b")).WithRetry(flow.Times("r", 2))
		}, nil, 1},
		{"a pinned flow, whose definition is recorded", after(), func(o *engine.Options) { o.Detail.OnChange = logbook.ChangePin }, 1},
		{"not without the claim", after(), func(o *engine.Options) { o.Begins = false }, 0},
		{"not what is at most once", after(flow.AtMostOnce()), nil, 0},
		{"not what has a version", after(flow.Version("2")), nil, 0},
		{"not what is run for each", line(func(c *calls) []flow.Node { return []flow.Node{flow.Each("e", "list", "x", c.step("b"))} }), nil, 0},
		{"not behind a decider", func(c *calls) flow.Node {
			yes := flow.Decide("yes", func(logbook.Values) (bool, error) { return true, nil })
			return flow.Graph("f", flow.Signal[payment]("paid"), c.step("b")).Link("paid", "b", yes)
		}, nil, 0},
		{"not a flow that may have begun", after(), func(o *engine.Options) { o.Detail.Begun = logbook.Token{Index: 2} }, 0},
		{"not under the claim that has recorded something", after(), func(o *engine.Options) { o.Token = died }, 0},
		{"not beside a second wait", func(c *calls) flow.Node {
			return flow.Unordered("f", flow.Linear("one", flow.Signal[payment]("paid"), c.step("b")), flow.Signal[payment]("other"))
		}, nil, 0},
		{"not after a rejection of data", after(), func(o *engine.Options) {
			o.Detail.Atoms[len(o.Detail.Atoms)-1].Attempts[0].Wait.Signal.Data = json.RawMessage("[]")
		}, 0},
		{"not a flow that reverts", after(), func(o *engine.Options) {
			closed := make(chan struct{})
			close(closed)
			o.Revert = closed
		}, 0},
		{"not more than one update holds", line(func(c *calls) []flow.Node { return []flow.Node{flow.Unordered("many", c.step("b"), c.step("c"))} }),
			func(o *engine.Options) { o.Limits.Steps = 2 }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &calls{}
				plan := compile(t, row.build(c), "list")
				j := &slowJournal{journal: waited(t, plan, nil, paid("paid"))}
				c.lines = nil
				o := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 7}, Store: logbook.Values{"list": []byte("[1]")}}
				if row.more != nil {
					row.more(&o)
				}
				j.detail = o.Detail
				c.beginUnrecorded(t, o, row.want)
			})
		})
	}
}

// TestTakingUpAfterAWait: if the owner that took up a flow after a wait has died without a record, the next owner first
// records that the steps after the wait may have run.
func TestTakingUpAfterAWait(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	died := logbook.Token{Index: 5}
	for _, row := range []struct {
		name  string
		more  func(o *engine.Options)
		state logbook.FlowState
		calls string
		atoms string
	}{
		{"it goes on", func(*engine.Options) {}, logbook.FlowSuccess, "do b 1, do b 2, do c 1", "a success e1\npaid success e1\nb success e1 e2\nc success e1\n"},
		{"it is undone", func(o *engine.Options) { o.Revert = closed }, logbook.FlowReverted, "do b 1, undo a 1, undo b 1", "a reverted e1 r1\npaid reverted e1\nb reverted e1 r1\n"},
		{"it is suspended", func(o *engine.Options) { o.Suspend = closed }, logbook.FlowSuspended, "do b 1", "a success e1\npaid success e1\nb running e1\n"},
		{"it was suspended meanwhile", func(o *engine.Options) { o.Detail.State = logbook.FlowSuspended }, logbook.FlowSuccess, "do b 1, do b 2, do c 1",
			"a success e1\npaid success e1\nb success e1 e2\nc success e1\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &calls{}
			plan := compile(t, flow.Linear("f", c.step("a"), flow.Signal[payment]("paid"), c.step("b"), c.step("c")))
			j := waited(t, plan, nil, paid("paid"))
			c.lines = nil
			j.left = 0
			end, err := engine.Run(t.Context(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: died})
			if !errors.Is(err, errCrash) || !end.Unrecorded {
				t.Fatalf("the run ended in %v, unrecorded %v", err, end.Unrecorded)
			}
			j.left, j.updates = -1, nil
			j.detail = j.lost(died, true)
			o := engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Begins: true, Token: logbook.Token{Index: 7}, Owner: "next"}
			row.more(&o)
			j.detail.State = o.Detail.State
			end, err = engine.Run(t.Context(), o)
			if err == nil && end.Update != nil {
				err = j.apply(*end.Update)
			}
			detail := j.snapshot()
			if err != nil || end.State != row.state || c.String() != row.calls || dump(detail) != row.atoms || !detail.Begun.IsZero() {
				t.Errorf("the run ended in %v, %s, and has called %q; want %s and %q; the record:\n%swant\n%s", err, end.State, c, row.state, row.calls, dump(detail), row.atoms)
			}
			first := j.trace()[0].Atoms
			if len(first) < 2 || first[0].Name != "paid" || first[0].State != logbook.AtomSuccess || first[1].Name != "b" || first[1].State != logbook.AtomRunning || first[1].Attempts[0].Token != died {
				t.Errorf("the first update is %+v", first)
			}
		})
	}
}
