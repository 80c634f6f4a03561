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

// names are the names of a plan's steps, in order.
func names(plan *flow.Plan) string {
	var list []string
	for _, s := range plan.Steps() {
		list = append(list, s.Name())
	}
	return strings.Join(list, " ")
}

func TestTargets(t *testing.T) {
	two := func() *flow.Flow { return flow.Graph("g", steps("a", "b", "c", "d")...).Link("a", "b") }
	for _, row := range []struct {
		name    string
		root    flow.Node
		targets string
		want    string
	}{
		{"one branch of a graph", two().Link("b", "c").Link("b", "d"), "c", "a b c"},
		{"several", two(), "b d", "a d b"},
		{"one twice", two(), "b b", "a b"},
		{"the last is everything", flow.Linear("f", steps("a", "b", "c")...), "c", "a b c"},
		{"a step alone", step("a"), "a", "a"},
		{"siblings are left out", flow.Linear("f", flow.Unordered("u", steps("a", "b")...), step("c")), "b", "b"},
		{"what is behind a flow waits for all of it", flow.Linear("f", flow.Unordered("u", steps("a", "b")...), step("c")), "c", "a b c"},
		{"a linear flow to its middle", flow.Linear("f", flow.Linear("g", steps("a", "b", "c")...), step("d")), "b", "a b"},
		{"with its retry", flow.Linear("f", step("a"), flow.Unordered("g", steps("b", "c")...).WithRetry(flow.Times("r", 2))), "c", "a r c"},
		{"without a retry beside", flow.Unordered("f", step("a"), flow.Linear("g", step("b")).WithRetry(flow.Times("r", 2))), "a", "a"},
		{"with the retry around", flow.Unordered("f", flow.Linear("h", step("a")).WithRetry(flow.Times("q", 2)),
			flow.Linear("g", step("b")).WithRetry(flow.Times("r", 2))).WithRetry(flow.Times("p", 2)), "b", "p r b"},
		{"a retry", flow.Linear("g", step("b")).WithRetry(flow.Times("r", 2)), "r", "r"},
	} {
		t.Run(row.name, func(t *testing.T) {
			whole, err := flow.Compile(row.root)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := whole.Targeted(strings.Fields(row.targets)...)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(plan); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
			for _, scope := range plan.Scopes() {
				if !plan.Step(scope.Retry).IsRetry() || scope.Parent >= 0 && !plan.Scopes()[scope.Parent].Holds(scope.Retry) {
					t.Errorf("there is the scope %+v", scope)
				}
			}
		})
	}
}

func TestTargetsThatAreNot(t *testing.T) {
	plan, err := flow.Compile(flow.Linear("f", steps("a", "b")...))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		targets []string
		kind    error
		text    string
	}{
		{[]string{"a", "x"}, flow.ErrUnknownNode, `"x"`},
		{[]string{"f"}, flow.ErrUnknownNode, `"f"`},
		{slices.Repeat([]string{"a"}, logbook.MaxTargets+1), flow.ErrTooLarge, "101 targets"},
	} {
		if _, err := plan.Targeted(row.targets...); !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.text) {
			t.Errorf("%v: got %v", row.targets, err)
		}
	}
	if same, err := plan.Targeted(); err != nil || same != plan {
		t.Errorf("without targets: %v, %v", same, err)
	}
	if _, err := plan.Targeted(slices.Repeat([]string{"a"}, logbook.MaxTargets)...); err != nil {
		t.Error(err)
	}
}

// TestTargetsNeedLess: excluded steps need no inputs and require no results. Faults of the
// whole flow are still reported.
func TestTargetsNeedLess(t *testing.T) {
	root := flow.Graph("g", step("a gives:x"), step("b needs:x"), step("c needs:missing"), flow.Linear("l", steps("d", "e needs:x")...))
	plan, err := flow.Compilation{Targets: []string{"d", "b"}}.Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(plan)+" "+sources(plan), "a b d b.x=a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if plan, err = plan.Targeted("d"); err != nil || len(plan.Consumed(0)) != 0 || fmt.Sprint(plan.Targets()) != "[d]" {
		t.Errorf("for d alone: %v", err)
	}
	if _, err := (flow.Compilation{Targets: []string{"c"}}).Compile(root); !errors.Is(err, flow.ErrMissing) {
		t.Errorf("for c: %v", err)
	}
	if _, err := (flow.Compilation{Targets: []string{"a"}}).Compile(flow.Graph("g", steps("a", "b", "b")...)); !errors.Is(err, flow.ErrDuplicate) {
		t.Errorf("two of a name: %v", err)
	}
}

// TestChoicesOfTargets: deciders decide about the remaining steps only.
func TestChoicesOfTargets(t *testing.T) {
	inner := flow.Graph("g", step("a"), flow.Linear("l", steps("b", "c")...), step("d"), step("e"))
	inner.Link("a", "l", flow.Decide("yes", always)).Link("l", "d").Link("a", "e", flow.Decide("other", always))
	whole, err := flow.Compile(flow.Linear("f", step("first"), inner, step("last")))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := whole.Targeted("b")
	if err != nil || names(plan) != "first a b" || len(plan.Choices()) != 1 {
		t.Fatalf("got %v: %s with %d choices", err, names(plan), len(plan.Choices()))
	}
	choice := plan.Choices()[0]
	if choice.Target != (flow.Steps{First: 2, End: 3}) || !slices.Equal(choice.Deciders[0].From, []flow.Steps{{First: 1, End: 2}}) {
		t.Errorf("the choice is %+v", choice)
	}
	for depth := flow.DepthAll; depth <= flow.DepthAtom; depth++ {
		if got := plan.Ignored(0, depth); !slices.Equal(got, []int{2}) {
			t.Errorf("%s ignores %v", depth, got)
		}
	}
	if plan, err := whole.Targeted("first"); err != nil || len(plan.Choices()) != 0 {
		t.Errorf("before all choices there are %d: %v", len(plan.Choices()), err)
	}
	if outline := plan.Outline(); strings.Contains(outline, "last") || !strings.Contains(outline, "    l (linear): after a; only if yes\n      3. b") {
		t.Errorf("the outline is:\n%s", outline)
	}
	if drawn := plan.Mermaid(); strings.Contains(drawn, "last") || !strings.Contains(drawn, `n1 -->|"if yes"| n2`) {
		t.Errorf("drawn:\n%s", drawn)
	}
}
