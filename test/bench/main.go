// Command bench measures conductord beside its floor: three server processes,
// and three processes of bare hashicorp/raft on the same machine and disk,
// under the same load in turns.
//
//	go run ./test/bench
//
// Each pair of runs has new clusters, so that no run pays for what an earlier
// one has left behind. What counts is the ratio of the two sides of a pair:
// absolute figures drift with the machine and with what else it does.
//
// The table goes to stdout, or the whole report as JSON with -o json; progress
// goes to stderr. Only loopback addresses are used, and everything is below
// one temporary directory that is removed at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/test/bench/bareraft"
)

const (
	mainPackage = "github.com/conductord/conductord/cmd/conductord"
	// floorMode is how this program starts itself as a process of the floor.
	floorMode = "floor"
	// overhead is the time beyond the runs themselves that a pair may take: six
	// processes start, elect and stop.
	overhead = time.Minute
	maxPairs = 100
)

// options are the flags.
type options struct {
	pairs  int
	warm   time.Duration
	window time.Duration
	output string
	dir    string
	binary string
	only   string
	store  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == floorMode {
		err = bareraft.Serve(ctx, os.Stdin, os.Stdout)
	} else {
		err = bench(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags() (options, error) {
	var o options
	flag.IntVar(&o.pairs, "pairs", 3, "runs of each work on each side, in turns")
	flag.DurationVar(&o.warm, "warm", time.Second, "time of a run that does not count")
	flag.DurationVar(&o.window, "window", 4*time.Second, "time of a run that counts")
	flag.StringVar(&o.output, "o", "table", "table or json")
	flag.StringVar(&o.dir, "dir", "", "where to make the temporary directory, and so the disk that is measured")
	flag.StringVar(&o.binary, "binary", "", "the conductord executable; empty: build it")
	flag.StringVar(&o.only, "only", "", "the name of the only work to do; empty: all")
	flag.StringVar(&o.store, "log-store", config.Default().LogStore, "the log store of both sides: bolt or wal")
	flag.Parse()
	var faults []error
	if o.pairs < 1 || o.pairs > maxPairs {
		faults = append(faults, fmt.Errorf("-pairs is %d; it must be 1 to %d", o.pairs, maxPairs))
	}
	if o.warm < 0 || o.window < 100*time.Millisecond || o.warm+o.window > time.Minute {
		faults = append(faults, errors.New("-warm and -window together must be at most 1m, and -window at least 100ms"))
	}
	if o.output != "table" && o.output != "json" {
		faults = append(faults, fmt.Errorf("-o is %q; it must be table or json", o.output))
	}
	if !slices.Contains(config.LogStores, o.store) {
		faults = append(faults, fmt.Errorf("-log-store is %q; it must be one of %v", o.store, config.LogStores))
	}
	if len(chosen(o.only)) == 0 {
		faults = append(faults, fmt.Errorf("-only is %q; it must be one of %v", o.only, names()))
	}
	return o, errors.Join(faults...)
}

func bench(ctx context.Context) (err error) {
	o, err := parseFlags()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "conductord-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.binary == "" {
		o.binary = filepath.Join(dir, "conductord")
		if err := build(ctx, o.binary); err != nil {
			return err
		}
	}
	works := chosen(o.only)
	limit := time.Duration(o.pairs) * (overhead + time.Duration(2*len(works))*(o.warm+o.window))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report := newReport(o, works)
	for pair := range o.pairs {
		if err := measurePair(ctx, o, filepath.Join(dir, fmt.Sprint("pair", pair+1)), report); err != nil {
			return fmt.Errorf("pair %d: %w", pair+1, err)
		}
	}
	report.finish()
	if o.output == "json" {
		return report.writeJSON(os.Stdout)
	}
	return report.writeTable(os.Stdout)
}

func build(ctx context.Context, binary string) error {
	progress("building conductord")
	command := exec.CommandContext(ctx, "go", "build", "-o", binary, mainPackage)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("cannot build conductord: %w", err)
	}
	return nil
}

// measurePair starts both sides and does every work on each in turn.
func measurePair(ctx context.Context, o options, dir string, report *report) (err error) {
	side, err := startCluster(ctx, o.binary, filepath.Join(dir, "conductord"), o.store)
	if err != nil {
		return err
	}
	defer side.close()
	floor, err := startFloor(ctx, filepath.Join(dir, "floor"), o.store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.close(), os.RemoveAll(dir)) }()
	for i := range report.Works {
		entry := &report.Works[i]
		load := entry.load
		load.Warm, load.Window = o.warm, o.window
		ours, cost, err := side.measure(ctx, entry.work, load)
		if err != nil {
			return fmt.Errorf("%s on conductord: %w", entry.Name, err)
		}
		progress("%s: conductord %.0f/s", entry.Name, ours.PerSecond)
		size := entry.floorBytes(cost)
		bare, entries, err := floor.measure(ctx, entry.floorLoad(load), size)
		if err != nil {
			return fmt.Errorf("%s on bare raft: %w", entry.Name, err)
		}
		progress("%s: bare raft %.0f/s with commands of %d bytes", entry.Name, bare.PerSecond, size)
		entry.add(ours, cost, bare, entries, size)
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
