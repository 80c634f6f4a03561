// Command bench compares conductord with its floor: three server processes, and three processes of
// bare hashicorp/raft on the same machine and disk, under the same load in turns.
//
//	cd bench && go run .
//	cd bench && go run . -full
//
// Each pair of runs has new clusters, so no run pays for the remains of an earlier one.
// The result is the ratio of the two sides of a pair: absolute figures drift with the
// machine and its other load.
//
// Then a cluster is filled with waiting jobs. The works are done there and on a cluster with
// few jobs, again in turns. The benchmark also measures memory and files of the nodes, the
// start time of a node, and the time for which a snapshot delays writes.
//
// Two measurements use a cluster with TLS and access control: the cost of both, and the slowdown
// of honest callers under attack.
//
// Results appear on stderr one by one, and together at the end on stdout, as a table or as
// JSON. A work that fails is reported, and the other works continue. An interrupted run shows
// its results so far. Only loopback addresses are used, and everything is below one temporary
// directory that is removed at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/conductord/conductord/bench/bareraft"
	"github.com/conductord/conductord/cmd/local"
)

// floorMode is the argument with which this program starts itself as a process of the floor.
const floorMode = "floor"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == floorMode {
		err = bareraft.Serve(ctx, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	return measureAll(ctx, o, out)
}

// measureAll does the chosen measurements, and writes the report.
func measureAll(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "conductord-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.binary == "" {
		o.binary = filepath.Join(dir, "conductord")
		progress("building conductord")
		if err := local.Build(ctx, o.binary); err != nil {
			return err
		}
	}
	r := &report{Began: time.Now().UTC(), Machine: thisMachine(), Options: o}
	b := &bench{o: o, dir: dir, report: r}
	b.againstFloor(ctx)
	if ctx.Err() == nil && b.o.chosen[hostileName] {
		b.hostile(ctx)
	}
	if ctx.Err() == nil && b.o.chosen[guardedName] {
		b.guarded(ctx)
	}
	if ctx.Err() == nil && b.o.chosen[workersName] {
		b.workers(ctx)
	}
	if ctx.Err() == nil && b.o.chosen[aheadName] {
		b.repeatable(ctx)
	}
	if ctx.Err() == nil && o.Waits > 0 && b.o.chosen[waitingName] {
		b.waiting(ctx)
	}
	if o.Fill > 0 {
		b.amongMany(ctx)
	}
	write := r.writeTable
	if o.output == "json" {
		write = r.writeJSON
	}
	if err := write(out); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; what is shown is what there was by then")
	}
	if r.failed() {
		return errors.New("something could not be measured; see above")
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
