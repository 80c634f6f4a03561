package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/logbook"
)

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
