package test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/test/attack"
)

const (
	// warmTime is enough for each attack on each node. Afterwards the nodes have all metrics.
	warmTime, attackTime = 2 * time.Second, 8 * time.Second
	attackRate           = 60 // tries per second
	// The permitted growth of a node's figures during an attack.
	moreGoroutines, moreDescriptors, moreSeries, moreMemory = 60, 40, 120, 96 << 20
)

// TestAttack: hostile clients and false members attack a cluster while honest clients post. No
// attack succeeds, the log has nothing from attackers, all honest calls succeed, and no node ends
// or panics. Afterwards no node has more connections, goroutines, memory or metrics than before.
func TestAttack(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("connections and memory of a process are read from /proc")
	}
	c, err := attack.Start(within(t), local.Options{Binary: binary, Dir: t.TempDir(), Addresses: freeAddresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			showLogs(t, c.Cluster)
		}
	})
	if err := c.Control(within(t)); err != nil {
		t.Fatal(err)
	}
	var result attack.Result
	attacked := func(time time.Duration) func() {
		return func() {
			ctx, cancel := context.WithTimeout(t.Context(), time)
			defer cancel()
			result = c.Run(ctx, attackRate)
		}
	}
	posted := postsWhile(t, c, attacked(warmTime))
	before := stateOf(t, c)
	posted += postsWhile(t, c, attacked(attackTime))
	for _, err := range result.In {
		t.Error(err)
	}
	for _, name := range attack.Names() {
		if result.Tries[name] == 0 {
			t.Errorf("not tried: %s", name)
		}
	}
	t.Logf("%d jobs were posted", posted)
	after := settled(t, c, before)
	logIsHonest(t, c, before, after, posted+1) // the first posting
	logsAreClean(t, c)
	filesArePrivate(t, c)
}

// postsWhile lets honest clients post until do returns, and counts their jobs.
func postsWhile(t *testing.T, c *attack.Cluster, do func()) int64 {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var posted atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := jobs.PostOne(within(t), c.Honest, attack.Posting()); err != nil {
					t.Errorf("an honest call fails: %v", err)
					return
				}
				posted.Add(1)
			}
		})
	}
	do()
	stop()
	callers.Wait()
	return posted.Load()
}

// nodeState is the state of a node that an attack must not change permanently.
type nodeState struct {
	pid, series, descriptors int
	goroutines               int
	memory                   int64
	commands                 map[string]float64 // proposed commands, by name
	refused, entries         float64
	commit, term             uint64
}

func stateOf(t *testing.T, c *attack.Cluster) []nodeState {
	t.Helper()
	var all []nodeState
	for _, node := range c.Nodes {
		text := metricsBySocket(t, node)
		counters, err := measure.ReadCounters(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		status, err := c.Honest.Status(within(t), node.API)
		if err != nil {
			t.Fatal(err)
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", node.PID()))
		if err != nil {
			t.Fatal(err)
		}
		now := nodeState{
			pid: node.PID(), series: len(regexp.MustCompile(`(?m)^[^#\n]`).FindAllString(text, -1)), descriptors: len(open),
			goroutines: gauge(t, text, "go_goroutines"), memory: residentMemory(t, node), commands: map[string]float64{},
			entries: counters["conductord_entries_total"], commit: status.CommitIndex, term: status.Term,
		}
		for name, value := range counters {
			if strings.HasPrefix(name, "conductord_commands_total") {
				now.commands[name] = value
			}
			if strings.HasPrefix(name, "conductord_refused_calls_total") {
				now.refused += value
			}
		}
		all = append(all, now)
	}
	return all
}

// metricsBySocket reads a node's metrics as its user may.
func metricsBySocket(t *testing.T, node *local.Node) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(node.DataDir, "api.sock"))
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("http://node/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s, %v", answer.Status, text, err)
	}
	return string(text)
}

// settled waits until the figures of the nodes are no higher than before.
func settled(t *testing.T, c *attack.Cluster, before []nodeState) (after []nodeState) {
	t.Helper()
	defer func() { t.Logf("before %+v, after %+v", before, after) }()
	eventually(t, "the nodes have no more connections, goroutines and memory than before", func() bool {
		after = stateOf(t, c)
		for i := range after {
			is, was := after[i], before[i]
			if is.descriptors > was.descriptors+moreDescriptors || is.goroutines > was.goroutines+moreGoroutines || is.memory > was.memory+moreMemory {
				return false
			}
		}
		return true
	})
	for i := range after {
		is, was := after[i], before[i]
		if is.pid != was.pid || is.series > was.series+moreSeries {
			t.Errorf("process %d with %d metrics was process %d with %d", is.pid, is.series, was.pid, was.series)
		}
		if is.refused == was.refused {
			t.Errorf("node %d has refused no call", i+1)
		}
	}
	return after
}

// logIsHonest checks that the log grew only by the postings of honest clients.
func logIsHonest(t *testing.T, c *attack.Cluster, before, after []nodeState, posted int64) {
	t.Helper()
	var entries float64
	var commit, committed, terms uint64 // a follower's commit index can be behind: the highest counts
	for i := range after {
		is, was := after[i], before[i]
		entries += is.entries - was.entries
		commit, committed, terms = max(commit, is.commit), max(committed, was.commit), max(terms, is.term-was.term)
		for name, value := range is.commands {
			// The nodes record the use of the honest clients' token once a minute.
			if more := value - was.commands[name]; more != 0 && !strings.Contains(name, "{post}") && !strings.Contains(name, "{note_token_uses}") {
				t.Errorf("node %d has proposed %v times more: %s", i+1, more, name)
			}
		}
	}
	if indexes := commit - committed; indexes > uint64(entries)+terms { // each leadership starts with an entry of raft
		t.Errorf("the log grew by %d entries, and the nodes proposed %v in %d terms more", indexes, entries, terms)
	}
	boards, err := c.Operator.BoardList(within(t), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, board := range boards.Items {
		want := map[string]int64{attack.Board: posted}[board.Name]
		if len(boards.Items) != 2 || int64(board.Jobs[jobs.StateClaimable]) != want {
			t.Errorf("board %s has %v, and honest clients have posted %d jobs", board.Name, board.Jobs, want)
		}
	}
}

// gauge is a metric with a whole number.
func gauge(t *testing.T, text, name string) int {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			number, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// logsAreClean checks that no node has panicked, that attackers appear in the log at a limited
// rate, and that none of their text reaches a terminal raw.
func logsAreClean(t *testing.T, c *attack.Cluster) {
	t.Helper()
	const enough = 256 << 10
	for _, node := range c.Nodes {
		text, err := os.ReadFile(node.Log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "panic") || len(text) > enough {
			t.Errorf("%s: %d bytes of log, or a panic in it", node.Name, len(text))
		}
		if !utf8.Valid(text) || strings.ContainsFunc(string(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: the log has characters that are not shown", node.Name)
		}
		if !strings.Contains(string(text), "refused a connection to the raft port") {
			t.Errorf("%s: the log does not say that members were refused", node.Name)
		}
	}
}

// filesArePrivate checks that only a node's user can read its files.
func filesArePrivate(t *testing.T, c *attack.Cluster) {
	t.Helper()
	for _, node := range c.Nodes {
		err := filepath.WalkDir(node.DataDir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			want := fs.FileMode(0o600)
			if entry.IsDir() {
				want = 0o700
			}
			if err == nil && info.Mode().Perm() != want {
				t.Errorf("%s has mode %#o, and not %#o", path, info.Mode().Perm(), want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
