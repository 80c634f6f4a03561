package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// treeRow is one line of a flow's tree: a step, or a flow within the flow.
type treeRow struct {
	name  string
	depth int
	group flow.Pattern // of a flow; empty for a step
}

// rowsOf lays a flow out. A document can be read again, so that steps which
// have not begun are shown too; of other flows only the recorded steps are
// known here, since the code that builds them is the conductors'.
func rowsOf(detail *logbook.FlowDetail) []treeRow {
	if detail.Factory.Name == spec.Kind {
		if document, err := spec.Parse(detail.Factory.Args, "flow.json"); err == nil {
			if built, err := document.Build(nil); err == nil {
				return nodeRows(nil, built, 0)
			}
		}
	}
	rows := make([]treeRow, 0, len(detail.Atoms))
	for i := range detail.Atoms {
		rows = append(rows, treeRow{name: detail.Atoms[i].Name})
	}
	return rows
}

func nodeRows(rows []treeRow, parent *flow.Flow, depth int) []treeRow {
	for _, child := range parent.Children() {
		inner, isFlow := child.(*flow.Flow)
		if !isFlow {
			rows = append(rows, treeRow{name: child.Name(), depth: depth})
			continue
		}
		rows = append(rows, treeRow{name: inner.Name(), depth: depth, group: inner.Pattern()})
		rows = nodeRows(rows, inner, depth+1)
	}
	return rows
}

// tree is a picture of a flow at one moment. Drawing it decides nothing and
// touches nothing.
type tree struct {
	rows    []treeRow
	detail  *logbook.FlowDetail
	now     time.Time
	results bool // with the steps' results and failures
	colour  bool
	width   int // of a line; 0: any
	height  int // in lines; 0: any
}

// marks show states at a glance.
var marks = map[logbook.AtomState]struct{ mark, colour string }{
	logbook.AtomPending:       {"·", ""},
	logbook.AtomRunning:       {"▶", "\x1b[36m"},
	logbook.AtomSuccess:       {"✓", "\x1b[32m"},
	logbook.AtomFailure:       {"✗", "\x1b[31m"},
	logbook.AtomReverting:     {"↶", "\x1b[33m"},
	logbook.AtomReverted:      {"↺", "\x1b[33m"},
	logbook.AtomRevertFailure: {"‼", "\x1b[31m"},
	logbook.AtomRetrying:      {"↻", "\x1b[36m"},
	logbook.AtomIgnored:       {"-", ""},
}

const colourOff = "\x1b[0m"

// lines draws the tree: the flow with a bar, then a line for each row.
func (t *tree) lines() []string {
	atoms := make(map[string]*logbook.AtomDetail, len(t.detail.Atoms))
	for i := range t.detail.Atoms {
		atoms[t.detail.Atoms[i].Name] = &t.detail.Atoms[i]
	}
	nameWidth := 0
	for _, row := range t.rows {
		nameWidth = max(nameWidth, 2*row.depth+utf8.RuneCountInString(clean(row.name)))
	}
	lines := []string{t.clip(t.headline(atoms), "")}
	first, end := t.window(atoms)
	for _, row := range t.rows[first:end] {
		lines = append(lines, t.rowLine(row, atoms[row.name], nameWidth))
	}
	if hidden := len(t.rows) - (end - first); hidden > 0 {
		lines = append(lines, t.clip(fmt.Sprintf("  … and %d more", hidden), ""))
	}
	return lines
}

// window chooses the rows that fit: from a little above the first step that
// is not finished.
func (t *tree) window(atoms map[string]*logbook.AtomDetail) (first, end int) {
	// The headline, the line that tells of the rest, and the line below, where
	// the cursor waits: a picture that fills the screen scrolls it, and what has
	// gone out at the top cannot be drawn over.
	const around = 3
	if t.height == 0 || len(t.rows) <= t.height-around {
		return 0, len(t.rows)
	}
	room := max(1, t.height-around)
	for i, row := range t.rows {
		if row.group == "" && !settled(atoms[row.name]) {
			first = max(0, min(i-1, len(t.rows)-room))
			break
		}
	}
	return first, first + room
}

// settled tells whether a step has come to rest.
func settled(atom *logbook.AtomDetail) bool {
	if atom == nil {
		return false
	}
	switch atom.State {
	case logbook.AtomPending, logbook.AtomRunning, logbook.AtomReverting, logbook.AtomRetrying:
		return false
	}
	return true
}

func (t *tree) headline(atoms map[string]*logbook.AtomDetail) string {
	steps, done := 0, 0
	for _, row := range t.rows {
		if row.group != "" {
			continue
		}
		steps++
		if settled(atoms[row.name]) {
			done++
		}
	}
	return fmt.Sprintf("%s  %s  %s %d/%d steps", clean(t.detail.Name), t.detail.State, bar(done, steps), done, steps)
}

// bar draws how much is done.
func bar(done, all int) string {
	const width = 20
	filled := 0
	if all > 0 {
		filled = width * done / all
	}
	return "[" + strings.Repeat("█", filled) + strings.Repeat("░", width-filled) + "]"
}

func (t *tree) rowLine(row treeRow, atom *logbook.AtomDetail, nameWidth int) string {
	indent := strings.Repeat("  ", row.depth)
	if row.group != "" {
		return t.clip(fmt.Sprintf("  %s▾ %s (%s)", indent, clean(row.name), row.group), "")
	}
	state := logbook.AtomPending
	if atom != nil {
		state = atom.State
	}
	look := marks[state]
	name := clean(row.name)
	padding := strings.Repeat(" ", max(0, nameWidth-len(indent)-utf8.RuneCountInString(name)))
	line := fmt.Sprintf("  %s%s %s%s  %-9s", indent, orDash(look.mark), name, padding, state)
	if atom != nil {
		line += "  " + t.facts(atom)
	}
	return t.clip(strings.TrimRight(line, " "), look.colour)
}

// facts are the attempts of a step, how long the last one took or has taken,
// and what came of it.
func (t *tree) facts(atom *logbook.AtomDetail) string {
	if len(atom.Attempts) == 0 {
		return ""
	}
	last := &atom.Attempts[len(atom.Attempts)-1]
	end := last.EndedAt
	if !last.Ended() {
		end = t.now
	}
	text := durationText(max(0, end.Sub(last.StartedAt)))
	if last.Number > 1 {
		text += fmt.Sprintf("  attempt %d", last.Number)
	}
	if !atom.RetryAt.IsZero() && atom.State == logbook.AtomPending {
		text += "  again at " + timeText(atom.RetryAt)
	}
	if last.Asked > 0 {
		text += fmt.Sprintf("  asked %d times", last.Asked)
	}
	if !t.results {
		return text
	}
	if result, ok := atom.Result(); ok && len(result) > 0 {
		text += "  → " + shorten(string(result))
	}
	if last.Failure != nil {
		text += "  " + shorten(last.Failure.Kind+": "+last.Failure.Message)
	}
	return text
}

// shorten fits a result or a message into a line.
func shorten(text string) string {
	const most = 80
	text = clean(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// clip cuts a line to the width, since a line that wraps is two lines to the
// cursor, and colours what is left.
func (t *tree) clip(line, colour string) string {
	if t.width > 0 && utf8.RuneCountInString(line) >= t.width {
		line = string([]rune(line)[:t.width-1])
	}
	if t.colour && colour != "" {
		line = colour + line + colourOff
	}
	return line
}
