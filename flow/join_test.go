package flow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow"
)

// decided is a graph of steps, with a decider before each step that has a depth: "FROM TO DEPTH".
// "FROM TO" is a link without one.
func decided(name string, nodes []flow.Node, links ...string) *flow.Flow {
	graph := flow.Graph(name, nodes...)
	for _, link := range links {
		words := strings.Fields(link)
		var options []flow.LinkOption
		for depth := flow.DepthAll; depth <= flow.DepthAtom && len(words) > 2; depth++ {
			if depth.String() == words[2] {
				options = append(options, flow.Decide("d", always), flow.Reaching(depth))
			}
		}
		graph.Link(words[0], words[1], options...)
	}
	return graph
}

// TestJoins: which steps provide an argument, as a plan shows them.
func TestJoins(t *testing.T) {
	for _, row := range []struct {
		name   string
		root   flow.Node
		inputs []string
		step   string
		want   string // the source of its x
	}{
		{"two ways", decided("f", steps("a", "b gives:x", "c gives:x", "d needs:x"), "a b all", "a c all"), nil, "d", "b.x or c.x"},
		{"two ways that skip only themselves", decided("f", steps("a", "b gives:x", "c gives:x", "d needs:x"), "a b atom", "a c atom"), nil, "d", "b.x or c.x"},
		{"links to both", decided("f", steps("a", "b gives:x", "c gives:x", "d needs:x"), "a b all", "a c all", "b d", "c d"), nil, "d", "b.x or c.x"},
		{"one in place of another", decided("f", steps("a gives:x", "b gives:x", "d needs:x"), "a b all"), nil, "d", "a.x or b.x"},
		{"in a flow before", flow.Linear("f", decided("g", steps("a gives:x", "b gives:x"), "a b flow"), step("d needs:x")), nil, "d", "a.x or b.x"},
		{"in two flows", decided("f", []flow.Node{step("a"), flow.Linear("g", steps("b gives:x", "b2")...), flow.Linear("h", steps("c", "c2 gives:x")...), step("d needs:x")}, "a g all", "a h all"),
			nil, "d", "b.x or c2.x"},
		{"behind a condition", decided("f", steps("a", "b", "b2 gives:x", "c gives:x", "d needs:x"), "a b all", "b b2", "a c all"), nil, "d", "c.x or b2.x"},
		{"the nearest is always there", flow.Linear("f", decided("g", steps("a", "b gives:x"), "a b all"), step("c gives:x"), step("d needs:x")), nil, "d", "c.x"},
		{"all of it is conditional", decided("f", []flow.Node{step("a"), flow.Linear("g", steps("b gives:x", "c gives:x", "d needs:x")...)}, "a g all"), nil, "d", "c.x"},
		{"the store", decided("f", steps("a", "b gives:x", "d needs:x"), "a b atom"), []string{"x"}, "d", "b.x or store"},
		{"no store needed", flow.Linear("f", steps("b gives:x", "d needs:x")...), []string{"x"}, "d", "b.x"},
		{"outside an each", flow.Linear("f", step("o gives:x"), flow.Each("e", "list", "l", decided("g", steps("a", "b gives:x", "d needs:x"), "a b all"))), []string{"list"}, "d", "o.x or b.x"},
		{"optional", decided("f", steps("a", "b gives:x", "c gives:x", "d maybe:x"), "a b atom", "a c atom"), nil, "d", "b.x or c.x"},
		{"three", decided("f", steps("a", "b gives:x", "c gives:x", "e gives:x", "d needs:x"), "a b all", "a c all", "a e all"), nil, "d", "b.x or c.x or e.x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan, err := flow.Compile(row.root, row.inputs...)
			if err != nil {
				t.Fatal(err)
			}
			step, _ := plan.Find(row.step)
			wire := plan.Arguments(step)[0]
			if got := plan.Source(wire); got != row.want {
				t.Errorf("x comes from %s, and should from %s", got, row.want)
			}
			for _, source := range wire.Sources() {
				if provider, ok := source.Provider(); ok && provider >= step {
					t.Errorf("step %s comes from %s, which does not precede it", row.step, plan.Step(provider).Name())
				}
			}
		})
	}
}

// TestJoinsAreNotSkipped: the steps that a no ignores where a value has several providers.
func TestJoinsAreNotSkipped(t *testing.T) {
	ways := func(depth string) *flow.Flow {
		return decided("f", append(steps("a", "b gives:x", "c gives:x"), flow.Linear("sub", steps("d", "e needs:x")...), step("g"), step("h")),
			"a b "+depth, "a c "+depth, "sub g", "b h")
	}
	for _, row := range []struct {
		name   string
		root   flow.Node
		before string // ignored before
		want   string
	}{
		{"one of two", ways("all"), "", "b h"},
		{"both", ways("all"), "c", "b h d e g"},
		{"in the flow", ways("flow"), "", "b h"},
		{"both in the flow", ways("flow"), "c", "b h d e g"},
		{"the next ones", ways("neighbors"), "", "b h"},
		{"both, and the next ones", ways("neighbors"), "c", "b h d e"},
		{"itself", ways("atom"), "c", "b"},
		{"another value is lost", decided("f", steps("a", "b gives:x,y", "c gives:x", "d needs:x,y"), "a b all", "a c all"), "", "b d"},
		{"an optional value is lost", decided("f", steps("a", "b gives:x,y", "c gives:x", "d needs:x maybe:y"), "a b all", "a c all"), "", "b"},
		{"only optional", decided("f", steps("a", "b gives:x", "c gives:x", "d maybe:x"), "a b all", "a c all"), "", "b"},
		{"the store is no provider", decided("f", steps("a", "b gives:z", "d needs:z"), "a b all"), "", "b d"},
		{"one behind the other", decided("f", steps("a", "b gives:x", "c needs:x gives:y", "e gives:y", "d needs:y"), "a b all", "a e all"), "", "b c"},
		{"one behind the other, and no other", decided("f", steps("a", "b gives:x", "c needs:x gives:y", "e gives:y", "d needs:y"), "a b all", "a e all"), "e", "b c d"},
		{"a part that needs the lost value, behind a spared one", flow.Linear("f", decided("g", steps("a", "b gives:x,y", "c gives:x"), "a b all", "a c all"), step("j needs:x"), step("k needs:y")), "", "b k"},
	} {
		t.Run(row.name, func(t *testing.T) {
			plan, err := flow.Compile(row.root, "z")
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			ignored := func(step int) bool { return plan.Step(step).Name() == row.before }
			for _, number := range plan.IgnoredBeside(0, plan.Choices()[0].Deciders[0].Depth, ignored) {
				names = append(names, plan.Step(number).Name())
			}
			if got := strings.Join(names, " "); got != row.want {
				t.Errorf("it ignores %s, and should %s", got, row.want)
			}
		})
	}
}

func TestFaultsOfJoins(t *testing.T) {
	many := steps("a", "d needs:x")
	var links []string
	for i := range flow.MaxSources + 1 {
		many = append(many, step(fmt.Sprintf("s%d gives:x", i)))
		links = append(links, fmt.Sprintf("a s%d all", i))
	}
	for _, row := range []struct {
		name string
		root flow.Node
		kind error
		says string
	}{
		{"one of them always runs", decided("f", steps("a", "b gives:x", "c gives:x", "d needs:x"), "a b all"), flow.ErrAmbiguous, `requires "x", which b and c provide: make it wait for one of them`},
		{"one of them always runs, in a linear flow", flow.Linear("f", decided("g", steps("a", "b gives:x", "c gives:x"), "a b all"), step("d needs:x")), flow.ErrAmbiguous, `which steps c and b provide without an order between them`},
		{"both behind the same condition", flow.Linear("f", decided("g", steps("a", "p", "b gives:x", "c gives:x"), "a p all", "p b", "p c"), step("d needs:x")), flow.ErrAmbiguous, "b and c"},
		{"an order without conditions", decided("f", steps("b gives:x", "c gives:x", "d needs:x"), "b c"), flow.ErrAmbiguous, "b and c"},
		{"a skippable provider", decided("f", steps("a", "b gives:x", "d needs:x"), "a b atom"), flow.ErrMissing,
			`step "d" requires "x", which conditions can leave without a provider (b.x): add a provider, or make the argument optional`},
		{"a provider that is skipped before its value is required elsewhere", flow.Linear("f", decided("g", steps("a", "b gives:x"), "a b flow"), step("d needs:x")), flow.ErrMissing, "conditions can leave without a provider"},
		{"two values of one step", decided("f", steps("a", "b gives:x,y", "c gives:x", "d needs:x,y"), "a b atom", "a c atom"), flow.ErrMissing, `requires "y"`},
		{"in a retry's flow", flow.Linear("f", decided("g", steps("a", "b gives:x"), "a b all").WithRetry(flow.Times("r", 2)), step("d needs:x")), flow.ErrMissing, "conditions can leave without a provider"},
		{"too many", decided("f", many, links...), flow.ErrTooLarge, "more than 100 steps can provide"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := flow.Compile(row.root)
			if !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v, want %v: …%s…", err, row.kind, row.says)
			}
		})
	}
}
