package engine_test

import (
	"context"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
)

// TestCostPerStep: a step of a large flow allocates no more than one of a small flow, whatever
// the shape: a list that is rebuilt for each step would show here. The benchmarks measure the
// time, on a quiet machine.
func TestCostPerStep(t *testing.T) {
	for _, row := range []struct {
		name         string
		small, large flow.Node
	}{
		{"linear", linear(100), linear(5_000)},
		{"unordered", unordered(100), unordered(5_000)},
		{"layers", grid(10), grid(70)},
		{"mesh", mesh(10), mesh(70)},
		{"diamonds", diamonds(100), diamonds(5_000)},
	} {
		perStep := func(root flow.Node) float64 {
			plan := compile(t, root)
			return testing.AllocsPerRun(2, func() {
				options := engine.Options{Plan: plan, Detail: newDetail(), Journal: &acceptance{}}
				if _, err := engine.Run(context.Background(), options); err != nil {
					t.Fatal(err)
				}
			}) / float64(plan.Len())
		}
		small, large := perStep(row.small), perStep(row.large)
		if large > 1.3*small {
			t.Errorf("%s: %.1f allocations for a step of a large flow, and %.1f of a small one", row.name, large, small)
		}
	}
}
