package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// nothing is a task without cost, so that the benchmark measures the engine.
type nothing struct{}

func (nothing) Execute(context.Context, *flow.Call) (any, error) { return nil, nil }

// acceptance is a journal that stores nothing and acknowledges immediately.
type acceptance struct{}

func (a *acceptance) Record(logbook.Update) <-chan error {
	done := make(chan error, 1)
	done <- nil
	return done
}

func row(name string, n int) []flow.Node {
	steps := make([]flow.Node, n)
	for i := range steps {
		steps[i] = flow.NewStep(fmt.Sprintf("%s%d", name, i), nothing{})
	}
	return steps
}

func linear(n int) flow.Node    { return flow.Linear("f", row("s", n)...) }
func unordered(n int) flow.Node { return flow.Unordered("f", row("s", n)...) }

// grid is n layers of n steps, each layer behind the whole one before it.
func grid(n int) flow.Node {
	layers := make([]flow.Node, n)
	for i := range layers {
		layers[i] = flow.Unordered(fmt.Sprintf("l%d", i), row(fmt.Sprintf("s%d.", i), n)...)
	}
	return flow.Linear("f", layers...)
}

// mesh is a graph of n by n steps, each waiting for its left and upper neighbours.
func mesh(n int) flow.Node {
	graph := flow.Graph("f")
	for y := range n {
		for x := range n {
			name := func(x, y int) string { return fmt.Sprintf("s%d.%d", x, y) }
			var options []flow.StepOption
			if x > 0 {
				options = append(options, flow.Requires(name(x-1, y)))
			}
			if y > 0 {
				options = append(options, flow.Requires(name(x, y-1)))
			}
			graph.Add(flow.NewStep(name(x, y), nothing{}, append(options, flow.Provides(name(x, y)))...))
		}
	}
	return graph
}

// diamonds is a chain of n steps in threes: one, two in parallel, and the next one behind
// both.
func diamonds(n int) flow.Node {
	chain := flow.Linear("f")
	for i := 0; i < n; i += 3 {
		chain.Add(flow.NewStep(fmt.Sprintf("s%d", i), nothing{}))
		if sides := row(fmt.Sprintf("s%d.", i), min(2, n-i-1)); len(sides) > 0 {
			chain.Add(flow.Unordered(fmt.Sprintf("u%d", i), sides...))
		}
	}
	return chain
}

// gather is a graph of n steps and one that waits for all of them.
func gather(n int) flow.Node {
	graph, names := flow.Graph("f"), make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
		graph.Add(flow.NewStep(names[i], nothing{}, flow.Provides(names[i])))
	}
	return graph.Add(flow.NewStep("last", nothing{}, flow.Requires(names...)))
}

func BenchmarkRun(b *testing.B) {
	used, _ := random(100, 10, 1)
	for _, bench := range []struct {
		name string
		root flow.Node
	}{
		{"linear/3", linear(3)}, {"linear/100", linear(100)}, {"linear/10000", linear(10_000)},
		{"unordered/100", unordered(100)}, {"unordered/10000", unordered(10_000)},
		{"grid/10x10", grid(10)}, {"grid/100x100", grid(100)},
		{"mesh/10x10", mesh(10)}, {"mesh/100x100", mesh(100)},
		{"diamonds/100", diamonds(100)}, {"diamonds/10000", diamonds(10_000)}, {"random/100", used},
	} {
		b.Run(bench.name, func(b *testing.B) {
			plan, err := flow.Compile(bench.root)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: newDetail(), Journal: &acceptance{}})
				if err != nil || end.State != logbook.FlowSuccess {
					b.Fatal(end.State, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(plan.Len()), "ns/step")
		})
	}
}

// undoable costs nothing either, in both directions.
type undoable struct{ nothing }

func (undoable) Revert(context.Context, *flow.Call) error { return nil }

// BenchmarkRevert executes and reverts a row of steps whose last one fails; and, as
// resume, reverts it as it was left before the first revert.
func BenchmarkRevert(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		steps := make([]flow.Node, n)
		for i := range steps[1:] {
			steps[i] = flow.NewStep(fmt.Sprintf("s%d", i), undoable{})
		}
		steps[n-1] = flow.NewStep("last", evil{execute: errCrash})
		for _, root := range []*flow.Flow{flow.Linear("linear", steps...), flow.Linear("unordered", flow.Unordered("u", steps[:n-1]...), steps[n-1])} {
			plan, err := flow.Compile(root)
			if err != nil {
				b.Fatal(err)
			}
			j := newJournal(newDetail())
			// With one worker each outcome is an update, after the first mark.
			if _, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: j.snapshot(), Journal: j, Workers: 1}); err != nil {
				b.Fatal(err)
			}
			left := newJournal(newDetail())
			for _, update := range j.trace()[:n+1] {
				if err := left.apply(update); err != nil {
					b.Fatal(err)
				}
			}
			for name, detail := range map[string]logbook.FlowDetail{"whole": newDetail(), "resume": left.snapshot()} {
				b.Run(fmt.Sprintf("%s/%s/%d", root.Name(), name, n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: detail, Journal: &acceptance{}, Token: logbook.Token{Index: 1}})
						if err != nil || end.State != logbook.FlowReverted {
							b.Fatal(end.State, err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
				})
			}
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for name, root := range map[string]flow.Node{
		"linear/10000": linear(10_000), "unordered/1000": unordered(1_000), "unordered/10000": unordered(10_000),
		"mesh/100x100": mesh(100), "gather/999": gather(999), "gather/9999": gather(9_999),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := flow.Compile(root); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEach runs a flow whose list sets its size. The cost of growing is the difference
// between its time per step and the time per step of a flow without an each.
func BenchmarkEach(b *testing.B) {
	for _, n := range []int{100, 1_000, 9_000} {
		b.Run(fmt.Sprintf("%d elements", n), func(b *testing.B) {
			root := flow.Linear("f", flow.Each("e", "list", "x", flow.NewStep("s", nothing{}, flow.Requires("x"), flow.Provides("y")), flow.Gather("y", "ys")),
				flow.NewStep("last", nothing{}, flow.Requires("ys")))
			plan, err := flow.Compile(root, "list")
			if err != nil {
				b.Fatal(err)
			}
			store := logbook.Values{"list": json.RawMessage(ones(n))}
			b.ReportAllocs()
			for b.Loop() {
				end, err := engine.Run(context.Background(), engine.Options{Plan: plan, Detail: newDetail(), Journal: &acceptance{}, Store: store})
				if err != nil || end.State != logbook.FlowSuccess {
					b.Fatal(end.State, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/step")
		})
	}
}

// BenchmarkTurns runs an each with a limit of parallel elements, and without. ns/element shows whether the limit costs
// more for longer lists.
func BenchmarkTurns(b *testing.B) {
	for name, options := range map[string][]flow.EachOption{"all": nil, "8 at once": {flow.AtOnce(8)}} {
		root := flow.Each("e", "list", "x", flow.NewStep("a", nothing{}), options...)
		plan, err := flow.Compile(root, "list")
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{100, 1_000, 9_000} {
			list, err := json.Marshal(make([]int, n))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s, %d elements", name, n), func(b *testing.B) {
				for b.Loop() {
					end, err := engine.Run(b.Context(), engine.Options{Plan: plan, Detail: newDetail(), Store: logbook.Values{"list": list}, Journal: &acceptance{}, Workers: 8, Token: logbook.Token{Index: 1}})
					if err != nil || end.State != logbook.FlowSuccess {
						b.Fatalf("%s: %v", end.State, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
			})
		}
	}
}

// BenchmarkInnerValue reads a field of every element of a list, as the arguments of the steps of an each do.
func BenchmarkInnerValue(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		items := make([]map[string]int, n)
		for i := range items {
			items[i] = map[string]int{"price": i}
		}
		value, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			b.Fatal(err)
		}
		path := fmt.Sprintf("items.%d.price", n-1)
		b.Run(fmt.Sprintf("%d elements", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := flow.Inner("order", value, path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
