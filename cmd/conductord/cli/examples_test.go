package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
)

// newTree is the tree of all commands.
func newTree() *cobra.Command {
	return commands.Of(&cli.Program{}).Root()
}

// eachCommand calls do for every command of the program, but not for cobra's built-in commands.
func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, child := range cmd.Commands() {
		if child.Name() != "help" && child.Name() != "completion" {
			eachCommand(child, do)
		}
	}
}

// TestExamples: each command with an action has an example in its help, and each example is a
// command line of that command.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("examples.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	eachCommand(newTree(), func(cmd *cobra.Command) {
		switch {
		case cmd.CommandPath() == "conductord worker": // a command with an action of its own and subcommands
		case cmd.HasSubCommands() && cmd.Example != "":
			t.Errorf("%s does nothing, and has the example %s", cmd.CommandPath(), cmd.Example)
		case !cmd.HasSubCommands() && cmd.Example == "":
			t.Errorf("%s has no example: add one to examples.txt", cmd.CommandPath())
		}
		for _, line := range strings.FieldsFunc(cmd.Example, func(r rune) bool { return r == '\n' }) {
			shown++
			if err := parses(strings.TrimPrefix(line, "  "), cmd.CommandPath()); err != "" {
				t.Errorf("%s: %s", line, err)
			}
		}
	})
	if lines := strings.Count(string(text), "\n"); shown != lines {
		t.Errorf("%d of the %d lines of examples.txt are shown", shown, lines)
	}
}

var shellWord = regexp.MustCompile(`('[^']*'|[^\s'])+`)

// parses describes why a line is not a valid command line; empty: it is valid.
func parses(line, path string) string {
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " > ")
	if !strings.HasPrefix(line+" ", path+" ") {
		return "it is one of another command than " + path
	}
	var words []string
	for _, word := range shellWord.FindAllString(line, -1) {
		words = append(words, strings.ReplaceAll(word, "'", ""))
	}
	cmd, rest, err := newTree().Find(words[1:])
	for _, check := range []func() error{
		func() error { return cmd.ParseFlags(rest) },
		func() error { return cmd.ValidateArgs(cmd.Flags().Args()) }, cmd.ValidateRequiredFlags, cmd.ValidateFlagGroups,
	} {
		if err == nil {
			err = check()
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestExamplesCanBeWrong: parses finds wrong examples.
func TestExamplesCanBeWrong(t *testing.T) {
	for line, good := range map[string]bool{
		"conductord job get ID": true, "conductord job get ID | cat": true, "conductord job post --reason 'a b'": false,
		"conductord job get": false, "conductord job get A B": false, "conductord job get ID --colour": false, "conductord trash show ID": false,
		"conductord job post --kind a --name 'a b' --priority-step x": false, "conductord job post --kind a --name 'a b'": true,
	} {
		path := "conductord job " + strings.Fields(line)[2]
		if got := parses(line, path); (got == "") != good {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// TestHelpTexts: help texts begin with a capital letter and show defaults in one form.
func TestHelpTexts(t *testing.T) {
	inParentheses := regexp.MustCompile(`\(([^()]*)\)$`)
	other := regexp.MustCompile(`^(default |CONDUCTORD_|2030-|2026-|TOML|Linux|-o json|INDEX-ITEM|JSON |a UUID|10m$)`)
	eachCommand(newTree(), func(cmd *cobra.Command) {
		if short := cmd.Short; short == "" || strings.ToUpper(short[:1]) != short[:1] || strings.HasSuffix(short, ".") {
			t.Errorf("%s: %q", cmd.CommandPath(), short)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if found := inParentheses.FindStringSubmatch(flag.Usage); found != nil && !other.MatchString(found[1]) {
				t.Errorf("%s --%s: %q ends with what looks like a default: write (default %s)", cmd.CommandPath(), flag.Name, flag.Usage, found[1])
			}
		})
	})
}
