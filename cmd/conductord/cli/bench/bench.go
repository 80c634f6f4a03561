// Package bench has the commands that measure a cluster.
package bench

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/bench/workload"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/load"
	"github.com/conductord/conductord/jobs"
)

const (
	// benchBoard is a board that no conductor serves by default, so the posted jobs stay
	// unclaimed.
	benchBoard = "bench"
	// maxBenchClients bounds the callers of one process. With more callers, the run measures
	// the process and not the cluster.
	maxBenchClients  = 4096
	minBenchDuration = 100 * time.Millisecond
	endless          = time.Duration(math.MaxInt64)
	// maxBenchRounds limits the finished jobs that one run leaves on the board.
	maxBenchRounds = 10_000
	// clearLine moves to the start of a terminal's line and clears it.
	clearLine = "\r\x1b[K"
)

// Command makes the noun of benchmarks.
func Command(p *cli.Program) *cobra.Command {
	return cli.Noun("bench", "Measure a cluster from this machine",
		benchVerb(p, "post", "Post jobs; bench claim removes them", workload.Post),
		benchVerb(p, "claim", "Claim and complete jobs posted by bench post", workload.Claim),
		benchVerb(p, "flow", "Post jobs with a flow of three empty steps, run them in this process, and wait for each job", workload.Flow),
		benchVerb(p, "read", "Read a job linearizably", workload.Read),
		benchVerb(p, "takeover", "Stop the keep-alives of job owners, and measure the time until another owner has the job", workload.Takeover))
}

func benchVerb(p *cli.Program, verb, short string, start func(context.Context, workload.Cluster, workload.Options) (*workload.Workload, error)) *cobra.Command {
	var f workload.Options
	cmd := &cobra.Command{
		Use:   verb,
		Short: short,
		Long: short + ".\n\nEach client sends one call after another. All clients share one connection, which\n" +
			"batches concurrent requests, like every program with the client library.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Calls > 0 && !cmd.Flags().Changed("duration") {
				f.Duration = endless // the number of calls ends the run
			}
			if err := checkBench(f, verb); err != nil {
				return cli.UsageError(err)
			}
			return p.Waiting(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				return bench(ctx, p, verb, f, func() (*workload.Workload, error) { return start(ctx, cluster, f) })
			})
		},
	}
	defineBench(&f, verb, cmd.Flags())
	return cmd
}

// defineBench defines the flags of a benchmark.
func defineBench(f *workload.Options, verb string, flags *pflag.FlagSet) {
	const clients, duration, size, rounds = 64, 10 * time.Second, 512, 100
	flags.IntVar(&f.Clients, "clients", clients, "parallel clients")
	flags.StringVar(&f.Board, "board", benchBoard, "board to use")
	f.Batch = 1
	switch verb {
	case "post":
		flags.IntVar(&f.Batch, "batch", 1, "jobs per call, at most "+strconv.Itoa(command.MaxPostings))
		flags.IntVar(&f.Size, "size", size, "bytes of details of each job; 0: none")
	case "claim":
		flags.IntVar(&f.Batch, "batch", 1, "maximum jobs per call")
	case "flow":
		flags.IntVar(&f.Batch, "batch", 1, "jobs posted per call, at most "+strconv.Itoa(command.MaxPostings))
		flags.IntVar(&f.Size, "size", 0, "bytes of details of each job; 0: none")
	case "read":
		flags.IntVar(&f.Size, "size", size, "bytes of details of the job; 0: none")
	case "takeover":
		flags.IntVar(&f.Calls, "rounds", rounds, "number of owners to stop; each client stops one at a time")
		flags.DurationVar(&f.TTL, "ttl", jobs.DefaultTTL, "TTL of the owners' sessions")
		return // each round ends by itself
	}
	flags.DurationVar(&f.Duration, "duration", duration, "duration of the measurement")
	flags.IntVar(&f.Calls, "calls", 0, "stop after this many calls of all clients; 0: no limit. With --calls and without --duration, there is no time limit")
}

func checkBench(f workload.Options, verb string) error {
	most := maxBenchClients
	if verb == "claim" || verb == "takeover" {
		most = jobs.MaxClaims // all clients share a session
	}
	const quotes = 2
	switch {
	case f.Clients < 1 || f.Clients > most:
		return fmt.Errorf("--clients must be 1 to %d, not %d", most, f.Clients)
	case verb == "takeover" && (f.Calls < 1 || f.Calls > maxBenchRounds):
		return fmt.Errorf("--rounds must be 1 to %d, not %d", maxBenchRounds, f.Calls)
	case f.Calls < 0:
		return fmt.Errorf("--calls must be 0 or more, not %d", f.Calls)
	case verb == "takeover" && (f.TTL < jobs.MinTTL || f.TTL > jobs.MaxTTL):
		return fmt.Errorf("--ttl must be %s to %s, not %s", jobs.MinTTL, jobs.MaxTTL, f.TTL)
	case verb != "takeover" && f.Duration < minBenchDuration:
		return fmt.Errorf("--duration must be at least %s, not %s", minBenchDuration, f.Duration)
	case f.Batch < 1 || f.Batch > command.MaxPostings:
		return fmt.Errorf("--batch must be 1 to %d, not %d", command.MaxPostings, f.Batch)
	case verb == "claim" && f.Clients*f.Batch > jobs.MaxClaims:
		return fmt.Errorf("--clients times --batch must be at most %d, not %d: they share a session", jobs.MaxClaims, f.Clients*f.Batch)
	case f.Size != 0 && f.Size < quotes:
		return fmt.Errorf("--size must be 0 or at least %d, not %d: details are a text in quotes", quotes, f.Size)
	}
	return nil
}

// bench runs one benchmark and shows its result.
func bench(ctx context.Context, p *cli.Program, verb string, f workload.Options, start func() (*workload.Workload, error)) error {
	run, err := start()
	if err != nil {
		return cli.Because(err, "prepare bench %s", verb)
	}
	result := run.Drive(ctx, f, benchProgress(p))
	if p.Terminal {
		fmt.Fprint(p.Err, clearLine)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
	defer cancel()
	if err := run.End(ending); err != nil {
		p.Note("%v", cli.Because(err, "clean up after bench %s", verb))
	}
	if result.Operations == 0 && result.First != nil {
		return cli.Because(result.First, "bench %s", verb)
	}
	if err := writeBench(p, verb, f, result); err != nil {
		return err
	}
	if result.Operations == 0 && run.Idle != "" {
		p.Note("%s", run.Idle)
	}
	if result.First != nil {
		p.Note("%d calls failed; first error: %v", result.Errors, result.First)
	}
	return ctx.Err()
}

// benchProgress repeatedly redraws one line, only on a terminal.
func benchProgress(p *cli.Program) func(load.Progress) {
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
	Size       int     `json:"size,omitempty"`   // bytes of a job's details
	TTL        float64 `json:"ttl_ms,omitempty"` // TTL of a silent session
	Seconds    float64 `json:"seconds"`
	Operations uint64  `json:"operations"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"` // latencies of a call
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

func writeBench(p *cli.Program, verb string, f workload.Options, r *load.Result) error {
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	shown := benchResult{
		Bench: verb, Clients: f.Clients, Batch: f.Batch, Size: f.Size, TTL: milliseconds(f.TTL), Seconds: r.Elapsed.Seconds(), Operations: r.Operations, PerSecond: r.PerSecond,
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
		return p.WriteTable(benchHeader(), nil) // without operations there are no latencies
	}
	row := []string{strconv.FormatUint(shown.Operations, 10), fmt.Sprintf("%.0f", shown.PerSecond)}
	for _, value := range []float64{shown.P50, shown.P95, shown.P99, shown.P999, shown.Max} {
		row = append(row, fmt.Sprintf("%.2f ms", value))
	}
	row = append(row, strconv.FormatUint(shown.Errors, 10))
	return p.WriteTable(benchHeader(), [][]string{row})
}
