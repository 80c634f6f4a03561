package flow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

func definition(t testing.TB, root flow.Node) logbook.Definition {
	t.Helper()
	plan, err := flow.Compile(root, "input", "other")
	if err != nil {
		t.Fatal(err)
	}
	return plan.Definition()
}

func defined(t testing.TB, definition logbook.Definition) []logbook.DefinedStep {
	t.Helper()
	steps, err := definition.Steps()
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestCompare(t *testing.T) {
	a, b, c, d := stepOf("a"), stepOf("b"), stepOf("c"), stepOf("d")
	graph := func(options ...flow.LinkOption) *flow.Flow {
		return flow.Graph("g", stepOf("a"), stepOf("b")).Link("a", "b", options...)
	}
	yes := func(logbook.Values) (bool, error) { return true, nil }
	for _, row := range []struct {
		name     string
		old, new flow.Node
		want     string
	}{
		{"nothing", flow.Linear("f", a, b), flow.Linear("f", stepOf("a"), stepOf("b")), ""},
		{"the order in which steps are listed that wait for nothing", flow.Unordered("f", a, b), flow.Unordered("f", b, a), ""},
		{"a gate between the same steps", flow.Linear("f", flow.Unordered("u", a, b), c),
			flow.Linear("f", flow.Unordered("u", a, b), flow.Unordered("v", c, d)), `step "d" is new`},
		{"a step behind", flow.Linear("f", a), flow.Linear("f", a, b), `step "b" is new`},
		{"a step between", flow.Linear("f", a, c), flow.Linear("f", a, b, c), `step "b" is new; step "c" waits for other steps`},
		{"one that is gone", flow.Linear("f", a, b), flow.Linear("f", a), `step "b" is gone`},
		{"one under another name", flow.Linear("f", a), flow.Linear("f", b), `step "b" is new; step "a" is gone`},
		{"an order", flow.Linear("f", a, b), flow.Linear("f", b, a), `step "b" waits for other steps; step "a" waits for other steps`},
		{"a version", flow.Linear("f", stepOf("a", flow.Version("1"))), flow.Linear("f", stepOf("a", flow.Version("2"))), `step "a" has version "2", and had version "1"`},
		{"an argument", flow.Linear("f", stepOf("a", flow.Requires("input"))), flow.Linear("f", a), `step "a" requires, provides or injects something else`},
		{"where it comes from", flow.Linear("f", stepOf("a", flow.Requires("input"))),
			flow.Linear("f", stepOf("a", flow.Requires("input"), flow.Rebind(map[string]string{"input": "other"}))), `step "a" requires, provides or injects something else`},
		{"an argument that is optional now", flow.Linear("f", stepOf("a", flow.Requires("input"))), flow.Linear("f", stepOf("a", flow.Optional("input"))),
			`step "a" requires, provides or injects something else`},
		{"a provision", flow.Linear("f", stepOf("a", flow.Provides("x"))), flow.Linear("f", stepOf("a", flow.ProvidesFields("x"))),
			`step "a" requires, provides or injects something else`},
		{"a value of its own", flow.Linear("f", stepOf("a", flow.Requires("input"), flow.Inject(map[string]any{"input": 1}))),
			flow.Linear("f", stepOf("a", flow.Requires("input"), flow.Inject(map[string]any{"input": 2}))), `step "a" requires, provides or injects something else`},
		{"a value of its own, and none", flow.Linear("f", stepOf("a", flow.Requires("input"), flow.Inject(map[string]any{"input": 1}))),
			flow.Linear("f", stepOf("a", flow.Requires("input"))), `step "a" requires, provides or injects something else`},
		{"at most once", flow.Linear("f", a), flow.Linear("f", stepOf("a", flow.AtMostOnce())), `step "a" requires, provides or injects something else`},
		{"a point of no return", flow.Linear("f", a), flow.Linear("f", stepOf("a", flow.PointOfNoReturn())), ""},
		{"a retry around", flow.Linear("f", a), flow.Linear("f", stepOf("a")).WithRetry(flow.Times("r", 2)), `retry "r" is new; step "a" waits for other steps`},
		{"a retry of a step's name", flow.Linear("f", a, b), flow.Linear("f", stepOf("b")).WithRetry(flow.Times("a", 2)), `"a" is a retry, and was a step`},
		{"a decider", graph(), graph(flow.Decide("d", yes)), `step "b" waits for other steps`},
		{"its name", graph(flow.Decide("d", yes)), graph(flow.Decide("e", yes)), `step "b" waits for other steps`},
		{"its depth", graph(flow.Decide("d", yes)), graph(flow.Decide("d", yes), flow.Reaching(flow.DepthAtom)), `step "b" waits for other steps`},
	} {
		t.Run(row.name, func(t *testing.T) {
			old, current := definition(t, row.old), definition(t, row.new)
			differences := flow.Compare(defined(t, old), defined(t, current))
			sentences := make([]string, len(differences))
			for i, difference := range differences {
				sentences[i] = difference.String()
			}
			if got := strings.Join(sentences, "; "); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			if len(differences) > 0 && old.Hash == current.Hash {
				t.Error("the definitions have the same hash")
			}
		})
	}
}

// The longest flow has its steps kept, as long as their names are no essays.
func TestLongestDefinitionFits(t *testing.T) {
	steps := make([]flow.Node, logbook.MaxLimits.Steps)
	for i := range steps {
		var options []flow.StepOption
		if i > 0 {
			options = append(options, flow.Requires(fmt.Sprintf("result of %d", i-1)))
		}
		steps[i] = stepOf(fmt.Sprintf("step-%d", i), append(options, flow.Provides(fmt.Sprintf("result of %d", i)))...)
	}
	d := definition(t, flow.Linear("f", steps...))
	if len(d.Packed) > logbook.MaxLimits.Value {
		t.Errorf("it takes %d bytes", len(d.Packed))
	}
	if unpacked := defined(t, d); len(unpacked) != len(steps) || unpacked[17].Name != "step-17" {
		t.Errorf("%d steps are %d when unpacked", len(steps), len(unpacked))
	}
}

func TestDefinitionsThatAreNone(t *testing.T) {
	whole := definition(t, flow.Linear("f", stepOf("a")))
	for _, packed := range [][]byte{{'x'}, {'d', 1, 2, 3}, []byte("p{}"), whole.Packed[:len(whole.Packed)-2]} {
		if steps, err := (&logbook.Definition{Packed: packed}).Steps(); err == nil {
			t.Errorf("%q are %v", packed, steps)
		}
	}
	if steps := defined(t, logbook.Definition{Hash: whole.Hash}); steps != nil {
		t.Errorf("a hash alone has steps: %v", steps)
	}
	if steps := defined(t, definition(t, flow.Linear("f"))); steps == nil || len(steps) != 0 {
		t.Errorf("a flow without steps has %v", steps)
	}
}

func BenchmarkDefinition(b *testing.B) {
	for _, n := range []int{10, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			steps := make([]flow.Node, n)
			for i := range steps {
				steps[i] = stepOf(fmt.Sprintf("step-%d", i))
			}
			plan, err := flow.Compile(flow.Linear("f", steps...))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				plan.Definition()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
		})
	}
}

func stepOf(name string, options ...flow.StepOption) *flow.Step {
	return flow.NewStep(name, idle{}, options...)
}
