// Command conductord is the one binary: the daemon, and the commands that talk
// to a cluster of daemons.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/commands"
)

func main() {
	program := cli.Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ(), Dial: cli.Dial, Zone: time.Local,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
		Size: func() (width, height int) {
			width, height, _ = term.GetSize(int(os.Stderr.Fd())) // not known: any size will do
			return width, height
		},
	}
	program.ConfigDir, _ = os.UserConfigDir() // without one there are no profiles
	if out := int(os.Stdout.Fd()); term.IsTerminal(out) {
		program.Columns = func() int {
			width, _, _ := term.GetSize(out)
			return width
		}
	}
	os.Exit(run(commands.Of(&program), os.Args[1:]))
}

// run runs the program until it ends or a signal ends it.
func run(program *cli.Program, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		var stay context.CancelFunc
		ctx, stay = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stay() // not before the end: a closed terminal sends the signal more than once
	}
	// A second signal has its default effect, so that it ends a command that is slow to stop.
	defer context.AfterFunc(ctx, stop)()
	return program.Run(ctx, args)
}
