// Command conductord is the single binary: the daemon, and the commands that call a cluster of
// daemons.
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
			width, height, _ = term.GetSize(int(os.Stderr.Fd())) // unknown: any size is accepted
			return width, height
		},
	}
	program.ConfigDir, _ = os.UserConfigDir() // without it there are no profiles
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
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		var stay context.CancelFunc
		ctx, stay = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stay() // only at the end: a closed terminal sends the signal more than once
	}
	// A second signal has its default effect, so that it ends a command that is slow to stop.
	defer context.AfterFunc(ctx, stop)()
	return program.Run(ctx, args)
}
