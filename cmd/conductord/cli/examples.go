package cli

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// exampleLines are command lines, one per line.
//
//go:embed examples.txt
var exampleLines string

// addExamples gives each command its lines of examples.txt.
func addExamples(root *cobra.Command) {
	for line := range strings.Lines(exampleLines) {
		cmd := root
		for _, word := range strings.Fields(line)[1:] { // cobra's Find merges the flags on the way, and is slow
			at := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
			if at < 0 {
				break
			}
			cmd = cmd.Commands()[at]
		}
		cmd.Example = strings.TrimPrefix(cmd.Example+"\n  "+strings.TrimSpace(line), "\n")
	}
}
