//go:build linux

package cluster_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/conductord/conductord/test/cluster"
)

var (
	seed    = flag.Uint64("seed", 1, "of the faults")
	hours   = flag.Float64("hours", 0, "virtual hours that are run; 0: as many as fit into -real")
	rounds  = flag.Int("rounds", 0, "rounds that are run; 0: as -hours says")
	inReal  = flag.Duration("real", 0, "how long rounds are begun, where -hours is not set; 0: one round is run")
	length  = flag.Duration("round", 3*time.Minute, "how long the faults of a round are carried out, in virtual time")
	every   = flag.Duration("every", 10*time.Second, "how often a fault begins, on average, in virtual time")
	nemeses = flag.String("nemeses", "", "those that are drawn from, with commas between; empty: all")
)

// realTime is the time outside the bubble.
func realTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("internal error: " + err.Error())
	}
	return time.Duration(now.Nano())
}

// TestVirtual runs rounds of faults on three nodes in one process, whose time
// passes as fast as they have nothing to do.
func TestVirtual(t *testing.T) {
	began := realTime()
	synctest.Test(t, func(t *testing.T) {
		virtual(t, func(round int) bool {
			if *rounds > 0 {
				return round < *rounds
			}
			if *hours > 0 {
				return time.Since(start).Hours() < *hours
			}
			return round == 0 || realTime()-began < *inReal
		}, began)
	})
}

// start is when virtual time begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func virtual(t *testing.T, more func(round int) bool, began time.Duration) {
	dir, err := os.MkdirTemp(memory(), "conductord-virtual-")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	three := newNodes(dir, 3, func(place int) hclog.Logger {
		return logger(logs, fmt.Sprintf("n%d", place), hclog.Info)
	})
	runner := &cluster.Runner{
		Cluster: three,
		Plan: cluster.Plan{
			Seed: *seed, Size: three.Size(), Round: *length, Every: *every, Lasts: 40 * time.Second,
			Kinds: drawn(three), Client: three.BadClientKinds(), Offsets: cluster.Offsets,
		},
		Command: command(),
		Think:   2 * time.Second, Term: 5 * time.Second, FlowEvery: 3 * time.Second, SignalEvery: 2 * time.Second, Work: 3 * time.Second,
		// A second of grace, half a second of cooling, and the second of the promise.
		Cooled: 1500 * time.Millisecond, Takeover: 2500 * time.Millisecond,
		Logger: logger(logs, "", hclog.Debug),
		Log:    func(format string, args ...any) { fmt.Fprintf(logs, format+"\n", args...) },
		Keep:   func(name, content string) { _ = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) },
	}
	if err := runner.Run(t.Context(), more); err != nil {
		t.Error(err)
	}
	if err := three.Close(); err != nil {
		t.Error(err)
	}
	_ = logs.Close()
	took := realTime() - began
	t.Logf("%d rounds, %v in %v, %.0f virtual seconds a second; %d calls, %d flows, %d of them reverted; %v; %v; faults: %v",
		runner.Report.Rounds, time.Since(start).Round(time.Second), took.Round(time.Millisecond),
		time.Since(start).Seconds()/took.Seconds(), runner.Report.Calls, runner.Report.Flows, runner.Report.Reverted, runner.Report.Signals, runner.Report.Repeatable, runner.Report.Faults)
	if t.Failed() {
		t.Logf("the log, the histories and the nodes' files are in %s", dir)
		return
	}
	_ = os.RemoveAll(dir)
}

func logger(to io.Writer, name string, level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: level, Output: to, TimeFormat: "15:04:05.000", TimeFn: time.Now})
}

// command repeats the run, for as many rounds as it takes.
func command() string {
	command := fmt.Sprintf("go test ./test/cluster -run TestVirtual -real 10m -seed %d", *seed)
	for _, name := range []string{"nemeses", "round", "every"} { // they make the plan, too
		if one := flag.Lookup(name); one.Value.String() != one.DefValue {
			command += fmt.Sprintf(" -%s %v", name, one.Value)
		}
	}
	return command
}

// drawn are the nemeses that a run draws from.
func drawn(c cluster.Cluster) []cluster.Nemesis {
	if *nemeses == "" {
		return cluster.Supported(c)
	}
	var kinds []cluster.Nemesis
	for _, name := range strings.Split(*nemeses, ",") {
		kinds = append(kinds, cluster.Nemesis(name))
	}
	return kinds
}

// memory is a directory whose files are in memory, where there is one: what is
// synced costs nothing there, and the copies that faults make say what is lost.
func memory() string {
	const dir, enough = "/dev/shm", 512 << 20
	var system unix.Statfs_t
	if unix.Statfs(dir, &system) != nil || int64(system.Bavail)*int64(system.Bsize) < enough {
		return ""
	}
	return dir
}
