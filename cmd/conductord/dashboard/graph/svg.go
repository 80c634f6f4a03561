package graph

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Look has the further inputs of SVG.
type Look struct {
	Title     string
	Reverting bool // arrows lead from each step to the steps that are reverted after it
	// Link is the target of a box: the step, or the picture with the part opened or folded.
	Link     func(*Box) string
	Selected string // the name of a step
}

// SVG writes a picture. It has no styles: the stylesheet has them by class.
func (p *Picture) SVG(look *Look) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg class="graph" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="group" aria-labelledby="graph-title graph-desc">`, p.Size.X, p.Size.Y)
	fmt.Fprintf(&out, `<title id="graph-title">%s</title><desc id="graph-desc">Each box is a step or a part; an arrow leads to what comes next. The table below has the same steps.</desc>`, html.EscapeString(look.Title))
	out.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker></defs>` + "\n")
	p.boxes(&out, look, true)
	p.lines(&out, look)
	p.boxes(&out, look, false)
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func (p *Picture) lines(out *bytes.Buffer, look *Look) {
	end := "end"
	if look.Reverting {
		end = "start"
	}
	fmt.Fprintf(out, `<g class="lines" marker-%s="url(#arrow)">`+"\n", end)
	for i := range p.Lines {
		class := ""
		if p.Lines[i].From.Status().State == logbook.AtomSuccess {
			class = ` class="done"`
		}
		fmt.Fprintf(out, `<path%s d="%s"/>`+"\n", class, p.Lines[i].path())
	}
	out.WriteString("</g>\n")
}

// path is straight within a layer, and curved between two layers.
func (l *Line) path() string {
	path := fmt.Sprintf("M%d %d", l.Points[0].X, l.Points[0].Y)
	last := l.Points[0]
	for i, point := range l.Points[1:] {
		switch {
		case point == last:
			continue
		case i%2 == 0 || point.X == last.X:
			path += fmt.Sprintf("V%d", point.Y)
		default:
			const bend = gapY / 2
			path += fmt.Sprintf("C%d %d %d %d %d %d", last.X, last.Y+bend, point.X, point.Y-bend, point.X, point.Y)
		}
		last = point
	}
	return path
}

// boxes writes either the frames, which are behind the lines, or the boxes and the titles of
// frames.
func (p *Picture) boxes(out *bytes.Buffer, look *Look, frames bool) {
	for i := range p.Boxes {
		switch b := &p.Boxes[i]; {
		case frames && b.Open:
			fmt.Fprintf(out, `<rect class="frame %s" x="%d" y="%d" width="%d" height="%d" rx="8"/>`+"\n", b.Status().Name, b.X, b.Y, b.W, b.H)
		case frames, b.Open && b.visible():
		default:
			b.write(out, look)
		}
	}
}

func (b *Box) write(out *bytes.Buffer, look *Look) {
	class := b.Status().Name
	if b.Name == look.Selected {
		class += " selected"
	}
	fmt.Fprintf(out, `<a class="box %s" href="%s" aria-label="%s"><title>%s</title>`, class, html.EscapeString(look.Link(b)),
		html.EscapeString(b.Spoken()), html.EscapeString(b.Spoken()))
	if b.Open {
		fmt.Fprintf(out, `<text class="name" x="%d" y="%d">▾ %s</text></a>`+"\n", b.X+padding, b.Y+22, html.EscapeString(clipped(b.Label(), b.W/8-2)))
		return
	}
	round := 5
	switch {
	case b.Kind == Retry || b.Kind == List:
		round = b.H / 2
	case len(b.Parts) > 0:
		fmt.Fprintf(out, `<path class="stack" d="M%d %dv4h%dv-%dh-4"/>`, b.X+4, b.Y+b.H, b.W, b.H)
	}
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="%d"/>`, b.X, b.Y, b.W, b.H, round)
	fmt.Fprintf(out, `<text class="name" x="%d" y="%d">%s %s</text> `, b.X+padding, b.Y+18, b.Status().Sign, html.EscapeString(clipped(b.Label(), 20)))
	fmt.Fprintf(out, `<text class="fact" x="%d" y="%d">%s</text>`, b.X+padding, b.Y+34, html.EscapeString(clipped(b.brief(), 33)))
	if b.NoReturn {
		fmt.Fprintf(out, `<path class="point" d="M%d %dh%d"/>`, b.X, b.Y+b.H, b.W)
	}
	b.bar(out)
	out.WriteString("</a>\n")
}

// bar shows the shares of the states below a box that counts steps.
func (b *Box) bar(out *bytes.Buffer) {
	all := b.Steps()
	if len(b.Parts) == 0 && len(b.Atoms) < 2 || all == 0 {
		return
	}
	x, done := b.X+padding, 0
	for i, n := range b.counts {
		if n > 0 {
			from, to := (b.W-2*padding)*done/all, (b.W-2*padding)*(done+n)/all
			fmt.Fprintf(out, `<rect class="bar %s" x="%d" y="%d" width="%d" height="3"/>`, States[i].Name, x+from, b.Y+b.H-6, to-from)
			done += n
		}
	}
}

// State is the index in States of the most urgent state in a part.
func (p *Part) State() int {
	if len(p.Parts) == 0 && p.Kind != Step {
		if len(p.Atoms) > 0 {
			return PlaceOf(p.Atoms[0])
		}
		return Place("")
	}
	for i, n := range p.counts {
		if n > 0 {
			return i
		}
	}
	return Place("")
}

// Status is State for display.
func (p *Part) Status() Status { return States[p.State()] }

// Steps is the number of steps in a part; each instance of a step counts.
func (p *Part) Steps() int {
	all := 0
	for _, n := range p.counts {
		all += n
	}
	return all
}

// number is Steps with a noun.
func (p *Part) number() string {
	switch p.Kind {
	case Retry:
		return fmt.Sprintf("%d retries", p.Steps())
	case List:
		return fmt.Sprintf("%d lists", p.Steps())
	}
	return fmt.Sprintf("%d steps", p.Steps())
}

// Label is the displayed name of a part.
func (p *Part) Label() string {
	switch {
	case p.Kind == Fold:
		first, last := p, p
		for ; first.Kind == Fold; first = first.Parts[0] {
		}
		for ; last.Kind == Fold; last = last.Parts[len(last.Parts)-1] {
		}
		return first.Label() + " … " + last.Label()
	case p.Kind == Retry:
		return "retry of " + strings.TrimSuffix(p.Name, "-retry")
	case p.Kind == List:
		return "list of " + p.Name
	case p.Kind == Each:
		return "each: " + p.Name
	}
	return p.Name
}

// Fact is the state of a part as text, with its attempts or the number of steps in each state.
func (p *Part) Fact() string {
	if len(p.Parts) > 0 || len(p.Atoms) > 1 {
		return fmt.Sprintf("%s: %s", p.number(), p.Counted())
	}
	fact := p.Status().Name
	if len(p.Atoms) > 0 {
		number, what := p.Atoms[0].Number(logbook.ActionExecute), "attempt"
		if p.Kind == Retry {
			what = "round"
		}
		if state := p.Status().State; state == logbook.AtomReverting || state == logbook.AtomReverted || state == nothingToUndo {
			fact += after(p.Atoms[0].Failure())
		}
		if number > 1 {
			fact += fmt.Sprintf(", %s %d", what, number)
		}
	}
	return fact
}

// after describes the end of an execution that is reverted.
func after(f *logbook.Failure) string {
	switch {
	case f == nil:
		return ""
	case f.Kind == logbook.FailureInterrupted:
		return " after interruption"
	}
	return " after failure"
}

// brief is Fact shortened to the width of a box: with the symbols of the states.
func (b *Box) brief() string {
	if len(b.Parts) == 0 && len(b.Atoms) < 2 {
		return b.Fact() + b.Marked()
	}
	brief := b.number() + ":"
	for i, n := range b.counts {
		if n > 0 {
			brief += fmt.Sprintf(" %s %d", States[i].Sign, n)
		}
	}
	return brief
}

// Counted describes how many steps are in each state.
func (p *Part) Counted() string {
	var words []string
	for i, n := range p.counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, States[i].Name))
		}
	}
	return strings.Join(words, ", ")
}

// Marked is the special place of a step in its flow, after a comma; empty: none.
func (p *Part) Marked() string {
	switch {
	case p.NoReturn:
		return ", point of no return"
	case p.OnError:
		return ", on_error"
	case p.Finally:
		return ", finally"
	}
	return ""
}

// Spoken is the accessible name of a part.
func (p *Part) Spoken() string {
	spoken := p.Label() + ", " + p.Fact() + p.Marked()
	if p.Only != "" {
		spoken += ", only if " + p.Only
	}
	return spoken
}

// clipped shortens a text to a number of columns; East Asian characters take two.
func clipped(text string, columns int) string {
	for i, r := range text {
		if columns--; r >= 0x1100 {
			columns--
		}
		if columns < 0 {
			return text[:i] + "…"
		}
	}
	return text
}
