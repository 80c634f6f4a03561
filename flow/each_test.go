package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
)

func each(name, text string, options ...flow.EachOption) *flow.Flow {
	return flow.Each(name, "list", "x", flow.Linear("body-"+name, steps(strings.Split(text, "; ")...)...), options...)
}

func TestFaultsOfEach(t *testing.T) {
	long := strings.Repeat("n", 250)
	for _, row := range []struct {
		name string
		root flow.Node
		kind error
		text string
	}{
		{"no list", flow.Each("e", "missing", "x", step("a")), flow.ErrMissing, `step "e" requires "missing"`},
		{"no name of the list", flow.Each("e", "", "x", step("a")), flow.ErrInvalid, "the list of the loop has no name"},
		{"no name of the element", flow.Each("e", "list", "", step("a")), flow.ErrInvalid, "the element of the loop has no name"},
		{"one name for two", flow.Each("e", "list", "x", step("a"), flow.Place("x")), flow.ErrInvalid, "the same name"},
		{"no body", flow.Each("e", "list", "x", nil), flow.ErrInvalid, "contains nil"},
		{"two bodies", flow.Each("e", "list", "x", step("a")).Add(step("b")), flow.ErrInvalid, "has 2 bodies"},
		{"a link", flow.Each("e", "list", "x", step("a")).Link("a", "a"), flow.ErrInvalid, "only a graph"},
		{"nobody at once", flow.Each("e", "list", "x", step("a"), flow.AtOnce(0)), flow.ErrInvalid, "flow.AtOnce must be at least 1, not 0"},
		{"missing in the body", each("e", "a needs:y"), flow.ErrMissing, `step "a" requires "y"`},
		{"ambiguous in the body", flow.Each("e", "list", "x", flow.Linear("l", flow.Unordered("u", steps("a gives:y", "b gives:y")...), step("c needs:y"))),
			flow.ErrAmbiguous, "steps a and b provide"},
		{"a cycle in the body", flow.Each("e", "list", "x", flow.Graph("g", steps("a needs:y gives:z", "b needs:z gives:y")...)), flow.ErrCycle, "a → b → a"},
		{"two of a name", flow.Linear("f", each("e", "a"), step("a")), flow.ErrDuplicate, `"a"`},
		{"a step of the name of the each", flow.Linear("f", each("e", "a"), step("e")), flow.ErrDuplicate, `"e"`},
		{"the name of an instance", flow.Linear("f", each("e", "a"), step("a[7]")), flow.ErrDuplicate, `step "a[7]" has the name of an instance of step "a"`},
		{"the name of an instance of an instance", flow.Linear("f", each("e", "a"), step("a[7][0]")), flow.ErrDuplicate, `of step "a"`},
		{"a name that grows too long", flow.Each("e", "list", "x", step(long)), flow.ErrTooLarge, "256 bytes with the indexes of its instances"},
		{"what it provides is not seen behind", flow.Linear("f", each("e", "a gives:y"), step("b needs:y")), flow.ErrMissing, `step "b" requires "y"`},
		{"nor the element", flow.Linear("f", each("e", "a"), step("b needs:x")), flow.ErrMissing, `step "b" requires "x"`},
		{"gathers what is not there", each("e", "a gives:y", flow.Gather("z", "")), flow.ErrMissing, `each "e" gathers "z"`},
		{"gathers twice", each("e", "a gives:y,z", flow.Gather("y", ""), flow.Gather("z", "y")), flow.ErrInvalid, `gathers "y" twice`},
		{"gathers one of two", flow.Each("e", "list", "x", flow.Unordered("u", steps("a gives:y", "b gives:y")...), flow.Gather("y", "")), flow.ErrAmbiguous, "steps a and b"},
		{"two gather the same", flow.Linear("f", flow.Unordered("u", each("d", "a gives:y", flow.Gather("y", "")), each("e", "b gives:y", flow.Gather("y", ""))), step("c needs:y")),
			flow.ErrAmbiguous, "steps d and e"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := flow.Compile(row.root, "list")
			if !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.text) {
				t.Errorf("got %v, want %v: …%s…", err, row.kind, row.text)
			}
		})
	}
	if _, err := flow.Compile(flow.Each("e", "list", "x", step(long[:249])), "list"); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

// grow compiles a flow and grows it to a number of elements.
func grow(t *testing.T, root flow.Node, elements map[string]int) *flow.Plan {
	t.Helper()
	plan, err := flow.Compile(root, "list", "y")
	if err != nil {
		t.Fatal(err)
	}
	grown, err := plan.Grown(elements)
	if err != nil {
		t.Fatal(err)
	}
	if grown.Template() != plan || !plan.Grows() {
		t.Error("the template is not what it has grown from")
	}
	return grown
}

func TestGrown(t *testing.T) {
	for _, row := range []struct {
		name     string
		root     flow.Node
		elements map[string]int
		steps    string
		sources  string
	}{
		{"not known", flow.Linear("f", each("e", "a needs:x"), step("b")), nil, "e b", "e.list=store"},
		{"none", flow.Linear("f", each("e", "a needs:x"), step("b")), map[string]int{"e": 0}, "e b", "e.list=store"},
		{"two", flow.Linear("f", each("e", "a needs:x gives:y; b needs:y"), step("c needs:y")), map[string]int{"e": 2},
			"e a[0] b[0] a[1] b[1] c", "a[0].x=e a[1].x=e b[0].y=a[0] b[1].y=a[1] c.y=store e.list=store"},
		{"from before", flow.Linear("f", step("a gives:y"), each("e", "b needs:y")), map[string]int{"e": 2}, "a e b[0] b[1]", "b[0].y=a b[1].y=a e.list=store"},
		{"hidden by a step of the instance", each("e", "a gives:x; b needs:x"), map[string]int{"e": 1}, "e a[0] b[0]", "b[0].x=a[0] e.list=store"},
		{"in order", each("e", "a gives:z; b maybe:z", flow.InOrder()), map[string]int{"e": 2}, "e a[0] b[0] a[1] b[1]",
			"b[0].z=a[0] b[1].z=a[1] e.list=store"},
		{"not from the one before it", each("e", "b maybe:z; a gives:z", flow.InOrder()), map[string]int{"e": 2}, "e b[0] a[0] b[1] a[1]",
			"b[0].z=nothing b[1].z=nothing e.list=store"},
		{"nested", flow.Each("o", "list", "list", each("e", "a needs:x")), map[string]int{"o": 2, "e[1]": 2, "e[7]": 1}, "o e[0] e[1] a[1][0] a[1][1]",
			"a[1][0].x=e[1] a[1][1].x=e[1] e[0].list=o e[1].list=o o.list=store"},
		{"with a retry for each", flow.Each("e", "list", "x", flow.Linear("l", step("a needs:v")).WithRetry(flow.Times("r", 2, flow.Provides("v")))),
			map[string]int{"e": 2}, "e r[0] a[0] r[1] a[1]", "a[0].v=r[0] a[1].v=r[1] e.list=store"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan := grow(t, row.root, row.elements)
			if got := names(plan); got != row.steps {
				t.Errorf("got the steps %s, want %s", got, row.steps)
			}
			if got := sources(plan); got != row.sources {
				t.Errorf("got the sources %s, want %s", got, row.sources)
			}
		})
	}
}

// TestWhoWaitsForInstances: the order of instances, and of the steps behind them.
func TestWhoWaitsForInstances(t *testing.T) {
	for _, row := range []struct {
		name string
		root flow.Node
		want string
	}{
		{"all at once", flow.Linear("f", each("e", "a"), step("z")), "e: a[0]:e a[1]:e a[2]:e z:a[0],a[1],a[2]"},
		{"in order", flow.Linear("f", each("e", "a", flow.InOrder()), step("z")), "e: a[0]:e a[1]:a[0] a[2]:a[1] z:a[0],a[1],a[2]"},
		{"two at once", flow.Linear("f", each("e", "a", flow.AtOnce(2)), step("z")), "e: a[0]:e a[1]:e a[2]:e z:a[0],a[1],a[2]"},
		{"a graph waits for what is gathered", flow.Graph("g", step("z needs:ys"), each("e", "a gives:y", flow.Gather("y", "ys"))), "e: a[0]:e a[1]:e a[2]:e z:a[0],a[1],a[2]"},
	} {
		plan := grow(t, row.root, map[string]int{"e": 3})
		var got []string
		for number, s := range plan.Steps() {
			var before []string
			for _, p := range plan.Predecessors(number) {
				before = append(before, plan.Step(p).Name())
			}
			got = append(got, s.Name()+":"+strings.Join(before, ","))
		}
		if got := strings.Join(got, " "); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
	}
}

func TestGrownTooLarge(t *testing.T) {
	plan, err := flow.Compile(each("e", "a"), "list")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]error{9_999: nil, 10_000: flow.ErrTooLarge, flow.MaxElements + 1: flow.ErrTooLarge, -1: flow.ErrTooLarge} {
		if _, err := plan.Grown(map[string]int{"e": n}); !errors.Is(err, want) {
			t.Errorf("%d elements: %v", n, err)
		}
	}
}

func TestInstantiated(t *testing.T) {
	plan, err := flow.Compile(flow.Linear("f", step("before"), flow.Each("o", "list", "list", each("e", "a")), step("odd[")), "list")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a[0][0]": "a", "a[9999][17]": "a", "e[3]": "e", "a[0]": "", "a[0][0][0]": "", "a": "", "e": "", "before[0]": "", "a[00][1]": "", "a[-1][1]": "",
		"a[0][0": "", "a[0] [0]": "", "odd[": "", "[0]": "", "": "", "b[0][0]": "",
	} {
		got := ""
		if s, ok := plan.Instantiated(name); ok {
			got = s.Name()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestNoInAnInstance: a decider in a body reaches no further than its instance.
func TestNoInAnInstance(t *testing.T) {
	body := flow.Graph("g", steps("a", "b", "c")...).Link("a", "b", flow.Decide("d", always)).Link("b", "c")
	root := flow.Linear("f", flow.Each("e", "list", "x", flow.Linear("l", body, step("d")), flow.InOrder()), step("z"))
	plan := grow(t, root, map[string]int{"e": 2})
	for i, want := range []string{"b[0] c[0] d[0]", "b[1] c[1] d[1]"} {
		var ignored []string
		for _, number := range plan.Ignored(i, flow.DepthAll) {
			ignored = append(ignored, plan.Step(number).Name())
		}
		if got := strings.Join(ignored, " "); got != want {
			t.Errorf("choice %d ignores %s, want %s", i, got, want)
		}
	}
}

// TestDefinitionOfEach: the definition describes the flow as written, including the inputs and
// gathered values of an each.
func TestDefinitionOfEach(t *testing.T) {
	define := func(elements int, options ...flow.EachOption) string {
		return grow(t, each("e", "a gives:y", options...), map[string]int{"e": elements}).Definition().Hash
	}
	plain := define(0)
	if define(3) != plain {
		t.Error("it changes when the flow grows")
	}
	if define(0, flow.Gather("y", "ys")) == plain || define(0, flow.Place("i")) == plain {
		t.Error("what is gathered, or given, is no part of it")
	}
}

func TestEachIsDrawn(t *testing.T) {
	root := flow.Linear("f", each("e", "a needs:x gives:y", flow.Gather("y", "ys"), flow.Place("i"), flow.AtOnce(3)), step("b needs:ys"))
	plan := grow(t, root, map[string]int{"e": 2})
	want := `f (linear)
  e (each)
    1. e: once for each x; 3 in parallel; gathers y as ys; list ← store
    body-e (linear)
      2. a: x ← an element of e; provides y
  3. b: ys ← y of each e
inputs: list
`
	if got := plan.Outline(); got != want {
		t.Errorf("the outline is\n%s", got)
	}
	for _, part := range []string{`subgraph f1["e"]`, `n0 -->|"x"| n1`, `n1 -->|"ys"| n2`} {
		if drawn := plan.Mermaid(); !strings.Contains(drawn, part) {
			t.Errorf("no %s in\n%s", part, drawn)
		}
	}
	if drawn := plan.Graphviz(); !strings.Contains(drawn, `n0 -> n1 [label="x"]`) {
		t.Errorf("drawn:\n%s", drawn)
	}
}

func TestMapAndReduceCheckTheirFunctions(t *testing.T) {
	for name, node := range map[string]flow.Node{
		"map":    flow.Map[int, int]("m", "list", "out", nil),
		"reduce": flow.Reduce[int, int]("r", "list", "out", 0, nil),
	} {
		if _, err := flow.Compile(node, "list"); !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), "it has no task") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := flow.Compile(flow.Map("m", "list", "out", func(context.Context, int) (int, error) { return 0, nil })); !errors.Is(err, flow.ErrMissing) {
		t.Errorf("without a list: %v", err)
	}
}

// TestManyInstances: growing must not cost the square of the instances, in
// which case this would take minutes.
func TestManyInstances(t *testing.T) {
	plan := grow(t, flow.Linear("f", each("e", "a needs:x gives:y; b needs:y", flow.Gather("y", "ys")), step("z needs:ys")), map[string]int{"e": 4_999})
	if plan.Len() != 2*4_999+2 {
		t.Errorf("it has %d steps", plan.Len())
	}
	if gathered := plan.Arguments(plan.Len() - 1)[0].Gathered; len(gathered.Items) != 4_999 || plan.Step(gathered.Items[4_998].From).Name() != "a[4998]" {
		t.Errorf("gathered are %s", fmt.Sprint(len(gathered.Items)))
	}
}
