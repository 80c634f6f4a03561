package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// staleCommands are the commands that only read, and only data that every node has.
var staleCommands = []string{
	"job get", "job list", "job explain", "job errors", "trash list", "trash show", "flow show", "book get", "book list",
	"board list", "board show", "board count", "schedule list", "schedule show", "session list", "conductor list", "quota list",
	"access list", "audit search",
}

// addStale gives the commands that can read stale answers the flag for it.
func (p *Program) addStale(root *cobra.Command) {
	for _, path := range staleCommands {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil || cmd.CommandPath() != root.Name()+" "+path {
			panic("internal error: there is no command " + path)
		}
		cmd.Flags().BoolVar(&p.stale, "stale", false, "read from one node, even without a leader; the answer can be outdated")
	}
}

// noteAge reports the maximum age of a stale answer.
func (p *Program) noteAge(age time.Duration, known bool) {
	if !known {
		p.Note("stale: unknown age; the node has had no leader since its start")
		return
	}
	p.Note("stale: up to %s old", DurationText(age))
}
