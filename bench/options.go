package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/config"
)

const (
	maxPairs  = 100
	maxWindow = time.Minute
	// fewWaiting is the number of waiting jobs in the comparison for "many".
	fewWaiting = 1_000
	// maxFill is the number of jobs that a usual disk can hold. A job takes about 10 KiB on
	// each node: state, log and two snapshots.
	maxFill = 10_000_000
	// maxWaits is the number of waiting flows that a run brings to their wait within minutes.
	maxWaits = 1_000_000
	// waitingBytes is the size of the details of each job that waits.
	waitingBytes = 1 << 10
)

// options are the flags.
type options struct {
	Pairs     int           `json:"pairs"`
	Warm      time.Duration `json:"warm_ns"`
	Window    time.Duration `json:"window_ns"`
	Fill      int           `json:"fill"` // 0: nothing that needs many waiting jobs
	FillPairs int           `json:"fill_pairs"`
	Idle      time.Duration `json:"idle_ns"`
	Restarts  int           `json:"restarts"`
	Waits     int           `json:"waits"`      // flows that wait for a signal; 0: nothing that needs them
	LogStores []string      `json:"log_stores"` // log stores of both sides; measurements with many waiting jobs use the first
	Only      string        `json:"only,omitempty"`

	chosen wanted
	// No flag sets these. TestRun lowers them to save time.
	settle      time.Duration // before memory and idle nodes are measured
	snapshotDue time.Duration // interval at which nodes check whether a snapshot is due

	output string
	dir    string
	binary string
}

// preset holds the defaults of a kind of run. Each has a flag that overrides it.
type preset struct {
	warm, window, idle        time.Duration
	fill, fillPairs, restarts int
	waits                     int
	stores                    []string
}

func short() preset {
	return preset{warm: 500 * time.Millisecond, window: 2 * time.Second, idle: 5 * time.Second, fill: 100_000, fillPairs: 2, restarts: 1, waits: 20_000, stores: config.LogStores[:1]}
}

func full() preset {
	return preset{warm: time.Second, window: 4 * time.Second, idle: 20 * time.Second, fill: 1_000_000, fillPairs: 5, restarts: 3, waits: 100_000, stores: config.LogStores}
}

func (p preset) storesText() string { return strings.Join(p.stores, ",") }

const usage = `Measures this build of conductord beside its floor, bare hashicorp/raft.

	go run ./bench              five pairs of each work, 100,000 waiting jobs: about six minutes
	go run ./bench -full        longer windows, both log stores, 1,000,000 waiting jobs: about half an hour, and 30 GB of disk
	go run ./bench -only 'post-*,fill/post-64'

`

// parseOptions reads the flags.
func parseOptions(args []string) (options, error) {
	o := options{settle: settling, snapshotDue: snapshotDue}
	const pairs = 5
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	whole := flags.Bool("full", false, "a full run: longer windows, and -fill 1000000")
	flags.IntVar(&o.Pairs, "pairs", pairs, "runs of each work on each side, in turns")
	flags.DurationVar(&o.Warm, "warm", 0, "time of a run that does not count (500ms, full: 1s)")
	flags.DurationVar(&o.Window, "window", 0, "time of a run that counts (2s, full: 4s)")
	flags.IntVar(&o.Fill, "fill", 0, "jobs that wait while works are done among many; 0: leave all of that out (100000, full: 1000000)")
	flags.IntVar(&o.FillPairs, "fill-pairs", 0, "runs of each work among many jobs and among 1000, in turns (2, full: 5)")
	flags.DurationVar(&o.Idle, "idle", 0, "for how long idle nodes are looked at (5s, full: 20s)")
	flags.IntVar(&o.Restarts, "restarts", 0, "how often a node is started with many jobs (1, full: 3)")
	flags.IntVar(&o.Waits, "waits", 0, fmt.Sprintf("flows that wait for a signal, compared with %d; 0: leave that out (20000, full: 100000)", fewFlows))
	stores := flags.String("log-store", "", "the log store of both sides, or several with commas between them ("+short().storesText()+", full: "+full().storesText()+")")
	flags.StringVar(&o.Only, "only", "", "what to do, by names and patterns with commas between them; empty: all of "+strings.Join(names(), ", "))
	flags.StringVar(&o.output, "o", "table", "table or json")
	flags.StringVar(&o.dir, "dir", "", "where to make the temporary directory, and so the disk that is measured")
	flags.StringVar(&o.binary, "binary", "", "the conductord executable; empty: build it")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	kind := short()
	if *whole {
		kind = full()
	}
	o.complete(kind, given)
	if o.LogStores = kind.stores; *stores != "" {
		o.LogStores = strings.Split(*stores, ",")
	}
	return o, o.check()
}

// complete fills unset options with the preset of the kind of run.
func (o *options) complete(kind preset, given map[string]bool) {
	durations := map[string]struct {
		target *time.Duration
		value  time.Duration
	}{"warm": {&o.Warm, kind.warm}, "window": {&o.Window, kind.window}, "idle": {&o.Idle, kind.idle}}
	for name, d := range durations {
		if !given[name] {
			*d.target = d.value
		}
	}
	numbers := map[string]struct {
		target *int
		value  int
	}{"fill": {&o.Fill, kind.fill}, "fill-pairs": {&o.FillPairs, kind.fillPairs}, "restarts": {&o.Restarts, kind.restarts}, "waits": {&o.Waits, kind.waits}}
	for name, n := range numbers {
		if !given[name] {
			*n.target = n.value
		}
	}
}

// check reports all problems at once.
func (o *options) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			fault("-%s is %d; it must be %d to %d", name, value, low, high)
		}
	}
	within("pairs", o.Pairs, 1, maxPairs)
	within("fill-pairs", o.FillPairs, 1, maxPairs)
	within("restarts", o.Restarts, 1, maxPairs)
	if o.Fill != 0 {
		within("fill", o.Fill, fewWaiting+1, maxFill)
	}
	if o.Waits != 0 {
		within("waits", o.Waits, fewFlows+1, maxWaits)
	}
	if o.Warm < 0 || o.Window < 100*time.Millisecond || o.Warm+o.Window > maxWindow {
		fault("-warm and -window together must be at most %s, and -window at least 100ms", maxWindow)
	}
	if o.Idle < time.Second || o.Idle > 10*maxWindow {
		fault("-idle is %s; it must be 1s to %s", o.Idle, 10*maxWindow)
	}
	if o.output != "table" && o.output != "json" {
		fault("-o is %q; it must be table or json", o.output)
	}
	for i, store := range o.LogStores {
		if !slices.Contains(config.LogStores, store) || slices.Contains(o.LogStores[:i], store) {
			fault("-log-store has %q; it must be some of %s, each once", store, strings.Join(config.LogStores, ", "))
		}
	}
	var unknown []string
	if o.chosen, unknown = choose(o.Only); len(unknown) > 0 {
		fault("-only has %q, which is none of %s", unknown, strings.Join(names(), ", "))
	}
	return errors.Join(faults...)
}

// machine describes the measuring machine.
type machine struct {
	System      string  `json:"system"`
	Processors  int     `json:"processors"`
	Model       string  `json:"model"`
	Memory      float64 `json:"memory_gib"`
	Go          string  `json:"go"`
	LoadAverage string  `json:"load_average"` // before the run
}

// thisMachine describes the machine, if the system has Linux's files for that.
func thisMachine() machine {
	m := machine{System: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Go: runtime.Version(), Model: "unknown", LoadAverage: "unknown"}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadAverage, _, _ = strings.Cut(string(load), " ")
	}
	if model, found := procValue("/proc/cpuinfo", "model name"); found {
		m.Model = model
	}
	if memory, found := procValue("/proc/meminfo", "MemTotal"); found {
		var kibibytes float64
		const kibibytesPerGibibyte = 1 << 20
		if _, err := fmt.Sscanf(memory, "%f kB", &kibibytes); err == nil {
			m.Memory = kibibytes / kibibytesPerGibibyte
		}
	}
	return m
}

// procValue finds the first line "name: value" of a file.
func procValue(path, name string) (string, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	for _, line := range strings.Split(string(text), "\n") {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
