package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/logbook"
)

// HeadroomBytes is what a daemon takes beyond its heap.
const HeadroomBytes = headroomBytes

// Headroom is how much of that a program takes in its environment.
func (p *Program) Headroom() int { return len(p.headroom()) }

// DrawTree draws a flow as flow show does, or as it is drawn on a terminal.
func DrawTree(detail *logbook.FlowDetail, now time.Time, terminal bool) []string {
	t := tree{rows: rowsOf(detail), detail: detail, now: now, results: !terminal}
	if terminal {
		t.width, t.height = 80, 24
	}
	return t.lines()
}

// Tree is the root of all commands.
func Tree() *cobra.Command { return (&Program{}).rootCommand() }
