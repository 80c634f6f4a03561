// Command conductord is the one binary: the daemon, and the commands that talk
// to a cluster of daemons.
//
// A command is a noun and then a verb, and each noun has a file. Results go to
// stdout and everything else to stderr; with -o json the result is one JSON
// document, except that watching gives one for each line. The exit code says
// what kind of thing happened (see exit.go).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	// The zones of schedules, for machines that have no zone data of their own;
	// that of the machine is used where there is any.
	_ "time/tzdata"

	"golang.org/x/term"
)

func main() {
	program := Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ(), Dial: dial,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
		Size: func() (width, height int) {
			width, height, _ = term.GetSize(int(os.Stderr.Fd())) // not known: any size will do
			return width, height
		},
	}
	os.Exit(program.main(os.Args[1:]))
}

// main runs the program until it ends or a signal ends it.
func (p *Program) main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal finds the default behaviour, so that a command that is
	// slow to end can still be ended.
	defer context.AfterFunc(ctx, stop)()
	return p.Run(ctx, args)
}
