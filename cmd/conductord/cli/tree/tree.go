// Package tree shows a flow: its steps as a tree, the changes while it runs, and the evidence of
// its failure. Commands about jobs and about flows use it.
package tree

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/spec"
	"github.com/conductord/conductord/logbook"
)

// Lines are the steps of a flow with their results.
func Lines(detail *logbook.FlowDetail) []string {
	now := detail.UpdatedAt
	if !detail.State.Finished() {
		now = time.Now() // the durations of running and waiting steps depend on the current time
	}
	rows := rowsOf(detail)
	t := tree{rows: rows, detail: detail, now: now, results: true, places: loopsOf(rows, detail)}
	return t.lines()
}

// treeRow is one line of a flow's tree: a step, a retry, or a flow within the flow.
type treeRow struct {
	name   string
	depth  int
	group  flow.Pattern // of a flow; empty for a step
	retry  bool
	list   bool            // of an each
	only   string          // the conditions under which it is run; empty if there are none
	work   flow.WorkerStep // zero: none for a worker, or not known
	mark   string          // "point of no return", "on_error", "finally" or empty
	enough *selection      // of a flow; nil: all members must succeed
	plan   *flow.Plan      // nil: not known

	// For a row of a step in an each: the step's instances, one per element of the list. The
	// most urgent ones also have their own rows.
	instances []*logbook.AtomDetail
}

// rowsOf lays out a flow. A flow document also contains the steps that have not started. For other
// flows, only the recorded steps are known here, because only the conductors have the code of the
// flow.
func rowsOf(detail *logbook.FlowDetail) []treeRow {
	if plan := spec.PlanOf(detail); plan != nil {
		rows := appendRows(nil, plan.Tree(), 0)
		for i := range rows {
			rows[i].plan = plan
		}
		return rows
	}
	rows, points, errors, finals := make([]treeRow, 0, len(detail.Atoms)), detail.Definition.Points(), detail.Definition.ErrorSteps(), detail.Definition.Finals()
	for i := range detail.Atoms {
		atom := &detail.Atoms[i]
		rows = append(rows, treeRow{name: atom.Name, retry: atom.Kind == logbook.KindRetry, list: atom.Kind == logbook.KindEach,
			mark: markOf(logbook.IsPoint(points, atom.Name), logbook.IsPoint(errors, atom.Name), logbook.IsPoint(finals, atom.Name))})
	}
	return rows
}

// markOf is the mark of a step that has a special place in its flow.
func markOf(noReturn, onError, finally bool) string {
	switch {
	case noReturn:
		return "point of no return"
	case onError:
		return "on_error"
	case finally:
		return "finally"
	}
	return ""
}

// appendRows adds the rows of a flow's steps and nested flows.
func appendRows(rows []treeRow, in *flow.Tree, depth int) []treeRow {
	for _, part := range in.Visible() {
		row := treeRow{name: part.Name(), depth: depth, only: part.Only}
		if part.Flow != nil {
			row.group, row.enough = part.Flow.Pattern(), selectionOf(part)
			rows = appendRows(append(rows, row), part, depth+1)
			continue
		}
		row.retry, row.list = part.Step.IsRetry(), part.Step.IsEach()
		row.work, _ = part.Step.WorkerStep()
		row.mark = markOf(part.Step.PointOfNoReturn(), part.Step.IsOnError(), part.Step.IsFinal())
		rows = append(rows, row)
	}
	return rows
}

// tree is a picture of a flow at one moment. Drawing it changes nothing.
type tree struct {
	rows    []treeRow
	detail  *logbook.FlowDetail
	now     time.Time
	results bool            // with the steps' results and failures
	waiting bool            // only the steps that wait for a worker
	places  []engine.Places // of the loops in which elements wait
	colour  bool
	width   int // of a line; 0: no limit
	height  int // in lines; 0: no limit
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
	WaitsForWorker:            {"·", ""},
	nothingToUndo:             {"-", ""},
	notNeeded:                 {"-", ""},
	failureIgnored:            {"✗", "\x1b[33m"},
}

// widestName limits the column of names. A longer name shifts only the rest of its own row.
const widestName = 24

// lines draws the tree: the flow with a bar, then a line for each row.
func (t *tree) lines() []string {
	atoms := make(map[string]*logbook.AtomDetail, len(t.detail.Atoms))
	for i := range t.detail.Atoms {
		atoms[t.detail.Atoms[i].Name] = &t.detail.Atoms[i]
	}
	t.rows = folded(t.rows, t.detail.Atoms, atoms)
	if t.waiting {
		t.rows = slices.DeleteFunc(t.rows, func(row treeRow) bool { return shownState(atoms[row.name]) != WaitsForWorker })
	}
	nameWidth := 0
	for _, row := range t.rows {
		nameWidth = max(nameWidth, min(widestName, 2*row.depth+utf8.RuneCountInString(cli.Clean(row.name))))
	}
	lines := []string{t.clip(t.headline(atoms), "")}
	first, end := t.window(atoms)
	for _, row := range t.rows[first:end] {
		lines = append(lines, t.rowLines(row, atoms[row.name], nameWidth)...)
	}
	if hidden := len(t.rows) - (end - first); hidden > 0 {
		lines = append(lines, t.clip(fmt.Sprintf("  … and %d more", hidden), ""))
	}
	return lines
}

// window selects the rows that fit: from a few rows above the first unfinished step.
func (t *tree) window(atoms map[string]*logbook.AtomDetail) (first, end int) {
	// The headline, the line "… and N more", and the cursor's line below. A picture that fills
	// the screen would scroll it, and lines above the top cannot be redrawn.
	const around = 3
	if t.height == 0 || len(t.rows) <= t.height-around {
		return 0, len(t.rows)
	}
	room := max(1, t.height-around)
	for i, row := range t.rows {
		if row.counts() && !row.settled(atoms) {
			first = max(0, min(i-1, len(t.rows)-room))
			break
		}
	}
	return first, first + room
}

// settled reports whether a step has ended for now.
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
		switch {
		case !row.counts():
		case len(row.instances) > 0:
			steps += len(row.instances)
			done += row.done()
		default:
			steps++
			if settled(atoms[row.name]) {
				done++
			}
		}
	}
	return fmt.Sprintf("%s  %s  %s %d/%d steps", cli.Clean(t.detail.Name), t.detail.State, Bar(done, steps), done, steps)
}

// Bar draws the finished share.
func Bar(done, all int) string {
	return barOf(done, all, 20)
}

func barOf(done, all, width int) string {
	filled := 0
	if all > 0 {
		filled = width * done / all
	}
	return "[" + strings.Repeat("█", filled) + strings.Repeat("░", width-filled) + "]"
}

// rowLines returns the lines of a row. A result or failure that does not fit beside the row
// has its own line below.
func (t *tree) rowLines(row treeRow, atom *logbook.AtomDetail, nameWidth int) []string {
	indent := strings.Repeat("  ", row.depth)
	if row.group != "" {
		return []string{t.clip(fmt.Sprintf("  %s▾ %s (%s)%s", indent, cli.Clean(row.name), row.group, row.enough.text(t.detail)), "")}
	}
	if len(row.instances) > 0 {
		mark := ""
		if row.mark != "" {
			mark = "  " + row.mark
		}
		return []string{t.clip(fmt.Sprintf("  %s▾ %s ×%d%s  %s", indent, cli.Clean(row.name), len(row.instances), mark, countsOf(row.instances)), "")}
	}
	state := shownState(atom)
	look := marks[state]
	name := cli.Clean(row.name)
	padding := strings.Repeat(" ", max(0, nameWidth-len(indent)-utf8.RuneCountInString(name)))
	line := fmt.Sprintf("  %s%s %s%s  %-9s", indent, cli.OrDash(look.mark), name, padding, state)
	if row.mark != "" {
		line += "  " + row.mark
	}
	if facts := t.facts(&row, atom); facts != "" {
		line += "  " + facts
	}
	outcome := t.outcome(atom)
	if outcome == "" {
		return []string{t.clip(strings.TrimRight(line, " "), look.colour)}
	}
	if both := line + "  " + outcome; utf8.RuneCountInString(both) <= cli.PageWidth || !t.results {
		return []string{t.clip(both, look.colour)}
	}
	below := "      " + indent
	return []string{t.clip(strings.TrimRight(line, " "), look.colour), below + cli.ShortenTo(outcome, cli.PageWidth-len(below))}
}

// clip cuts a line to the width, because a wrapped line counts as two lines for the cursor. It
// then colours the line.
func (t *tree) clip(line, colour string) string {
	if t.width > 0 && utf8.RuneCountInString(line) >= t.width {
		line = string([]rune(line)[:t.width-1])
	}
	if t.colour && colour != "" {
		line = colour + line + cli.ColourOff
	}
	return line
}
