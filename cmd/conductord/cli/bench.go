package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/bench/load"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

const (
	// benchBoard is where no conductor looks unless it is told to, so that
	// posts stay posts.
	benchBoard = "bench"
	benchKind  = "bench"
	// maxBenchClients bounds the callers of one process: beyond that, it is the
	// process that is measured.
	maxBenchClients  = 4096
	minBenchDuration = 100 * time.Millisecond
	endless          = time.Duration(math.MaxInt64)
	// maxBenchRounds bounds what one run leaves among the finished jobs.
	maxBenchRounds = 10_000
	// clearLine goes to the beginning of a terminal's line and empties it.
	clearLine = "\r\x1b[K"
)

// benchFlags are what benchmarks can be given; each has flags for what it heeds.
type benchFlags struct {
	clients  int
	duration time.Duration
	board    string
	batch    int
	size     int           // of a job's details; 0: it has none
	calls    int           // of all clients together; 0: as many as fit into the duration
	ttl      time.Duration // of a session that falls silent
}

// benchRun is a benchmark that is ready: its call, or one that measures itself,
// and what is to be done when it is over, also after an interruption.
type benchRun struct {
	call  load.Call
	timed load.TimedCall
	end   func(context.Context) error
	// idle is what to say if there was nothing to do; empty: there always is.
	idle string
}

// drive puts the load on.
func (r *benchRun) drive(ctx context.Context, f benchFlags, progress func(load.Progress)) *load.Result {
	wanted := load.Load{Callers: f.clients, Duration: f.duration, Calls: f.calls}
	if r.timed != nil {
		return load.DriveTimed(ctx, wanted, r.timed, progress)
	}
	return load.Drive(ctx, wanted, r.call, progress)
}

func (p *Program) benchCommand() *cobra.Command {
	return Noun("bench", "Measure a cluster from here",
		p.benchVerb("post", "Post jobs, which stay on the board: bench claim takes them away", p.benchPost),
		p.benchVerb("claim", "Claim jobs that bench post has posted, and complete them", p.benchClaim),
		p.benchVerb("flow", "Post jobs with a flow of three steps that do nothing, run them here, and wait for each", p.benchFlow),
		p.benchVerb("read", "Read a job, linearizably", p.benchRead),
		p.benchVerb("takeover", "Let owners of jobs fall silent, and see how long it takes until another has the job", p.benchTakeover))
}

func (p *Program) benchVerb(verb, short string, start func(context.Context, Cluster, benchFlags) (*benchRun, error)) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   verb,
		Short: short,
		Long: short + ".\n\nClients call again and again, each with one call in flight. They share one connection, which packs\n" +
			"what waits at the same time into one call, as programs with the client library do.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.calls > 0 && !cmd.Flags().Changed("duration") {
				f.duration = endless // the calls are the end
			}
			if err := f.check(verb); err != nil {
				return usageError{err}
			}
			return p.waiting(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				return p.bench(ctx, cluster, verb, f, start)
			})
		},
	}
	f.define(verb, cmd.Flags())
	return cmd
}

// define makes the flags that a benchmark heeds.
func (f *benchFlags) define(verb string, flags *pflag.FlagSet) {
	const clients, duration, size, rounds = 64, 10 * time.Second, 512, 100
	flags.IntVar(&f.clients, "clients", clients, "callers at once")
	flags.StringVar(&f.board, "board", benchBoard, "the board to use")
	f.batch = 1
	switch verb {
	case "post":
		flags.IntVar(&f.batch, "batch", 1, "jobs in a call, up to "+strconv.Itoa(command.MaxPostings))
		flags.IntVar(&f.size, "size", size, "bytes of details of a job; 0: none")
	case "claim":
		flags.IntVar(&f.batch, "batch", 1, "jobs claimed in a call, at most")
	case "flow":
		flags.IntVar(&f.batch, "batch", 1, "jobs posted in a call, each of which is waited for, up to "+strconv.Itoa(command.MaxPostings))
		flags.IntVar(&f.size, "size", 0, "bytes of details of a job; 0: none")
	case "read":
		flags.IntVar(&f.size, "size", size, "bytes of details of the job; 0: none")
	case "takeover":
		flags.IntVar(&f.calls, "rounds", rounds, "how many owners fall silent, one after the other for each client")
		flags.DurationVar(&f.ttl, "ttl", jobs.DefaultTTL, "the TTL of their sessions")
		return // a round ends when it ends
	}
	flags.DurationVar(&f.duration, "duration", duration, "for how long")
	flags.IntVar(&f.calls, "calls", 0, "end after so many calls of all clients together, without --duration however long they take; 0: any number")
}

func (f benchFlags) check(verb string) error {
	most := maxBenchClients
	if verb == "claim" || verb == "takeover" {
		most = jobs.MaxClaims // they share a session
	}
	const quotes = 2
	switch {
	case f.clients < 1 || f.clients > most:
		return fmt.Errorf("--clients must be 1 to %d, not %d", most, f.clients)
	case verb == "takeover" && (f.calls < 1 || f.calls > maxBenchRounds):
		return fmt.Errorf("--rounds must be 1 to %d, not %d", maxBenchRounds, f.calls)
	case f.calls < 0:
		return fmt.Errorf("--calls must be 0 or more, not %d", f.calls)
	case verb == "takeover" && (f.ttl < jobs.MinTTL || f.ttl > jobs.MaxTTL):
		return fmt.Errorf("--ttl must be %s to %s, not %s", jobs.MinTTL, jobs.MaxTTL, f.ttl)
	case verb != "takeover" && f.duration < minBenchDuration:
		return fmt.Errorf("--duration must be at least %s, not %s", minBenchDuration, f.duration)
	case f.batch < 1 || f.batch > command.MaxPostings:
		return fmt.Errorf("--batch must be 1 to %d, not %d", command.MaxPostings, f.batch)
	case verb == "claim" && f.clients*f.batch > jobs.MaxClaims:
		return fmt.Errorf("--clients times --batch must be at most %d, not %d: they share a session", jobs.MaxClaims, f.clients*f.batch)
	case f.size != 0 && f.size < quotes:
		return fmt.Errorf("--size must be 0 or at least %d, not %d: details are a text in quotes", quotes, f.size)
	}
	return nil
}

// details are what each job carries.
func (f benchFlags) details() json.RawMessage {
	if f.size == 0 {
		return nil
	}
	text := bytes.Repeat([]byte{'d'}, f.size)
	text[0], text[f.size-1] = '"', '"'
	return text
}

// bench does one benchmark and shows what came of it.
func (p *Program) bench(ctx context.Context, cluster Cluster, verb string, f benchFlags,
	start func(context.Context, Cluster, benchFlags) (*benchRun, error),
) (err error) {
	run, err := start(ctx, cluster, f)
	if err != nil {
		return because(err, "prepare bench %s", verb)
	}
	result := run.drive(ctx, f, p.benchProgress())
	if p.Terminal {
		fmt.Fprint(p.Err, clearLine)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := run.end(ending); err != nil {
		p.Note("%v", because(err, "clean up after bench %s", verb))
	}
	if result.Operations == 0 && result.First != nil {
		return because(result.First, "bench %s", verb)
	}
	if err := p.writeBench(verb, f, result); err != nil {
		return err
	}
	if result.Operations == 0 && run.idle != "" {
		p.Note("%s", run.idle)
	}
	if result.First != nil {
		p.Note("%d calls have failed; the first: %v", result.Errors, result.First)
	}
	return ctx.Err()
}

// benchProgress draws one line over itself, on a terminal only.
func (p *Program) benchProgress() func(load.Progress) {
	if !p.Terminal {
		return nil
	}
	return func(now load.Progress) {
		fmt.Fprintf(p.Err, clearLine+"%s: %d operations, %.0f a second, %d errors",
			now.Elapsed.Round(time.Second), now.Operations, now.PerSecond, now.Errors)
	}
}

// benchResult is the result as JSON, with times in milliseconds.
type benchResult struct {
	Bench      string  `json:"bench"`
	Clients    int     `json:"clients"`
	Batch      int     `json:"batch"`
	Size       int     `json:"size,omitempty"`   // bytes of details
	TTL        float64 `json:"ttl_ms,omitempty"` // of a session that falls silent
	Seconds    float64 `json:"seconds"`
	Operations uint64  `json:"operations"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"` // of a call, as the others
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	Max        float64 `json:"max_ms"`
	Errors     uint64  `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
}

// benchHeader returns the columns of a result.
func benchHeader() []string {
	return []string{"operations", "a second", "p50", "p95", "p99", "p99.9", "max", "errors"}
}

func (p *Program) writeBench(verb string, f benchFlags, r *load.Result) error {
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	shown := benchResult{
		Bench: verb, Clients: f.clients, Batch: f.batch, Size: f.size, TTL: milliseconds(f.ttl), Seconds: r.Elapsed.Seconds(), Operations: r.Operations, PerSecond: r.PerSecond,
		P50: milliseconds(r.Calls.Quantile(0.5)), P95: milliseconds(r.Calls.Quantile(0.95)), P99: milliseconds(r.Calls.Quantile(0.99)),
		P999: milliseconds(r.Calls.Quantile(0.999)), Max: milliseconds(r.Calls.Max()), Errors: r.Errors,
	}
	if r.First != nil {
		shown.FirstError = r.First.Error()
	}
	if p.JSON() {
		return p.WriteJSON(shown)
	}
	if r.Operations == 0 {
		return p.writeTable(benchHeader(), nil) // times of nothing mean nothing
	}
	row := []string{strconv.FormatUint(shown.Operations, 10), fmt.Sprintf("%.0f", shown.PerSecond)}
	for _, value := range []float64{shown.P50, shown.P95, shown.P99, shown.P999, shown.Max} {
		row = append(row, fmt.Sprintf("%.2f ms", value))
	}
	row = append(row, strconv.FormatUint(shown.Errors, 10))
	return p.writeTable(benchHeader(), [][]string{row})
}

// benchPost posts jobs that nobody takes.
func (p *Program) benchPost(_ context.Context, cluster Cluster, f benchFlags) (*benchRun, error) {
	details := f.details()
	return &benchRun{
		call: func(ctx context.Context) (int, error) {
			postings := make([]jobs.Posting, f.batch)
			for i := range postings {
				postings[i] = jobs.Posting{Board: f.board, Name: "bench", Kind: benchKind, Details: details}
			}
			posted, err := cluster.Post(ctx, postings...)
			for i := 0; i < len(posted) && err == nil; i++ {
				err = posted[i].Err
			}
			return len(posted), err
		},
		end: func(context.Context) error { return nil },
	}, nil
}
