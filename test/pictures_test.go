package test

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
)

// pictureStyle has the colours of docs/peers.svg, for light and dark pages.
const pictureStyle = `text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px}.bold{font-weight:600}` +
	`.box{fill:#f6f8fa;stroke:#8c959f}.group{fill:none;stroke:#8c959f;stroke-dasharray:4 3}.arrow{fill:none;stroke:#0969da;stroke-width:1.4}` +
	`.dashed{stroke-dasharray:5 4}.head{fill:#0969da}@media (prefers-color-scheme:dark){text{fill:#e6edf3}.box{fill:#161b22;stroke:#6e7681}` +
	`.group{stroke:#6e7681}.arrow{stroke:#4493f8}.head{fill:#4493f8}}`

// A picture is the text of testdata/pictures, one shape a line:
//
//	size WIDTH HEIGHT · title TEXT · desc TEXT
//	group|box NAME X Y WIDTH HEIGHT LABEL, or LABEL|SMALL LABEL
//	arrow|dashed FROM TO X,Y ... and optionally : X Y LABEL
//	note X Y TEXT
type picture struct {
	svg    strings.Builder
	boxes  []string
	groups []string
	arrows [][2]string
}

func (p *picture) line(text string) error {
	kind, rest, _ := strings.Cut(text, " ")
	words := strings.Fields(rest)
	after := func(n int) string { return html.EscapeString(strings.Join(words[n:], " ")) }
	switch {
	case kind == "" || kind == "#":
	case kind == "size" && len(words) == 2:
		fmt.Fprintf(&p.svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img" aria-labelledby="title desc">`+"\n", words[0], words[1])
	case kind == "title":
		fmt.Fprintf(&p.svg, `<title id="title">%s</title>`+"\n", after(0))
	case kind == "desc":
		fmt.Fprintf(&p.svg, `<desc id="desc">%s</desc>`+"\n<style>%s</style>\n", after(0), pictureStyle)
		p.svg.WriteString(`<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="head" d="M0 0 8 4 0 8z"/></marker></defs>` + "\n")
	case kind == "note" && len(words) > 2:
		fmt.Fprintf(&p.svg, `<text class="small" x="%s" y="%s">%s</text>`+"\n", words[0], words[1], after(2))
	case (kind == "arrow" || kind == "dashed") && len(words) > 3:
		p.arrow(kind, words, after)
	case (kind == "group" || kind == "box") && len(words) > 5:
		return p.box(kind, words, after(5))
	default:
		return fmt.Errorf("cannot draw %q", text)
	}
	return nil
}

func (p *picture) arrow(kind string, words []string, after func(int) string) {
	p.arrows = append(p.arrows, [2]string{words[0], words[1]})
	label := slices.Index(words, ":")
	points := words[2:]
	if label > 0 {
		points = words[2:label]
	}
	fmt.Fprintf(&p.svg, `<polyline class="arrow %s" points="%s" marker-end="url(#head)"/>`+"\n", kind, strings.Join(points, " "))
	if label > 0 {
		fmt.Fprintf(&p.svg, `<text class="small" x="%s" y="%s">%s</text>`+"\n", words[label+1], words[label+2], after(label+3))
	}
}

func (p *picture) box(kind string, words []string, label string) error {
	var x, y, width, height int
	if _, err := fmt.Sscan(strings.Join(words[1:5], " "), &x, &y, &width, &height); err != nil {
		return fmt.Errorf("%s %s: %w", kind, words[0], err)
	}
	fmt.Fprintf(&p.svg, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, kind, x, y, width, height)
	if kind == "group" {
		p.groups = append(p.groups, words[0])
		fmt.Fprintf(&p.svg, `<text class="small bold" x="%d" y="%d">%s</text>`+"\n", x+8, y+14, label)
		return nil
	}
	p.boxes = append(p.boxes, words[0])
	name, small, two := strings.Cut(label, "|")
	middle := y + height/2 + 5
	if two {
		middle -= 8
		fmt.Fprintf(&p.svg, `<text class="small" text-anchor="middle" x="%d" y="%d">%s</text>`, x+width/2, middle+16, small)
	}
	fmt.Fprintf(&p.svg, `<text class="bold" text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", x+width/2, middle, name)
	return nil
}

func draw(t *testing.T, name string) *picture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "pictures", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	p := &picture{}
	for line := range strings.Lines(string(text)) {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	p.svg.WriteString("</svg>\n")
	for _, arrow := range p.arrows {
		for _, end := range arrow {
			if !slices.Contains(p.boxes, end) && !slices.Contains(p.groups, end) {
				t.Errorf("%s: the arrow from %s to %s has an unknown end", name, arrow[0], arrow[1])
			}
		}
	}
	return p
}

// TestPictures checks that the pictures of the documents match their texts. -rewrite draws them.
func TestPictures(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"job-states", "write-path"} {
		path, drawn := filepath.Join("..", "docs", name+".svg"), draw(t, name).svg.String()
		if *rewrite {
			if err := os.WriteFile(path, []byte(drawn), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if shown, err := os.ReadFile(path); err != nil || string(shown) != drawn {
			t.Errorf("%s differs from testdata/pictures/%s.txt (%v): run go test ./test -run TestPictures -rewrite", path, name, err)
		}
	}
}

// TestPictureOfStates checks that docs/job-states.svg has all states, and an arrow for each
// transition in the table of fsm/transition_test.go.
func TestPictureOfStates(t *testing.T) {
	t.Parallel()
	p := draw(t, "job-states")
	for _, state := range jobs.States {
		if !slices.Contains(p.boxes, string(state)) {
			t.Errorf("the state %s is not drawn", state)
		}
	}
	within := map[string][]string{"unclaimed": {"held", "delayed", "cooling", "waiting", "claimable"}, "finished": {"completed", "trashed"}}
	drawn := map[[2]string]bool{}
	for _, arrow := range p.arrows {
		for _, from := range append(within[arrow[0]], arrow[0]) {
			for _, to := range append(within[arrow[1]], arrow[1]) {
				drawn[[2]string{from, to}] = true
			}
		}
	}
	table, err := os.ReadFile("../fsm/transition_test.go")
	if err != nil {
		t.Fatal(err)
	}
	transitions := regexp.MustCompile(`(?m)^\t"(\w+) \w+": +"(\w+)(?: (\w+))?",$`).FindAllStringSubmatch(string(table), -1)
	if len(transitions) < 30 {
		t.Fatalf("only %d transitions were found in fsm/transition_test.go", len(transitions))
	}
	for _, transition := range transitions {
		for _, to := range transition[2:] {
			if from := transition[1]; to != "" && from != to && !drawn[[2]string{from, to}] {
				t.Errorf("no arrow leads from %s to %s", from, to)
			}
		}
	}
}
