package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/flow/spec"
)

const (
	revertingPath = "docs/reverting.svg"
	// Sizes in pixels: of a step's box, and between the centres of two boxes.
	boxWidth, boxHeight   = 148, 32
	columnPitch, rowPitch = 200, 44
	forwardsY, backY      = 116, 312 // the centres of the two halves
)

// TestRevertingPicture checks that the picture of docs/failure.md shows examples/travel.toml,
// whose last step fails. -rewrite draws it again.
func TestRevertingPicture(t *testing.T) {
	text, err := os.ReadFile("../examples/travel.toml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := spec.Parse(text, "travel.toml")
	if err != nil {
		t.Fatal(err)
	}
	want, path := drawReverting(document), filepath.Join("..", revertingPath)
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s does not show examples/travel.toml (%v): run go test ./test -run TestRevertingPicture -rewrite", revertingPath, err)
	}
}

// drawnStep is a step in the picture. Its x and y are the centre of its box.
type drawnStep struct {
	*spec.Step
	column, x, y int
	from         []*drawnStep // steps whose values it requires
}

// drawReverting draws the steps of a flow twice: as they run until the last one fails, and as
// they revert.
func drawReverting(document *spec.Document) string {
	steps := placed(document)
	width := columnPitch*(steps[len(steps)-1].column+1) + 20
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 396" role="img" aria-labelledby="title desc">`+"\n", width)
	failed := steps[len(steps)-1]
	fmt.Fprintf(&svg, "<title id=\"title\">How a flow reverts</title>\n<desc id=\"desc\">The steps of %s run forwards until %s fails. Then they revert in reverse order, from %s on.</desc>\n",
		document.Name, failed.Name, failed.Revert)
	svg.WriteString(`<style>text{font:14px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}.box{fill:none;stroke-width:1.5}.ok{stroke:#1a7f37}.bad{stroke:#cf222e;stroke-width:3}.undo{stroke:#0969da}.none{stroke:#8c959f;stroke-dasharray:4 3}.way{stroke:#8c959f;fill:none}.tip{fill:#8c959f}` +
		`@media (prefers-color-scheme:dark){text{fill:#e6edf3}.ok{stroke:#3fb950}.bad{stroke:#f85149}.undo{stroke:#4493f8}.none,.way{stroke:#6e7681}.tip{fill:#6e7681}}</style>` + "\n" +
		`<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>` + "\n" +
		`<text class="head" x="26" y="28">Forwards: a step runs when its inputs exist</text>` + "\n" +
		`<text class="head" x="26" y="224">Back: a step reverts when all steps after it are undone</text>` + "\n")
	for _, s := range steps {
		class, forwards, back := "ok", "✓ "+s.Name, "↺ "+s.Revert
		if s == failed {
			class, forwards = "bad", "✗ "+s.Name
		}
		drawBox(&svg, class, s.x, forwardsY+s.y, forwards)
		if class = "undo"; s.Revert == "" {
			class, back = "none", "nothing to undo"
		}
		drawBox(&svg, class, s.x, backY+s.y, back)
		for _, from := range s.from {
			if from.column == s.column-1 {
				drawWay(&svg, from.x+boxWidth/2, forwardsY+from.y, s.x-boxWidth/2, forwardsY+s.y)
				drawWay(&svg, s.x-boxWidth/2, backY+s.y, from.x+boxWidth/2, backY+from.y)
			}
		}
	}
	drawWay(&svg, failed.x, forwardsY+boxHeight/2, failed.x, backY-boxHeight/2)
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="middle">fails permanently</text>`+"\n", failed.x, forwardsY-26)
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="middle">the flow is reverted</text>`+"\n", steps[0].x, backY+40)
	svg.WriteString("</svg>\n")
	return svg.String()
}

// placed gives each step a column after the steps whose values it requires, and a place in the
// column.
func placed(document *spec.Document) []*drawnStep {
	var steps []*drawnStep
	columns := map[int][]*drawnStep{}
	for i := range document.Steps {
		s := &drawnStep{Step: &document.Steps[i]}
		for _, earlier := range steps {
			for _, symbol := range s.Requires {
				if earlier.Provides.Whole == symbol || slices.Contains(earlier.Provides.Fields, symbol) {
					s.from = append(s.from, earlier)
					s.column = max(s.column, earlier.column+1)
					break
				}
			}
		}
		steps = append(steps, s)
		columns[s.column] = append(columns[s.column], s)
	}
	for column, beside := range columns {
		for i, s := range beside {
			s.x, s.y = columnPitch*column+columnPitch/2, (2*i-len(beside)+1)*rowPitch/2
		}
	}
	return steps
}

func drawBox(svg *strings.Builder, class string, x, y int, text string) {
	fmt.Fprintf(svg, `<rect class="box %s" x="%d" y="%d" width="%d" height="%d" rx="4"/><text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n",
		class, x-boxWidth/2, y-boxHeight/2, boxWidth, boxHeight, x, y+5, text)
}

func drawWay(svg *strings.Builder, x1, y1, x2, y2 int) {
	fmt.Fprintf(svg, `<path class="way" marker-end="url(#tip)" d="M%d %d %d %d"/>`+"\n", x1, y1, x2, y2)
}
