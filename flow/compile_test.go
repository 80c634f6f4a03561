package flow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

type idle struct{}

func (idle) Execute(context.Context, *flow.Call) (any, error) { return nil, nil }

type idleReverter struct{ idle }

func (idleReverter) Revert(context.Context, *flow.Call) error { return nil }

// step makes a step from "NAME needs:A,B maybe:C gives:D".
func step(text string) *flow.Step {
	words := strings.Fields(text)
	var options []flow.StepOption
	for _, word := range words[1:] {
		verb, list, _ := strings.Cut(word, ":")
		names := strings.Split(list, ",")
		switch verb {
		case "needs":
			options = append(options, flow.Requires(names...))
		case "maybe":
			options = append(options, flow.Optional(names...))
		case "gives":
			options = append(options, flow.ProvidesFields(names...))
		}
	}
	return flow.NewStep(words[0], idle{}, options...)
}

func steps(texts ...string) []flow.Node {
	nodes := make([]flow.Node, len(texts))
	for i, text := range texts {
		nodes[i] = step(text)
	}
	return nodes
}

// sources writes down where a plan's steps get their arguments: "c.x=a".
func sources(plan *flow.Plan) string {
	var list []string
	for number, s := range plan.Steps() {
		for _, wire := range plan.Arguments(number) {
			from := map[int]string{flow.FromStore: "store", flow.FromNowhere: "nothing", flow.FromStep: "itself"}[wire.From]
			if wire.From >= 0 {
				from = plan.Step(wire.From).Name()
			}
			list = append(list, s.Name()+"."+wire.Name+"="+from)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestWhereArgumentsComeFrom(t *testing.T) {
	for _, row := range []struct {
		name   string
		root   flow.Node
		inputs []string
		want   string
	}{
		{"from the store", step("a needs:x"), []string{"x"}, "a.x=store"},
		{"optional and nowhere", step("a maybe:x"), nil, "a.x=nothing"},
		{"optional and in the store", step("a maybe:x"), []string{"x"}, "a.x=store"},
		{"a provider hides the store", flow.Linear("f", steps("a gives:x", "b needs:x")...), []string{"x"}, "b.x=a"},
		{"the nearest provider", flow.Linear("f", steps("a gives:x", "b gives:x", "c needs:x", "d gives:x")...), nil, "c.x=b"},
		{"a step that passes on", flow.Linear("f", steps("a needs:x gives:x", "b needs:x gives:x", "c needs:x")...), []string{"x"}, "a.x=store b.x=a c.x=b"},
		{"from before the outer flow", flow.Linear("f", step("a gives:x"), flow.Unordered("u", steps("b needs:x", "c needs:x")...)), nil, "b.x=a c.x=a"},
		{"from within a flow before", flow.Linear("f", flow.Linear("g", steps("a gives:x", "b gives:x")...), step("c needs:x")), nil, "c.x=b"},
		{"the inner one is nearer", flow.Linear("f", step("a gives:x"), flow.Linear("g", steps("b gives:x", "c needs:x")...)), nil, "c.x=b"},
		{"siblings are invisible", flow.Unordered("u", steps("a gives:x", "b maybe:x")...), nil, "b.x=nothing"},
		{"siblings do not hide the store", flow.Unordered("u", steps("a gives:x", "b needs:x")...), []string{"x"}, "b.x=store"},
		{"a graph links by name", flow.Graph("g", steps("c needs:y", "b needs:x gives:y", "a gives:x")...), nil, "b.x=a c.y=b"},
		{"a graph links optional names", flow.Graph("g", steps("b maybe:x", "a gives:x")...), nil, "b.x=a"},
		{"a graph links flows", flow.Graph("g", flow.Linear("l", steps("b", "c needs:x")...), step("a gives:x")), nil, "c.x=a"},
		{"links choose the provider", flow.Graph("g", steps("a gives:x", "b gives:x", "c needs:x")...).Link("a", "b").Link("b", "c"), nil, "c.x=b"},
		{"links order providers", flow.Graph("g", steps("c needs:x", "b gives:x", "a gives:x")...).Link("b", "a").Link("a", "c"), nil, "c.x=a"},
		{"through an empty flow", flow.Linear("f", step("a gives:x"), flow.Unordered("u"), step("b needs:x")), nil, "b.x=a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan, err := flow.Compile(row.root, row.inputs...)
			if err != nil {
				t.Fatal(err)
			}
			if got := sources(plan); got != row.want {
				t.Errorf("got %s, wanted %s", got, row.want)
			}
		})
	}
}

func nested(depth int) flow.Node {
	var node flow.Node = step("s")
	for i := range depth {
		node = flow.Linear(fmt.Sprint("f", i), node)
	}
	return node
}

func TestFaults(t *testing.T) {
	twice := step("a")
	self := flow.Linear("self")
	self.Add(flow.Linear("inner", self))
	var nilFlow *flow.Flow
	many := make([]flow.Node, logbook.MaxLimits.Steps+1)
	for i := range many {
		many[i] = step(fmt.Sprint("s", i))
	}
	for _, row := range []struct {
		name string
		root flow.Node
		want []error
		says string
	}{
		{"an unknown policy for takeovers", flow.Linear("f", step("x")).OnTakeover("undo"), []error{flow.ErrInvalid}, `takeover policy "undo"`},
		{"an unknown policy for failures", flow.Linear("f", step("x")).OnFailure("park"), []error{flow.ErrInvalid}, `failure policy "park"`},
		{"missing", flow.Linear("f", steps("a needs:x")...), []error{flow.ErrMissing}, `step "a" requires "x"`},
		{"provided too late", flow.Linear("f", steps("a needs:x", "b gives:x")...), []error{flow.ErrMissing}, `"a"`},
		{"provided by a sibling", flow.Unordered("f", steps("a needs:x", "b gives:x")...), []error{flow.ErrMissing}, `"a"`},
		{"a version too long", flow.NewStep("a", idle{}, flow.Version(strings.Repeat("v", 256))), []error{flow.ErrInvalid}, "version is too large"},
		{"a version that is no name", flow.NewStep("a", idle{}, flow.Version("v1\n")), []error{flow.ErrInvalid}, "control character"},
		{"two names", flow.Linear("f", steps("a", "a")...), []error{flow.ErrDuplicate}, `"a"`},
		{"the same step twice", flow.Linear("f", twice, flow.Linear("g", twice)), []error{flow.ErrDuplicate}, "f / g / a"},
		{"a flow in itself", self, []error{flow.ErrCycle}, "self / inner / self"},
		{"a cycle of names", flow.Graph("g", steps("a needs:z gives:x", "b needs:x gives:y", "c needs:y gives:z", "d")...), []error{flow.ErrCycle}, "a → b → c → a"},
		{"a cycle of links", flow.Graph("g", steps("a", "b")...).Link("a", "b").Link("b", "a"), []error{flow.ErrCycle}, " → "},
		{"a link to itself", flow.Graph("g", steps("a")...).Link("a", "a"), []error{flow.ErrCycle}, "a → a"},
		{"a link to nowhere", flow.Graph("g", steps("a")...).Link("a", "z"), []error{flow.ErrUnknownNode}, `"z"`},
		{"links in a linear flow", flow.Linear("l", steps("a", "b")...).Link("a", "b"), []error{flow.ErrInvalid}, "only a graph"},
		{"two providers in a graph", flow.Graph("g", steps("a gives:x", "b gives:x", "c needs:x")...), []error{flow.ErrAmbiguous}, "a and b"},
		{"two providers equally near", flow.Linear("f", flow.Unordered("u", steps("a gives:x", "b gives:x")...), step("c needs:x")), []error{flow.ErrAmbiguous}, "a and b"},
		{"two providers behind a gate", flow.Linear("f", flow.Unordered("u", steps("a gives:x", "b gives:x")...), flow.Unordered("v", steps("c needs:x", "d")...)), []error{flow.ErrAmbiguous}, "a and b"},
		{"too deep", nested(flow.MaxNesting + 1), []error{flow.ErrTooLarge}, "deep"},
		{"too many", flow.Unordered("u", many...), []error{flow.ErrTooLarge}, "10000 steps"},
		{"no flow", nil, []error{flow.ErrInvalid}, "no flow"},
		{"nil in a flow", flow.Linear("f", nil), []error{flow.ErrInvalid}, `"f"`},
		{"a nil flow", nilFlow, []error{flow.ErrInvalid}, ""},
		{"no name", flow.Linear("f", flow.NewStep("", idle{})), []error{flow.ErrInvalid}, "step name is invalid: empty"},
		{"a name with a control character", flow.Linear("f\n"), []error{flow.ErrInvalid}, "control"},
		{"no task", flow.NewStep("a", nil), []error{flow.ErrInvalid}, "no task"},
		{"rebinding what is not there", flow.NewStep("a", idle{}, flow.Rebind(map[string]string{"x": "y"})), []error{flow.ErrInvalid}, `"x"`},
		{"requiring twice", step("a needs:x,x"), []error{flow.ErrInvalid}, "twice"},
		{"repeatable point of no return", flow.NewStep("a", idle{}, flow.Repeatable(), flow.PointOfNoReturn()), []error{flow.ErrInvalid}, "point of no return"},
		{"at most once, tried thrice", flow.NewStep("a", idle{}, flow.AtMostOnce(), flow.Retry(flow.Backoff{Attempts: 3})), []error{flow.ErrInvalid}, "at most once"},
		{"too many attempts", flow.NewStep("a", idle{}, flow.Retry(flow.Backoff{Attempts: logbook.MaxAttempts + 1})), []error{flow.ErrInvalid}, "attempts"},
		{"a negative timeout", flow.NewStep("a", idle{}, flow.Timeout(-1)), []error{flow.ErrInvalid}, "timeout"},
		{"a revert that lacks something", flow.NewStep("a", idleReverter{}, flow.RevertRequires("x")), []error{flow.ErrMissing}, "to be reverted"},
		{"all at once", flow.Linear("f", steps("a needs:x", "b needs:y")...).Add(flow.Unordered("u", steps("c gives:z", "d gives:z")...), step("e needs:z")),
			[]error{flow.ErrMissing, flow.ErrAmbiguous}, `step "b" requires "y"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := flow.Compile(row.root)
			for _, want := range row.want {
				if !errors.Is(err, want) {
					t.Errorf("%v is not %v", err, want)
				}
			}
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%v does not say %s", err, row.says)
			}
		})
	}
}

func TestLimitsAreReachable(t *testing.T) {
	if _, err := flow.Compile(nested(flow.MaxNesting)); err != nil {
		t.Error(err)
	}
	limits := logbook.MaxLimits
	limits.Steps = 2
	if _, err := flow.CompileWithin(limits, flow.Linear("f", steps("a", "b")...)); err != nil {
		t.Error(err)
	}
	if _, err := flow.CompileWithin(limits, flow.Linear("f", steps("a", "b", "c")...)); !errors.Is(err, flow.ErrTooLarge) {
		t.Errorf("three steps within a limit of two: %v", err)
	}
}

// Edges stay as few as the steps, where everything waits for everything.
func TestGates(t *testing.T) {
	const wide = 50
	layer := func(name string) flow.Node {
		var names []string
		for i := range wide {
			names = append(names, fmt.Sprint(name, i))
		}
		return flow.Unordered(name, steps(names...)...)
	}
	for _, root := range []flow.Node{
		flow.Linear("f", layer("a"), layer("b"), flow.Linear("empty"), layer("c")),
		flow.Graph("g", layer("a"), layer("b"), layer("c")).Link("a", "b").Link("b", "c"),
	} {
		plan, err := flow.Compile(root)
		if err != nil {
			t.Fatal(err)
		}
		edges := 0
		for v := range plan.Vertices() {
			edges += len(plan.Next(v))
		}
		if edges > 4*wide+4 {
			t.Errorf("%d steps have %d edges", plan.Len(), edges)
		}
		first, _ := plan.Find("a0")
		middle, _ := plan.Find("b0")
		if got := len(plan.Successors(first)); got != wide {
			t.Errorf("%d steps wait for a0", got)
		}
		if got := len(plan.Predecessors(middle)); got != wide {
			t.Errorf("b0 waits for %d steps", got)
		}
	}
}

func TestRevertArguments(t *testing.T) {
	root := flow.Linear("f",
		flow.NewStep("same", idleReverter{}, flow.Requires("x")),
		flow.NewStep("other", idleReverter{}, flow.Requires("x"), flow.RevertRequires("y"), flow.Rebind(map[string]string{"y": "x"})),
		flow.NewStep("none", idle{}, flow.Requires("x")))
	plan, err := flow.Compile(root, "x")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for number := range plan.Len() {
		for _, wire := range plan.RevertArguments(number) {
			got = append(got, plan.Step(number).Name()+"."+wire.Name+"="+wire.Symbol)
		}
	}
	if want := "same.x=x other.y=x"; strings.Join(got, " ") != want {
		t.Errorf("got %v, wanted %s", got, want)
	}
}

func TestDrawings(t *testing.T) {
	root := flow.Linear("f \"one\"", step("a gives:x"), flow.Unordered("u", step("b needs:x"),
		flow.NewStep("<c> & #", idleReverter{}, flow.Timeout(time.Second), flow.Retry(flow.Backoff{Attempts: 3, Delay: time.Second}))))
	plan, err := flow.Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, got, want string }{
		{"outline", plan.Outline(), `f "one" (linear)
  1. a: provides x
  u (unordered)
    2. b: x ← a.x
    2. <c> & #: can be undone; timeout 1s; up to 3 attempts, 1s apart
steps with the same number do not wait for each other
`},
		{"graphviz", plan.Graphviz(), `digraph flow {
  rankdir=LR;
  node [shape=box];
  subgraph cluster_0 {
    label="f \"one\"";
    n0 [label="a"];
    subgraph cluster_1 {
      label="u";
      n1 [label="b"];
      n2 [label="<c> & #"];
    }
  }
  n0 -> n1 [label="x"];
  n0 -> n2;
}
`},
		{"mermaid", plan.Mermaid(), `flowchart LR
  subgraph f0["f #quot;one#quot;"]
    n0["a"]
    subgraph f1["u"]
      n1["b"]
      n2["#lt;c#gt; #amp; #35;"]
    end
  end
  n0 -->|"x"| n1
  n0 --> n2
`},
	} {
		if row.got != row.want {
			t.Errorf("%s is\n%s\nand not\n%s", row.name, row.got, row.want)
		}
	}
}

// TestDrawnMarks: pictures mark the steps that change the effect of a failure.
func TestDrawnMarks(t *testing.T) {
	quiet := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, idle{}, options...)
	}
	plan, err := flow.Compile(flow.Linear("f", quiet("drop", flow.PointOfNoReturn()), quiet("tell", flow.IgnoreFailure())).
		OnError(quiet("alert")).Finally(quiet("close")))
	if err != nil {
		t.Fatal(err)
	}
	for _, drawn := range []string{plan.Graphviz(), plan.Mermaid()} {
		for _, want := range []string{`"drop (point of no return)"`, `"tell (failure ignored)"`, `"alert (on_error)"`, `"close (finally)"`} {
			if !strings.Contains(drawn, want) {
				t.Errorf("no %s in\n%s", want, drawn)
			}
		}
	}
}
