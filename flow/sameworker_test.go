package flow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
)

// onWorker is a step of workers that runs on the same worker as another, if that has a name.
func onWorker(name, as string) *flow.Step {
	options := []flow.StepOption{}
	if as != "" {
		options = append(options, flow.SameWorkerAs(as))
	}
	return flow.NewStep(name, flow.OnWorker(flow.WorkerStep{Type: "t"}), options...)
}

func TestSameWorkerAs(t *testing.T) {
	const before = "does not always come first"
	in := func(name string, nodes ...flow.Node) *flow.Flow {
		return flow.Each(name, "list", "x", flow.Linear("body-"+name, nodes...))
	}
	for _, row := range []struct {
		name  string
		root  flow.Node
		fault string
		pairs string // of steps and those on whose workers they run
	}{
		{"the step before", flow.Linear("f", onWorker("a", ""), onWorker("b", "a")), "", "b=a"},
		{"far before", flow.Linear("f", onWorker("a", ""), step("between"), onWorker("b", "a"), onWorker("c", "a")), "", "b=a c=a"},
		{"by a link", flow.Graph("f", onWorker("b", "a"), onWorker("a", "")).Link("a", "b"), "", "b=a"},
		{"out of a nested flow", flow.Linear("f", flow.Unordered("u", onWorker("a", ""), step("z")), onWorker("b", "a")), "", "b=a"},
		{"no such step", flow.Linear("f", onWorker("b", "a")), `step "b" runs on the same worker as "a", which is not in the flow`, ""},
		{"no name", flow.Linear("f", flow.NewStep("b", flow.OnWorker(flow.WorkerStep{Type: "t"}), flow.SameWorkerAs(""))), "the name of the step on the same worker is empty", ""},
		{"itself", flow.Linear("f", onWorker("b", "b")), before, ""},
		{"a later step", flow.Linear("f", onWorker("b", "a"), onWorker("a", "")), before, ""},
		{"each other", flow.Linear("f", onWorker("b", "a"), onWorker("a", "b")), before, ""},
		{"side by side", flow.Unordered("f", onWorker("b", "a"), onWorker("a", "")), before, ""},
		{"not of workers", flow.Linear("f", step("a"), onWorker("b", "a")), `as "a", which is not a worker step`, ""},
		{"itself not of workers", flow.Linear("f", onWorker("a", ""), flow.NewStep("b", idle{}, flow.SameWorkerAs("a"))),
			`step "b" runs on the same worker as "a", and is not a worker step itself`, ""},
		{"in one instance", in("e", onWorker("a", ""), onWorker("b", "a")), "", "b[0]=a[0] b[1]=a[1]"},
		{"into the instances", flow.Linear("f", onWorker("a", ""), in("e", onWorker("b", "a"))), "", "b[0]=a b[1]=a"},
		{"out of instances", flow.Linear("f", in("e", onWorker("a", "")), onWorker("b", "a")), "only steps of the same loop can name it", ""},
		{"between instances", flow.Linear("f", in("e", onWorker("a", "")), in("g", onWorker("b", "a"))), "only steps of the same loop can name it", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan, err := flow.Compile(row.root, "list")
			if row.fault != "" {
				if !errors.Is(err, flow.ErrInvalid) || !strings.Contains(err.Error(), row.fault) {
					t.Errorf("compiled to %v, want %q", err, row.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			grown, err := plan.Grown(map[string]int{"e": 2})
			if err != nil {
				t.Fatal(err)
			}
			var pairs []string
			for number, step := range grown.Steps() {
				if earlier, bound := grown.SameWorkerAs(number); bound {
					pairs = append(pairs, fmt.Sprintf("%s=%s", step.Name(), grown.Step(earlier).Name()))
				}
			}
			slices.Sort(pairs)
			if got := strings.Join(pairs, " "); got != row.pairs {
				t.Errorf("the pairs are %s, want %s", got, row.pairs)
			}
		})
	}
}
