package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/cmd/conductord/commands"
	"github.com/conductord/conductord/internal/longtest"
)

// argument matches a required argument in a usage line; optional arguments are in brackets.
var argument = regexp.MustCompile(`(?:^| )[A-Z][A-Z-]*\b`)

// TestUsageErrorsOfTheTree: every wrong command line of every command gives the exit code for
// usage errors, before a server is called. This includes errors that the flag library finds.
func TestUsageErrorsOfTheTree(t *testing.T) {
	longtest.Skip(t)
	const deaf = "x\x01" // not a valid number, time, id or name
	lines := 0
	wrong := func(line ...string) {
		t.Helper()
		lines++
		if got := clitest.Run(t, nil, line...); got.Code != cli.ExitUsage || got.Out != "" {
			t.Errorf("conductord %q: code %d\nstdout %s\nstderr %s", line, got.Code, got.Out, got.Err)
		}
	}
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		with := func(more ...string) []string { return append(append([]string{}, path...), more...) }
		for _, child := range cmd.Commands() {
			walk(child, with(child.Name()))
		}
		wrong(with("--no-such-flag")...)
		if cmd.HasSubCommands() {
			wrong(with("no-such-verb")...)
			return
		}
		usage := strings.TrimPrefix(cmd.Use, cmd.Name())
		needed := len(argument.FindAllString(regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(usage, ""), -1))
		if needed > 0 {
			wrong(path...)
		}
		if !strings.Contains(usage, "...") && cmd.Args != nil {
			wrong(with("a", "b", "c", "d")...)
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if _, required := flag.Annotations[cobra.BashCompOneRequiredFlag]; required {
				wrong(path...)
			}
			switch flag.Value.Type() {
			case "string", "stringSlice", "stringArray": // each command parses these values itself: see TestWrongCommandLines
			default:
				wrong(with("--" + flag.Name + "=" + deaf)...)
			}
		})
	}
	walk(commands.Of(&cli.Program{}).Root(), nil)
	const several = 200
	if lines < several {
		t.Errorf("only %d command lines were tried", lines)
	}
	t.Logf("%d wrong command lines", lines)
}

// TestWhatMustBeSaid: each command with a required flag names it when it is missing.
func TestWhatMustBeSaid(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000001"
	for _, row := range []struct{ args, want string }{
		{"schedule set s", "--rule"},
		{"schedule set s --rule @daily", "--flow, --book or --kind"},
		{"schedule backfill s", "--since"},
		{"job post", "--flow, --book or --kind"},
		{"job change " + id, "--not-before"},
		{"job wait", "--board"},
		{"claim extend " + id, "token"},
		{"claim extend " + id + " --token 1-1", "claim expiry is invalid"},
		{"board limit default", "--jobs"},
		{"bulk cancel", "at least one filter"},
		{"server", "must be set"},
		{"log-store convert --to wal", "data-dir"},
		{"log-store compact", "data-dir"},
	} {
		got := clitest.Run(t, clitest.Open(t), strings.Fields(row.args)...)
		if got.Code != cli.ExitUsage || !strings.Contains(got.Err, row.want) || got.Out != "" {
			t.Errorf("conductord %s: %+v", row.args, got)
		}
	}
}
