package flow_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
)

func TestFaultsOfIgnoredFailures(t *testing.T) {
	ignoring := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, idle{}, options...)
	}
	each := func(options ...flow.EachOption) *flow.Flow {
		return flow.Each("e", "list", "x", step("a gives:y"), options...)
	}
	for _, row := range []struct {
		name string
		root flow.Node
		kind error
		text string
	}{
		{"two defaults", ignoring("a", flow.IgnoreFailure(1, 2)), flow.ErrInvalid, "2 default results"},
		{"no JSON", ignoring("a", flow.IgnoreFailure(func() {})), flow.ErrInvalid, "its default result"},
		{"too large", ignoring("a", flow.IgnoreFailure(strings.Repeat("x", 2<<20))), flow.ErrInvalid, "default result"},
		{"without a field", ignoring("a", flow.ProvidesFields("x"), flow.IgnoreFailure(map[string]int{"y": 1})), flow.ErrInvalid, `no field "x"`},
		{"no object", ignoring("a", flow.ProvidesFields("x"), flow.IgnoreFailure(nil)), flow.ErrInvalid, `no field "x"`},
		{"a step with the name of a failure", flow.Linear("f", ignoring("a", flow.IgnoreFailure()), step("a.failure")), flow.ErrDuplicate, "failure of step"},
		{"a failure that is not ignored", flow.Linear("f", ignoring("a"), ignoring("b", flow.Requires("a.failure"))), flow.ErrMissing, `"a.failure"`},
		{"a point of no return", ignoring("a", flow.PointOfNoReturn(), flow.IgnoreFailure()), flow.ErrInvalid, "its failure is ignored, and it is a point of no return"},
		{"a point of no return in an element that may fail", flow.Each("e", "list", "x", ignoring("a", flow.PointOfNoReturn()), flow.MaxFailures(1)), flow.ErrInvalid, "a point of no return in"},
		{"fewer than no failed elements", each(flow.MaxFailures(-1)), flow.ErrInvalid, "flow.MaxFailures is out of range: -1"},
		{"more than all", each(flow.MaxFailurePercent(101)), flow.ErrInvalid, "must be 0 to 100, not 101"},
		{"a list of no failures", each(flow.Failures("f")), flow.ErrInvalid, "no maximum of failures"},
		{"a list requires a name", each(flow.MaxFailures(1), flow.Failures("")), flow.ErrInvalid, "requires a name"},
		{"two lists of one name", each(flow.MaxFailures(1), flow.Failures("f"), flow.Gather("y", "f")), flow.ErrInvalid, "for a gathered list and for the ignored failures"},
	} {
		_, err := flow.Compile(row.root, "list")
		if !errors.Is(err, row.kind) || err != nil && !strings.Contains(err.Error(), row.text) {
			t.Errorf("%s: got %v, want %v: …%s…", row.name, err, row.kind, row.text)
		}
	}
}

// TestFailureOrdersAGraph: a step that requires the failure of another comes after it.
func TestFailureOrdersAGraph(t *testing.T) {
	plan, err := flow.Compile(flow.Graph("g", flow.NewStep("b", idle{}, flow.Requires("a.failure")), flow.NewStep("a", idle{}, flow.IgnoreFailure())))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := plan.Find("a")
	last, _ := plan.Find("b")
	if before := plan.Predecessors(last); len(before) != 1 || before[0] != first {
		t.Errorf("b waits for %v, and a is %d", before, first)
	}
}
