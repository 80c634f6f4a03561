package graph_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/dashboard/graph"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

var rewrite = flag.Bool("rewrite", false, "write the golden pictures anew")

// look links every box to its name.
func look(reverting bool) *graph.Look {
	return &graph.Look{Title: "flow", Reverting: reverting, Link: func(b *graph.Box) string { return "?step=" + b.Name }}
}

// detailOf is a flow whose steps are given as "name state attempts".
func detailOf(states ...string) *logbook.FlowDetail {
	detail := &logbook.FlowDetail{Name: "flow"}
	for _, text := range states {
		var name, state string
		attempts := 1
		fmt.Sscan(text, &name, &state, &attempts)
		atom := logbook.AtomDetail{Name: name, Kind: logbook.KindTask}
		for _, s := range graph.States {
			if s.Name == state {
				atom.State = s.State
			}
		}
		if strings.HasSuffix(name, "-retry") {
			atom.Kind = logbook.KindRetry
		}
		for number := range attempts {
			atom.Attempts = append(atom.Attempts, logbook.Attempt{Action: logbook.ActionExecute, Number: number + 1, StartedAt: time.Unix(int64(number), 0)})
		}
		detail.Atoms = append(detail.Atoms, atom)
	}
	return detail
}

// partOf compiles a document.
func partOf(t testing.TB, document string, detail *logbook.FlowDetail) *graph.Part {
	t.Helper()
	d, err := spec.Parse([]byte(document), "flow.toml")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := d.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return graph.Of(detail, plan)
}

// TestGolden compares pictures of typical flows with the pictures in testdata. The document is
// testdata/NAME.toml.
func TestGolden(t *testing.T) {
	for _, test := range []struct {
		name      string
		open      []string
		reverting bool
		states    []string
	}{
		{name: "linear", states: []string{"reserve success 2", "charge running"}},
		{name: "point", states: []string{"copy success", "switch success", "tell failure"}},
		{name: "diamond", reverting: true, states: []string{"prepare success", "left reverted", "right reverting", "ship failure 3"}},
		{name: "nested", states: []string{"check success", "booking-retry retrying 2", "car reverted", "hotel failure"}},
		{name: "nested-folded", open: []string{}, states: []string{"check success", "booking-retry retrying 2", "car reverted", "hotel failure"}},
		{name: "each", states: []string{"list success", "ship success", "pack[0] success", "pack[1] running", "pack[2] failure", "send[0] success"}},
		{name: "fan-out", states: []string{"begin success", "a success", "b running", "c ignored", "d revert-failure"}},
		{name: "joins", states: []string{"a success"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			document, err := os.ReadFile(filepath.Join("testdata", strings.TrimSuffix(test.name, "-folded")+".toml"))
			if err != nil {
				t.Fatal(err)
			}
			part := partOf(t, string(document), detailOf(test.states...))
			svg := graph.Draw(part, test.open).SVG(look(test.reverting))
			path := filepath.Join("testdata", test.name+".svg")
			if *rewrite {
				if err := os.WriteFile(path, svg, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(golden, svg) {
				t.Errorf("%s differs (%v); look at the picture and run with -rewrite:\n%s", path, err, svg)
			}
		})
	}
}

// TestRecorded draws a flow whose definition only its conductor has: it shows the recorded steps,
// without order.
func TestRecorded(t *testing.T) {
	packed, err := logbook.PackSteps([]logbook.DefinedStep{{Name: "begin"}, {Name: "ship", Kind: logbook.KindEach}, {Name: "pack"}, {Name: "end", NoReturn: true}})
	if err != nil {
		t.Fatal(err)
	}
	detail := detailOf("begin success", "pack[0] success", "pack[1] running", "late-retry success 2")
	detail.Definition = &logbook.Definition{Packed: packed}
	picture := graph.Draw(graph.Of(detail, nil), nil)
	var said []string
	for i := range picture.Boxes {
		said = append(said, picture.Boxes[i].Spoken())
	}
	want := "begin, success; list of ship, pending; pack, 2 steps: 1 running, 1 success; end, pending, point of no return; retry of late, success, round 2"
	if got := strings.Join(said, "; "); got != want || len(picture.Lines) > 0 {
		t.Errorf("drawn were\n%s and %d lines, not\n%s", got, len(picture.Lines), want)
	}
}

// TestNestedListsCountThemselves: the box of the lists of a nested each counts lists, and the boxes around
// it count steps only.
func TestNestedListsCountThemselves(t *testing.T) {
	detail := detailOf("ship-all success", "ship-units[0] success", "ship-units[1] running", "label[0][0] success", "label[0][1] running")
	for i := range 3 {
		detail.Atoms[i].Kind = logbook.KindEach
	}
	root := partOf(t, `name = "parcels"
store = {addresses = [1, 2], units = [1, 2]}
[[steps]]
name = "ship-all"
each = {over = "addresses", as = "address"}
[[steps.steps]]
name = "ship-units"
each = {over = "units", as = "unit"}
[[steps.steps.steps]]
name = "label"
`, detail)
	var said []string
	for _, box := range graph.Draw(root, []string{"ship-all", "ship-units"}).Boxes {
		said = append(said, box.Spoken())
	}
	got := strings.Join(said, "; ")
	if !strings.Contains(got, "list of ship-units, 2 lists: 1 running, 1 success") || root.Steps() != 2 {
		t.Errorf("%d steps; got %s", root.Steps(), got)
	}
}
