package tree

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// DrawTree draws a flow as flow show prints it, or as a terminal shows it.
func DrawTree(detail *logbook.FlowDetail, now time.Time, terminal bool) []string {
	rows := rowsOf(detail)
	t := tree{rows: rows, detail: detail, places: loopsOf(rows, detail), now: now, results: !terminal}
	if terminal {
		t.width, t.height = 80, 24
	}
	return t.lines()
}

// Evidence is the shown evidence of a failed flow in addition to its cause.
func Evidence(cause *logbook.Failure, detail *logbook.FlowDetail) (lines []string) {
	for _, f := range FlowEvidence(cause, detail) {
		lines = append(lines, f[0]+": "+f[1])
	}
	return lines
}
