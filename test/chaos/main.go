//go:build linux

// Chaos breaks a cluster of real processes for some minutes, and checks after
// each round that nothing was lost:
//
//	go run ./test/chaos -minutes 5 -seed 7
//
// The same seed makes the same faults. As root, it has its own network and disks to break;
// otherwise it names the nemeses that it leaves out. If a promise is broken, it ends with
// status 1 and keeps all files for inspection.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/test/cluster"
	"github.com/conductord/conductord/test/cluster/processes"
)

// options are the options of the command line.
type options struct {
	minutes float64
	seed    uint64
	nemeses string
	each    bool
	module  string
	dir     string
	store   string
	round   time.Duration
	settle  time.Duration
	keep    bool
	liars   bool
}

func main() {
	var o options
	flag.Float64Var(&o.minutes, "minutes", 5, "how long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "what makes the faults")
	flag.StringVar(&o.nemeses, "nemesis", "", "only these nemeses, with commas between; empty: all")
	flag.BoolVar(&o.each, "each", false, "one short round of each nemesis, on the leader where there is a choice, instead of minutes")
	flag.DurationVar(&o.round, "round", 20*time.Second, "how long there are faults in a round")
	flag.DurationVar(&o.settle, "settle", time.Minute, "the limit of the checks after a round, for busy machines")
	flag.StringVar(&o.module, "module", "", "the folder of another checkout, whose daemon is broken instead")
	flag.StringVar(&o.store, "log-store", mixed, "the log store of the nodes: bolt, wal, or mixed, where only the second node has wal")
	flag.StringVar(&o.dir, "dir", "", "where everything is written; empty: a temporary folder, removed if all is well")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder though all is well")
	flag.BoolVar(&o.liars, "liars", false, "have fsync do nothing, to see that power cuts are then found to lose what was acknowledged")
	flag.Parse()
	status, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		status = 1
	}
	os.Exit(status)
}

// mixed is a cluster with both log stores: nodes share entries, not files.
const mixed = "mixed"

// dirEnv passes the folder with the daemon to the process in the lab.
const dirEnv = "CONDUCTORD_CHAOS_DIR"

// run builds the daemon, enters the lab if one is possible, and breaks the cluster there.
func run(o options) (status int, err error) {
	if dir := os.Getenv(dirEnv); dir != "" {
		o.dir = dir
		return chaos(o)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return 0, err
		}
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return 0, err
	}
	fmt.Println("building conductord with faults; the first time this takes a minute or two")
	if _, err := processes.Build(processes.BuildOptions{Dir: o.dir, Module: o.module}); err != nil {
		return 0, err
	}
	if missing := processes.Supported(); missing != nil {
		fmt.Printf("SKIPPED: cuts of the network, power cuts and full disks: %v\n", missing)
		os.Setenv(dirEnv, o.dir)
		return chaos(o)
	}
	os.Args = append(os.Args, fmt.Sprintf("-seed=%d", o.seed)) // the last flag wins
	return processes.EnterLab(dirEnv + "=" + o.dir)
}

// chaos breaks a cluster below a folder with a built daemon.
func chaos(o options) (status int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	steps, err := processes.NewSteps(o.dir)
	if err != nil {
		return 0, err
	}
	broken, err := assemble(o, steps)
	if err != nil {
		return 0, err
	}
	runner := newRunner(o, broken, steps)
	began := time.Now()
	found := runner.Run(ctx, func(round int) bool {
		if ctx.Err() != nil {
			return false
		}
		if o.each {
			return round < len(runner.Plan.Fixed)
		}
		return time.Since(began) < time.Duration(o.minutes*float64(time.Minute))
	})
	if ctx.Err() != nil {
		found = errors.Join(found, ctx.Err())
	}
	if left := broken.Close(); left != nil && ctx.Err() == nil {
		found = errors.Join(found, fmt.Errorf("after the end: %w", left))
	}
	tell(runner, time.Since(began))
	if found == nil {
		fmt.Println("violations: 0")
		if o.keep {
			return 0, nil
		}
		return 0, os.RemoveAll(o.dir)
	}
	fmt.Printf("\nVIOLATION\n%v\n\nkept in %s: the nodes' logs (node*.log), their data (node*/ or *.image), the ledger, the histories\n", found, o.dir)
	return 1, nil
}

// assemble makes the cluster.
func assemble(o options, steps *processes.Steps) (cluster.Cluster, error) {
	settings := processes.Options{
		Binary: filepath.Join(o.dir, "conductord"), Dir: o.dir, Liars: o.liars,
		Configure: func(c *config.Config) {
			if c.LogStore = o.store; o.store == mixed {
				c.LogStore = map[bool]string{true: "wal", false: "bolt"}[c.Node == "node2"]
			}
			c.Conductor.Handlers = []string{steps.Handlers()}
			if !o.liars { // a node that has lost acknowledged writes may differ
				c.Cluster.VerifyInterval = time.Second
			}
			// Snapshots, and their transfer to lagging nodes, happen within a round.
			c.Raft.SnapshotInterval, c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = 5*time.Second, 500, 1000
		},
	}
	if processes.InLab() {
		return processes.NewInLab(settings)
	}
	return processes.New(settings)
}

func newRunner(o options, broken cluster.Cluster, steps *processes.Steps) *cluster.Runner {
	plan := cluster.Plan{
		Seed: o.seed, Size: broken.Size(), Round: o.round, Every: 4 * time.Second, Lasts: 12 * time.Second,
		Kinds: kinds(o, broken), Offsets: cluster.Offsets,
	}
	if bad, ok := broken.(cluster.BadClients); ok {
		plan.Client = bad.BadClientKinds()
	}
	if o.each {
		plan.Round, plan.Fixed = time.Second, shortRounds(plan)
	}
	return &cluster.Runner{
		Cluster: broken, Plan: plan, Command: command(o), Posting: steps.Posting, Gather: steps.Gather,
		// So that every conductor always has jobs.
		FlowEvery: 250 * time.Millisecond, Work: time.Second, Think: 20 * time.Millisecond, Settle: o.settle,
		// A paused daemon does not stop its steps.
		Lenient: true,
		Longest: longest, Takeover: takeover,
		Log: func(format string, args ...any) {
			fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
		},
		Keep: func(name, content string) {
			_ = os.WriteFile(filepath.Join(o.dir, name+".txt"), []byte(content), 0o600)
		},
	}
}

// kinds returns the requested nemeses that are possible here.
func kinds(o options, broken cluster.Cluster) []cluster.Nemesis {
	all := cluster.Supported(broken)
	if o.nemeses == "" {
		return all
	}
	var some []cluster.Nemesis
	for name := range strings.SplitSeq(o.nemeses, ",") {
		if kind := cluster.Nemesis(name); slices.Contains(all, kind) {
			some = append(some, kind)
		} else {
			fmt.Printf("SKIPPED: %s: this machine, or this user, cannot do it; there are %v\n", name, all)
		}
	}
	if len(some) == 0 {
		os.Exit(1)
	}
	return some
}

func command(o options) string {
	words := []string{"go run ./test/chaos", fmt.Sprintf("-seed %d", o.seed)}
	if o.each {
		words = append(words, "-each")
	} else {
		words = append(words, fmt.Sprintf("-minutes %v -round %v", o.minutes, o.round))
	}
	if o.nemeses != "" {
		words = append(words, "-nemesis "+o.nemeses)
	}
	if o.module != "" {
		words = append(words, "-module "+o.module)
	}
	if o.settle != time.Minute {
		words = append(words, fmt.Sprintf("-settle %v", o.settle))
	}
	if o.store != mixed {
		words = append(words, "-log-store "+o.store)
	}
	return strings.Join(words, " ")
}

// tell prints the report.
func tell(r *cluster.Runner, took time.Duration) {
	report := r.Report
	total := 0
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(report.Faults)) {
		total += report.Faults[kind]
		line := fmt.Sprintf("  %-10s %4d", kind, report.Faults[kind])
		if unserved, alone := report.Unserved[kind]; alone {
			line += fmt.Sprintf("   longest time without an acknowledged write, where alone: %v", unserved)
		}
		lines = append(lines, line)
	}
	if damaged, ok := r.Cluster.(interface{ Damaged() []string }); ok {
		for _, line := range damaged.Damaged() {
			lines = append(lines, "  damage: "+line)
		}
	}
	fmt.Printf("\nseed %d, %v: %d rounds, %d faults, %d calls of plain clients, %d flows (%d undone)\n%v\n%v\n%s\n",
		r.Plan.Seed, took.Round(time.Second), report.Rounds, total, report.Calls, report.Flows, report.Reverted, report.Signals, report.Repeatable, strings.Join(lines, "\n"))
}
