// Command man writes a manual page for each command of conductord into a directory, and the
// completions of its command line for three shells. Packages of conductord contain these
// files.
//
//	go run ./deploy/man DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot write manual pages:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	root := commands.Of(&cli.Program{}).Root()
	root.InitDefaultCompletionCmd()
	// The date of the commit, so that repeated builds are identical.
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the seconds of the commit: %w", err)
	}
	date := time.Unix(seconds, 0).UTC()
	for _, below := range []string{"man", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, below), 0o755); err != nil {
			return err
		}
	}
	header := doc.GenManHeader{Section: "1", Date: &date, Source: "conductord", Manual: "conductord"}
	defaultsOnce(root)
	if err := doc.GenManTree(root, &header, filepath.Join(dir, "man")); err != nil {
		return err
	}
	return writeCompletions(root, filepath.Join(dir, "completions"))
}

// defaultsOnce makes the pages show a flag like its help: the type of its value after the name, and a
// non-empty default after the text.
func defaultsOnce(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		defaultsOnce(below)
	}
	change := func(flag *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(flag)
		switch flag.DefValue {
		case "", "0", "false", "[]", "0s", kind:
		default:
			if !strings.Contains(usage, "(default") {
				usage += " (default " + flag.DefValue + ")"
			}
		}
		flag.Usage, flag.DefValue = usage, kind
		if flag.Value.Type() == "bool" {
			flag.DefValue = "true"
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(change)
	cmd.PersistentFlags().VisitAll(change)
}

func writeCompletions(root *cobra.Command, dir string) error {
	if err := root.GenBashCompletionFileV2(filepath.Join(dir, "conductord.bash"), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(filepath.Join(dir, "_conductord")); err != nil {
		return err
	}
	return root.GenFishCompletionFile(filepath.Join(dir, "conductord.fish"), true)
}
