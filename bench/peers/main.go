// Command peers compares conductord with other systems that run jobs durably: the same work, on the same
// machine and disk, in turns.
//
//	cd bench/peers && go run .
//	go run . -only 'dbos,etcd/post-*' -pairs 5 -window 3s
//
// Each peer has its own servers. In addition, there are a cluster of one conductord and a cluster of three. In each
// round, every work is done on all three, and the order alternates. The result is the ratio within a round: absolute
// figures drift with the machine and its other load.
//
// A peer whose server is not on the PATH is skipped, with one line that describes how to get it. Everything listens on
// loopback addresses, and is below one temporary directory that is removed at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/measure"
)

const (
	maxPairs  = 100
	maxWindow = time.Minute
	// openPatience is the maximum time for the servers of one side to start.
	openPatience = 3 * time.Minute
	// callPatience is the maximum time of a run's calls after the end of the window.
	callPatience = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	pairs        int
	warm, window time.Duration
	only         []string
	dir, binary  string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.IntVar(&o.pairs, "pairs", 3, "runs of each work on each side, in turns")
	flags.DurationVar(&o.warm, "warm", time.Second, "time of a run that does not count")
	flags.DurationVar(&o.window, "window", 3*time.Second, "time of a run that counts")
	only := flags.String("only", "*", "peers, or peer/work, by names and patterns with commas between them; peers: "+strings.Join(names(), ", "))
	flags.StringVar(&o.dir, "dir", "", "where to make the temporary directory, and so the disk that is measured")
	flags.StringVar(&o.binary, "binary", "", "the conductord executable; empty: build it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("%q is no flag", flags.Arg(0)))
	}
	if o.pairs < 1 || o.pairs > maxPairs {
		faults = append(faults, fmt.Errorf("-pairs is %d; it must be 1 to %d", o.pairs, maxPairs))
	}
	if o.warm < 0 || o.window < 100*time.Millisecond || o.warm+o.window > maxWindow {
		faults = append(faults, fmt.Errorf("-warm and -window together must be at most %s, and -window at least 100ms", maxWindow))
	}
	for pattern := range strings.SplitSeq(*only, ",") {
		if !strings.Contains(pattern, "/") {
			pattern += "/*"
		}
		o.only = append(o.only, pattern)
		known := slices.ContainsFunc(peers, func(p peer) bool { return len(p.works([]string{pattern})) > 0 })
		if !known {
			faults = append(faults, fmt.Errorf("-only has %q, which matches no peer/work; peers are %s", pattern, strings.Join(names(), ", ")))
		}
	}
	return o, errors.Join(faults...)
}

func names() []string {
	var all []string
	for _, p := range peers {
		all = append(all, p.name)
	}
	return all
}

// works returns the peer's works that match one of the patterns.
func (p peer) works(patterns []string) []work {
	return slices.DeleteFunc(works(), func(w work) bool {
		matches := func(pattern string) bool {
			matching, err := path.Match(pattern, p.name+"/"+w.name)
			return err == nil && matching
		}
		return p.postsOnly && w.steps > 0 || w.signals && (p.postsOnly || p.noSignals) || !slices.ContainsFunc(patterns, matches)
	})
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the servers die with the thread that started them
	dir, err := os.MkdirTemp(o.dir, "conductord-peers-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // servers may run as another user
		return err
	}
	if o.binary == "" {
		o.binary = filepath.Join(dir, "conductord")
		progress("building conductord")
		if err := local.Build(ctx, o.binary); err != nil {
			return err
		}
	}
	r := &report{options: o}
	for i, p := range peers {
		if ctx.Err() != nil || len(p.works(o.only)) == 0 {
			continue
		}
		if missing := p.missing(); missing != "" {
			r.note("%s: skipped, %s is not on the PATH; to get it: %s", p.name, missing, p.get)
			continue
		}
		if err := r.beside(ctx, p, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			r.fail("%s: %v", p.name, err)
		}
	}
	if _, err := io.WriteString(out, r.markdown()); err != nil {
		return fmt.Errorf("cannot write the table: %w", err)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; what is shown is what there was by then")
	}
	if r.failed {
		return errors.New("something could not be measured; see above")
	}
	return nil
}

// beside measures a peer and both clusters of conductord in turns. The servers of all three
// run the whole time.
func (r *report) beside(ctx context.Context, p peer, dir string) error {
	sides := []struct {
		name   string
		system system
	}{{p.name, p.make()}, {"conductord, one node", &conductord{binary: r.options.binary, nodes: 1}}, {"conductord, three nodes", &conductord{binary: r.options.binary, nodes: 3}}}
	var at []*servers
	for i, side := range sides {
		s := &servers{dir: filepath.Join(dir, strconv.Itoa(i))}
		defer s.close()
		if err := s.makeDir(); err != nil {
			return err
		}
		opening, cancel := context.WithTimeout(ctx, openPatience)
		about, err := side.system.open(opening, s)
		cancel()
		defer side.system.close()
		if err != nil {
			return fmt.Errorf("cannot start %s: %w", side.name, err)
		}
		r.setting(side.name, about)
		at = append(at, s)
	}
	chosen := p.works(r.options.only)
	rows := make([]row, len(chosen))
	for round := range r.options.pairs {
		for i, w := range chosen {
			if ctx.Err() != nil {
				break
			}
			rows[i].peer, rows[i].work = p.name, w.name
			var results [3]result
			var failures []error
			for turn := range sides {
				side := turn
				if round%2 == 1 {
					side = len(sides) - 1 - turn
				}
				one, err := r.measure(ctx, w, sides[side].system, at[side])
				if err != nil {
					failures = append(failures, fmt.Errorf("on %s: %w", sides[side].name, err))
				}
				results[side] = one
			}
			if err := errors.Join(failures...); err != nil {
				r.fail("%s/%s, round %d: %v", p.name, w.name, round+1, err)
				continue
			}
			rows[i].add(results)
			progress("%s/%s, round %d of %d: %s; one node: %s; three: %s", p.name, w.name, round+1, r.options.pairs, results[0], results[1], results[2])
		}
	}
	r.rows = append(r.rows, rows...)
	return nil
}

// measure does one work on one side.
func (r *report) measure(ctx context.Context, w work, on system, s *servers) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.warm+r.options.window+callPatience)
	defer cancel()
	call := on.post
	switch {
	case w.signals:
		call = on.signal
	case w.steps > 0:
		call = func(ctx context.Context) error { return on.flow(ctx, w.steps) }
	}
	var marks []time.Duration
	load := measure.Load{Callers: w.callers, PerCall: 1, Warm: r.options.warm, Window: r.options.window}
	run, err := measure.Drive(ctx, load, call, func(context.Context) error {
		used, err := s.cpu()
		marks = append(marks, used)
		return err
	})
	if err != nil {
		return result{}, err
	}
	if run.Operations == 0 {
		return result{}, errors.New("no call ended in the window; use a longer -window")
	}
	return result{Run: run, cpu: (marks[1] - marks[0]) / time.Duration(run.Operations)}, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "peers: "+format+"\n", args...) }
