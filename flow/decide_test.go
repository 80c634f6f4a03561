package flow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

func always(logbook.Values) (bool, error) { return true, nil }

func TestFaultsOfDeciders(t *testing.T) {
	graph := func(options ...flow.LinkOption) *flow.Flow {
		return flow.Graph("g", steps("a", "b")...).Link("a", "b", options...)
	}
	for _, row := range []struct {
		name string
		root *flow.Flow
		kind error
		text string
	}{
		{"no predicate", graph(flow.Decide("d", nil)), flow.ErrInvalid, "has no decider"},
		{"no name", graph(flow.Decide("", always)), flow.ErrInvalid, "decider is invalid: empty"},
		{"a depth alone", graph(flow.Reaching(flow.DepthAtom)), flow.ErrInvalid, "has the option Reaching without a decider"},
		{"no such depth", graph(flow.Decide("d", always), flow.Reaching(4)), flow.ErrInvalid, "has the unknown depth 4"},
		{"nothing to decide about", flow.Graph("g", step("a"), flow.Linear("b")).Link("a", "b", flow.Decide("d", always)), flow.ErrInvalid, "a flow without steps"},
		{"not there", graph().Link("a", "c", flow.Decide("d", always)), flow.ErrUnknownNode, `"c"`},
		{"not in a graph", flow.Linear("l", steps("a", "b")...).Link("a", "b", flow.Decide("d", always)), flow.ErrInvalid, "only a graph"},
		{"an alternative to nothing", graph(flow.Otherwise()), flow.ErrInvalid, `"b" is an alternative to "a", which has no condition`},
		{"an alternative with a decider", graph(flow.Otherwise(), flow.Decide("d", always)), flow.ErrInvalid, "has both a decider and Otherwise"},
		{"an alternative to itself", graph(flow.Otherwise()).Link("b", "a", flow.Otherwise()), flow.ErrCycle, `"b" is an alternative to itself`},
		{"an alternative to a bare alternative", flow.Graph("g", steps("a", "b", "c", "d")...).Link("a", "b", flow.Decide("d", always)).
			Link("b", "c", flow.Otherwise()).Link("c", "d", flow.Otherwise()), flow.ErrInvalid,
			`"d" is an alternative to "c", which has no condition except Otherwise, so both would run: give "c" a decider too, or make "d" an alternative to the same node as "c"`},
		{"an alternative to what is not there", graph().Link("c", "a", flow.Otherwise()), flow.ErrUnknownNode, `"c"`},
		{"an alternative to no such depth", graph(flow.Otherwise(), flow.Reaching(4)), flow.ErrInvalid, "depth 4"},
		{"backwards", graph().Link("b", "a", flow.Decide("d", always)), flow.ErrCycle, "a → b → a"},
	} {
		_, err := flow.Compile(row.root)
		if !errors.Is(err, row.kind) || err != nil && !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: got %v, want %v: …%s…", row.name, err, row.kind, row.text)
		}
	}
}

// TestDepths: the steps that a no before b ignores, in a graph in a flow.
func TestDepths(t *testing.T) {
	inner := flow.Graph("g", steps("a", "b", "c", "d", "beside")...)
	inner.Link("a", "b", flow.Decide("d", always)).Link("b", "c").Link("c", "d").Link("a", "beside")
	plan, err := flow.Compile(flow.Linear("f", flow.Linear("h", inner, step("after")), step("end")))
	if err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[flow.Depth]string{
		flow.DepthAtom: "b", flow.DepthNeighbors: "b c", flow.DepthFlow: "b c d", flow.DepthAll: "b c d after end",
	} {
		var names []string
		for _, number := range plan.Ignored(0, depth) {
			names = append(names, plan.Step(number).Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", depth, got, want)
		}
	}
}

func TestDecidersAreDrawn(t *testing.T) {
	graph := flow.Graph("g", step("a"), flow.Linear("l", steps("b", "c")...))
	plan, err := flow.Compile(graph.Link("a", "l", flow.Decide("cheap", always), flow.Reaching(flow.DepthFlow)))
	if err != nil {
		t.Fatal(err)
	}
	if outline := plan.Outline(); !strings.Contains(outline, "  l (linear): after a; only if cheap\n    2. b\n    3. c\n") {
		t.Errorf("the outline is:\n%s", outline)
	}
	if drawn := plan.Mermaid(); !strings.Contains(drawn, `n0 -->|"if cheap"| n1`) {
		t.Errorf("drawn:\n%s", drawn)
	}
}

// TestAlternativesAreDrawn: an alternative waits for what decides about the other node, and not for
// that node.
func TestAlternativesAreDrawn(t *testing.T) {
	graph := flow.Graph("g", steps("c", "b", "a")...).Link("b", "c", flow.Otherwise(), flow.Reaching(flow.DepthAtom)).Link("a", "b", flow.Decide("cheap", always))
	plan, err := flow.Compile(graph)
	if err != nil {
		t.Fatal(err)
	}
	if outline := plan.Outline(); !strings.Contains(outline, "  2. c: after a; only if not (cheap)\n") {
		t.Errorf("the outline is:\n%s", outline)
	}
	if drawn := plan.Mermaid(); !strings.Contains(drawn, `n0 -->|"if not (cheap)"| n`) {
		t.Errorf("drawn:\n%s", drawn)
	}
	for number, step := range plan.Steps() {
		if before := plan.Predecessors(number); step.Name() != "a" && (len(before) != 1 || before[0] != 0) {
			t.Errorf("%s waits for %v", step.Name(), before)
		}
	}
	plain, err := flow.Compile(flow.Graph("g", steps("c", "b", "a")...).Link("a", "c", flow.Decide("not (cheap)", always), flow.Reaching(flow.DepthAtom)).Link("a", "b", flow.Decide("cheap", always)))
	if err != nil || plain.Definition().Hash == plan.Definition().Hash {
		t.Errorf("an alternative has the definition of a decider, %v", err)
	}
}

func TestPanicsOfDecidersAreErrors(t *testing.T) {
	graph := flow.Graph("g", steps("a", "b")...).Link("a", "b", flow.Decide("d", func(logbook.Values) (bool, error) { panic("aargh") }))
	plan, err := flow.Compile(graph)
	if err != nil {
		t.Fatal(err)
	}
	var caught *flow.PanicError
	if yes, err := plan.Choices()[0].Deciders[0].Ask(flow.Found{}); yes || !errors.As(err, &caught) {
		t.Errorf("got %v and %v", yes, err)
	}
}

// TestManyDeciders: they must not cost the square of their number, in which
// case this would need gigabytes.
func TestManyDeciders(t *testing.T) {
	const count = 9_000
	graph := flow.Graph("g")
	for i := range count {
		graph.Add(step(fmt.Sprint("s", i)))
		if i > 0 {
			graph.Link(fmt.Sprint("s", i-1), fmt.Sprint("s", i), flow.Decide("d", always), flow.Reaching(flow.DepthAtom))
		}
	}
	plan, err := flow.Compile(graph)
	if err != nil || len(plan.Choices()) != count-1 {
		t.Fatalf("got %v", err)
	}
}

// TestDepthsReachFlows: a flow in the graph that waits is ignored with all its
// steps, at its own depth as a step is.
func TestDepthsReachFlows(t *testing.T) {
	graph := flow.Graph("g", append(steps("g1", "g2", "g3", "g4"), flow.Linear("sub", steps("g11", "g12")...))...)
	graph.Link("g1", "g2", flow.Decide("d", always)).Link("g2", "sub").Link("g2", "g3").Link("g3", "g4").Link("g1", "sub")
	plan, err := flow.Compile(graph)
	if err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[flow.Depth]string{flow.DepthAtom: "g2", flow.DepthNeighbors: "g11 g12 g2 g3", flow.DepthFlow: "g11 g12 g2 g3 g4"} {
		var names []string
		for _, number := range plan.Ignored(0, depth) {
			names = append(names, plan.Step(number).Name())
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", depth, got, want)
		}
	}
}
