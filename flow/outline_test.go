package flow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/flow"
)

// release is a graph whose written order is not its order of execution.
func release() *flow.Flow {
	worker := func(name string, options ...flow.StepOption) *flow.Step {
		return flow.NewStep(name, flow.OnWorker(flow.WorkerStep{Type: "build", Revert: "clean", Labels: []string{"gpu", "{arch}"}, Patience: time.Minute}),
			append(options, flow.Requires("arch"))...)
	}
	delivery := flow.Graph("delivery", step("unpack"), step("count")).Link("unpack", "count")
	graph := flow.Graph("release", step("publish"), delivery, worker("build"), worker("docs", flow.SameWorkerAs("build")), step("lint"),
		flow.NewStep("tell", idle{}, flow.IgnoreFailure()), step("end"), flow.NewStep("switch", idle{}, flow.PointOfNoReturn()))
	for _, link := range []string{"build docs", "docs publish", "publish switch", "publish delivery", "lint tell", "delivery end"} {
		from, to, _ := strings.Cut(link, " ")
		graph.Link(from, to)
	}
	return graph.Link("lint", "publish", flow.Decide("clean", always), flow.Reaching(flow.DepthNeighbors)).
		Link("tell", "delivery", flow.Decide("told", always), flow.Reaching(flow.DepthAll)).
		Link("lint", "delivery", flow.Decide("linted", always), flow.Reaching(flow.DepthFlow))
}

// TestOutlineIsInReadingOrder: parts are listed by level, each with all that it waits for.
func TestOutlineIsInReadingOrder(t *testing.T) {
	plan, err := flow.Compile(release(), "arch")
	if err != nil {
		t.Fatal(err)
	}
	const worker = "arch ← store; can be undone; needs a worker of type build with labels gpu, {arch}; its revert needs a worker of type clean; "
	want := `release (graph)
  1. build: ` + worker + `fails after 1m without a worker
  1. lint
  2. docs: after build; ` + worker + `needs the worker of build; fails after 1m without a worker
  2. tell: after lint; its failure is ignored
  3. publish: after docs, lint; only if clean; if not, the steps that wait directly for publish are skipped too
  delivery (graph): after publish, lint, tell; only if told (if not, all steps that wait for delivery are skipped too) and linted (if not, all steps of the same flow that wait for delivery are skipped too)
    4. unpack
    5. count: after unpack
  4. switch: after publish; point of no return
  6. end: after delivery
steps with the same number do not wait for each other
inputs: arch
`
	if got := plan.Outline(); got != want {
		t.Errorf("the outline is\n%s\nwant\n%s", got, want)
	}
}

// TestLevels: no step waits for a step of its own level or of a higher one, and steps above the first
// level wait for a step of the level below.
func TestLevels(t *testing.T) {
	plan, err := flow.Compile(release(), "arch")
	if err != nil {
		t.Fatal(err)
	}
	levels := map[int]int{}
	for _, entry := range plan.Entries() {
		if entry.Part.Step != nil {
			levels[entry.Part.First] = entry.Level
		}
	}
	if len(levels) != plan.Len() {
		t.Fatalf("%d of %d steps have a level", len(levels), plan.Len())
	}
	for step := range plan.Len() {
		highest := 0
		for _, before := range plan.Predecessors(step) {
			highest = max(highest, levels[before])
		}
		if levels[step] != highest+1 {
			t.Errorf("step %s: got level %d, want %d", fmt.Sprint(plan.Step(step).Name()), levels[step], highest+1)
		}
	}
}
