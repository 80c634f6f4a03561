package dashboard_test

import (
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
)

var (
	shownCommand = regexp.MustCompile(`<code[^>]*>(conductord [^<]*)</code>`)
	numbers      = regexp.MustCompile(`[0-9a-f-]*\d[0-9a-f-]*`)
	shellWord    = regexp.MustCompile(`('[^']*'|[^\s'])+`)
)

// newTree is the tree of all commands.
func newTree() *cobra.Command {
	return commands.Of(&cli.Program{Out: io.Discard, Err: io.Discard}).Root()
}

// commandFault describes the fault of a command line; empty: its command and its flags exist.
func commandFault(line string) string {
	var words []string
	for _, word := range shellWord.FindAllString(line, -1) {
		if word = strings.ReplaceAll(word, "'", ""); word == "N" {
			word = "1" // a placeholder for a number
		}
		words = append(words, word)
	}
	cmd, rest, err := newTree().Find(words[1:])
	switch {
	case err != nil:
		return err.Error()
	case cmd.HasSubCommands() && (len(rest) == 0 || !strings.HasPrefix(rest[0], "-")): // "worker" is a command and has subcommands
		return fmt.Sprintf("%s has no such command", cmd.CommandPath())
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	return ""
}

// checked caches command lines, without their ids, that are correct: cobra keeps each tree of
// commands in memory.
var checked sync.Map

// commandsExist checks the commands on a page. It runs for each page that a test requests.
func commandsExist(t *testing.T, page string) {
	t.Helper()
	for _, found := range shownCommand.FindAllStringSubmatch(page, -1) {
		line := html.UnescapeString(found[1])
		pattern := numbers.ReplaceAllString(line, "0")
		if _, known := checked.Load(pattern); known {
			continue
		}
		if fault := commandFault(line); fault != "" {
			t.Errorf("a page shows the command %q: %s", line, fault)
		}
		checked.Store(pattern, true)
	}
}

// TestCommandFaults: the check of shown commands finds unknown commands and flags.
func TestCommandFaults(t *testing.T) {
	t.Parallel()
	for line, wrong := range map[string]bool{
		"conductord job change 1 --priority high": false, "conductord audit search --since '2030-01-02T03:04:00Z'": false,
		"conductord job alter 1": true, "conductord job list --colour red": true, "conductord jobs": true,
	} {
		if fault := commandFault(line); (fault != "") != wrong {
			t.Errorf("%s: fault %q", line, fault)
		}
	}
}
