package flow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// counted is a registry of one kind, whose flow takes its steps from its
// arguments, and counts how often it was built.
func counted(t *testing.T) (*flow.Registry, *int) {
	t.Helper()
	registry, built := flow.NewRegistry(), new(int)
	err := flow.Register(registry, "list", func(texts []string) (*flow.Flow, error) {
		*built++
		return flow.Linear("f", steps(texts...)...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return registry, built
}

func TestDetail(t *testing.T) {
	registry, _ := counted(t)
	for _, row := range []struct {
		name    string
		kind    string
		args    any
		store   logbook.Values
		targets []string
		want    []error
	}{
		{name: "fine", kind: "list", args: []string{"a needs:x gives:y", "b needs:y"}, store: logbook.Values{"x": json.RawMessage("1")}},
		{name: "fine as JSON", kind: "list", args: json.RawMessage(`["a"]`)},
		{name: "all that is wrong", kind: "list", args: []string{"a needs:x", "b needs:y,x"}, want: []error{flow.ErrMissing}},
		{name: "only what the targets need", kind: "list", args: []string{"a", "b needs:y"}, targets: []string{"a"}},
		{name: "a target that is none", kind: "list", args: []string{"a"}, targets: []string{"z"}, want: []error{flow.ErrUnknownNode}},
		{name: "a kind that nobody has", kind: "other", want: []error{flow.ErrUnknownKind}},
		{name: "arguments that the factory refuses", kind: "list", args: 7, want: []error{flow.ErrFactory}},
		{name: "arguments that are no JSON", kind: "list", args: func() {}, want: []error{flow.ErrInvalid}},
		{name: "", kind: "list", args: []string{"a"}, want: []error{logbook.ErrInvalid}},
	} {
		t.Run(row.name, func(t *testing.T) {
			detail, err := registry.Detail(row.name, row.kind, row.args, row.store, row.targets...)
			for _, want := range row.want {
				if !errors.Is(err, want) {
					t.Errorf("%v is no %v", err, want)
				}
			}
			if (err == nil) != (len(row.want) == 0) || err == nil && (detail.ID.IsZero() || detail.Factory.Name != row.kind) {
				t.Errorf("%+v, %v", detail, err)
			}
		})
	}
}

func TestChecker(t *testing.T) {
	registry, built := counted(t)
	checker := flow.NewChecker(registry, logbook.MaxLimits)
	detail := logbook.FlowDetail{Name: "f", Factory: logbook.Factory{Name: "list", Args: json.RawMessage(`["a needs:x", "b needs:y,z"]`)},
		Store: logbook.Values{"x": json.RawMessage("1")}}
	err := checker.Check(&detail, nil)
	if !errors.Is(err, logbook.ErrInvalid) || !strings.Contains(err.Error(), `"y"`) || !strings.Contains(err.Error(), `"z"`) {
		t.Errorf("%v does not name all faults", err)
	}
	job := logbook.Values{"x": json.RawMessage("2"), "y": json.RawMessage("1"), "z": json.RawMessage("1")}
	for range 3 {
		if err := checker.Check(&detail, job); err != nil {
			t.Errorf("with what the job brings: %v", err)
		}
	}
	if *built != 2 {
		t.Errorf("it was built %d times: once with faults, and once without", *built)
	}
	if err := checker.Check(&detail, nil); err == nil {
		t.Error("what has passed with the job's values passes without them")
	}
	detail.Factory.Name = "other"
	if err := checker.Check(&detail, nil); err != nil {
		t.Errorf("a kind that is not known here: %v", err)
	}
}

// Whatever the number of posted flows, a checker remembers at most maxPassed.
func TestCheckerForgets(t *testing.T) {
	registry, built := counted(t)
	checker := flow.NewChecker(registry, logbook.MaxLimits)
	const flows = 2_500
	for round := range 2 {
		for i := range flows {
			detail := logbook.FlowDetail{Name: "f", Factory: logbook.Factory{Name: "list", Args: json.RawMessage(fmt.Sprintf(`["a%d"]`, i))}}
			if err := checker.Check(&detail, nil); err != nil {
				t.Fatal(round, err)
			}
		}
	}
	if *built != 2*flows {
		t.Errorf("%d flows were built %d times in two rounds, as if all had been remembered", flows, *built)
	}
}
