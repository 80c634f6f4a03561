package graph_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/conductord/conductord/cmd/conductord/dashboard/graph"
	"github.com/conductord/conductord/logbook"
)

// drawPart generates a part with arbitrary edges: forwards, doubled, or in a cycle.
func drawPart(t *rapid.T, name string, depth int) *graph.Part {
	p := &graph.Part{Name: name, Kind: graph.Flow}
	n := rapid.IntRange(1, 80).Draw(t, "parts of "+name)
	if depth > 0 {
		n = min(n, 12)
	}
	for i := range n {
		inner := fmt.Sprint(name, ".", i)
		if depth < 2 && rapid.IntRange(0, 9).Draw(t, "nested") == 0 {
			p.Parts = append(p.Parts, drawPart(t, inner, depth+1))
			continue
		}
		p.Parts = append(p.Parts, &graph.Part{Name: inner, Kind: rapid.SampledFrom([]graph.Kind{graph.Step, graph.Step, graph.Retry, graph.List}).Draw(t, "kind")})
	}
	place := rapid.IntRange(0, n-1)
	for range rapid.IntRange(0, 2*n).Draw(t, "edges") {
		from, to := place.Draw(t, "from"), place.Draw(t, "to")
		if rapid.IntRange(0, 19).Draw(t, "backwards") > 0 {
			from, to = min(from, to), max(from, to)
		}
		p.Edges = append(p.Edges, graph.Edge{From: from, To: to})
	}
	return p
}

// leavesOf are the names of the steps in a part, sorted.
func leavesOf(p *graph.Part) (names []string) {
	for _, part := range p.Parts {
		if names = append(names, leavesOf(part)...); len(part.Parts) == 0 {
			names = append(names, part.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPictures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flow := drawPart(t, "flow", 0)
		var open []string
		for range rapid.IntRange(0, 3).Draw(t, "rounds") { // an opened part offers further parts to open
			for _, box := range graph.Draw(flow, open).Boxes {
				if len(box.Parts) > 0 && rapid.Bool().Draw(t, "open") {
					open = append(open, box.Name)
				}
			}
		}
		picture := graph.Draw(flow, open)
		checkBoxes(t, flow, picture)
		checkLines(t, picture)
		again := graph.Draw(flow, open)
		if !bytes.Equal(picture.SVG(look(false)), again.SVG(look(false))) {
			t.Fatal("two pictures of one flow differ")
		}
		moved := positions(picture)
		for _, name := range leavesOf(flow) {
			setState(flow, name, rapid.SampledFrom(graph.States[:]).Draw(t, "state").State)
		}
		if after := positions(graph.Draw(flow, open)); moved != after {
			t.Fatalf("states move boxes:\n%s\n%s", moved, after)
		}
	})
}

func setState(p *graph.Part, name string, state logbook.AtomState) {
	for _, part := range p.Parts {
		if setState(part, name, state); part.Name == name {
			part.Atoms = []*logbook.AtomDetail{{Name: name, State: state}}
		}
	}
}

func positions(picture *graph.Picture) string {
	var text strings.Builder
	for _, box := range picture.Boxes {
		fmt.Fprintln(&text, box.Name, box.Point, box.W, box.H)
	}
	for _, line := range picture.Lines {
		fmt.Fprintln(&text, line.From.Name, line.To.Name, line.Points)
	}
	return text.String()
}

// checkBoxes: each step is in one box, and boxes overlap only with the frames around them.
func checkBoxes(t *rapid.T, flow *graph.Part, picture *graph.Picture) {
	var shown []string
	within := func(one, other *graph.Box) bool {
		return one.X >= other.X && one.Y >= other.Y && one.X+one.W <= other.X+other.W && one.Y+one.H <= other.Y+other.H
	}
	whole := &graph.Box{W: picture.Size.X, H: picture.Size.Y}
	for i := range picture.Boxes {
		box := &picture.Boxes[i]
		if !within(box, whole) {
			t.Fatalf("box %q is out of the picture", box.Name)
		}
		if !box.Open {
			if shown = append(shown, leavesOf(box.Part)...); len(box.Parts) == 0 {
				shown = append(shown, box.Name)
			}
		}
		for j := range picture.Boxes[:i] {
			other := &picture.Boxes[j]
			apart := box.X >= other.X+other.W || other.X >= box.X+box.W || box.Y >= other.Y+other.H || other.Y >= box.Y+box.H
			if inside := other.Open && slices.Contains(leavesOf(other.Part), append(leavesOf(box.Part), box.Name)[0]); inside != !apart || inside && !within(box, other) {
				t.Fatalf("boxes %q %v and %q %v overlap, or one is not in the other", other.Name, other.Point, box.Name, box.Point)
			}
		}
	}
	slices.Sort(shown)
	if all := leavesOf(flow); !slices.Equal(all, shown) {
		t.Fatalf("the picture has %v of %v", shown, all)
	}
}

// checkLines: a line goes down from one box to another, and crosses no third box.
func checkLines(t *rapid.T, picture *graph.Picture) {
	boxes := map[string]*graph.Box{}
	for i := range picture.Boxes {
		boxes[picture.Boxes[i].Name] = &picture.Boxes[i]
	}
	for _, line := range picture.Lines {
		from, to := boxes[line.From.Name], boxes[line.To.Name]
		first, last := line.Points[0], line.Points[len(line.Points)-1]
		if first != (graph.Point{X: from.X + from.W/2, Y: from.Y + from.H}) || last != (graph.Point{X: to.X + to.W/2, Y: to.Y}) || first.Y >= last.Y {
			t.Fatalf("line from %q %v to %q %v is %v", line.From.Name, from.Point, line.To.Name, to.Point, line.Points)
		}
		for i := 1; i < len(line.Points); i++ {
			a, b := line.Points[i-1], line.Points[i]
			if a.Y > b.Y || i%2 == 1 && a.X != b.X {
				t.Fatalf("line from %q to %q goes up or bends in a layer: %v", line.From.Name, line.To.Name, line.Points)
			}
			for _, box := range picture.Boxes {
				if box.Name != line.From.Name && box.Name != line.To.Name && i%2 == 1 && !slices.Contains(leavesOf(box.Part), append(leavesOf(line.From), line.From.Name)[0]) &&
					a.X > box.X && a.X < box.X+box.W && max(a.Y, box.Y) < min(b.Y, box.Y+box.H) {
					t.Fatalf("line from %q to %q runs through %q", line.From.Name, line.To.Name, box.Name)
				}
			}
		}
	}
}

// TestBig limits pictures of 10,000 steps to 300 KB and 200 ms, also with all parts open that links
// can open.
func TestBig(t *testing.T) {
	const steps = 10_000
	for name, after := range map[string]func(i int) []int{
		"linear":    func(i int) []int { return []int{i - 1} },
		"unordered": func(int) []int { return nil },
		"ladder":    func(i int) []int { return []int{i - 3, i - 2} },
		"tree":      func(i int) []int { return []int{(i - 1) / 2} },
		"fan-out":   func(int) []int { return []int{0} },
		"comb":      func(i int) []int { return []int{i - 100} },
		"net":       func(i int) []int { return []int{i/100*100 - 1 - i*7%100, i/100*100 - 1 - i*11%100} },
	} {
		t.Run(name, func(t *testing.T) {
			detail, root := detailOf("step-1 running"), &graph.Part{Name: "big", Kind: graph.Flow}
			for i := range steps {
				root.Parts = append(root.Parts, &graph.Part{Name: fmt.Sprint("step-", i), Atoms: []*logbook.AtomDetail{&detail.Atoms[0]}})
				for _, before := range after(i) {
					if i > 0 && before >= 0 {
						root.Edges = append(root.Edges, graph.Edge{From: before, To: i})
					}
				}
			}
			const wanted = "step-7777"
			for open := []string{}; len(open) < 5; {
				began := time.Now()
				picture := graph.Draw(root, open)
				svg := picture.SVG(look(false))
				t.Logf("%d bytes, %d boxes, %s, open %v", len(svg), len(picture.Boxes), time.Since(began), open)
				if len(svg) > 200<<10 {
					t.Errorf("the picture has %d bytes, open are %v", len(svg), open)
				}
				if slices.ContainsFunc(picture.Boxes, func(b graph.Box) bool { return b.Name == wanted }) {
					return
				}
				next := slices.IndexFunc(picture.Boxes, func(b graph.Box) bool { return !b.Open && slices.Contains(leavesOf(b.Part), wanted) })
				open = append(open, picture.Boxes[next].Name)
			}
			t.Errorf("%s is behind 5 links", wanted)
		})
	}
}
