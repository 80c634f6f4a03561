package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// jobsHad is the number of jobs that a node has acknowledged before it is damaged.
const jobsHad = 20

// damage changes the data directory of a stopped node.
type damage func(t *testing.T, dir string)

// After any damage to a node's log, terms or snapshots, or the loss of one, the node
// starts with everything that it has acknowledged, or names the damage and does not
// start.
func TestDamagedStarts(t *testing.T) {
	t.Parallel()
	const (
		all     = "" // the node starts, with all jobs
		bring   = "copy a snapshot of another node"
		forGood = "stop this node permanently"
	)
	rows := []struct {
		name   string
		damage []damage
		// Expected results by the content of the log: entries since the older snapshot, entries
		// after the newest, none. A result is all, or parts of the refusal. nil: not checked.
		since, after, empty []string
	}{
		{"nothing", nil, []string{all}, []string{all}, []string{all}},
		{
			"newest snapshot: a bit of its content", []damage{ofSnapshot(0, "state.bin", flipMiddle)},
			[]string{all}, []string{"is damaged", "CRC mismatch", bring}, []string{"is damaged", "an empty raft log", bring},
		},
		{
			"newest snapshot: content cut short", []damage{ofSnapshot(0, "state.bin", halve)},
			[]string{all}, []string{"is damaged", bring}, []string{"is damaged", bring},
		},
		{
			"newest snapshot: content lost", []damage{ofSnapshot(0, "state.bin", os.Remove)},
			[]string{all}, []string{"is damaged", bring}, []string{"is damaged", bring},
		},
		{
			"newest snapshot: description lost", []damage{ofSnapshot(0, "meta.json", os.Remove)},
			[]string{all}, []string{"is damaged", bring}, []string{"is damaged", bring},
		},
		{
			"newest snapshot: another entry in its description", []damage{ofSnapshot(0, "meta.json", otherIndex)},
			[]string{all}, []string{"its meta.json belongs to", bring}, []string{"its meta.json belongs to", bring},
		},
		{
			"older snapshot: a bit of its content", []damage{ofSnapshot(1, "state.bin", flipMiddle)},
			[]string{all}, []string{all}, []string{all},
		},
		{
			"older snapshot: description lost", []damage{ofSnapshot(1, "meta.json", os.Remove)},
			[]string{all}, []string{all}, []string{all},
		},
		{
			"both snapshots: a bit of their content", []damage{ofSnapshot(0, "state.bin", flipMiddle), ofSnapshot(1, "state.bin", flipMiddle)},
			[]string{"is damaged", bring}, []string{"is damaged", bring}, []string{"is damaged", bring},
		},
		{
			// With an empty log, nothing on this node shows that there was a newer snapshot.
			"newest snapshot: lost", []damage{ofSnapshot(0, "", os.RemoveAll)},
			[]string{all}, []string{"a snapshot is missing", bring}, nil,
		},
		{
			"all snapshots: lost", []damage{ofSnapshot(0, "", os.RemoveAll), ofSnapshot(1, "", os.RemoveAll)},
			[]string{"a snapshot is missing", bring}, []string{"a snapshot is missing", bring}, []string{"its state is lost", forGood},
		},
		{
			"the log", []damage{ofLog("", os.RemoveAll)},
			[]string{"has lost its raft log"}, []string{"has lost its raft log"}, []string{"has lost its raft log"},
		},
		{
			"term and vote: a bit", []damage{ofTerms(flipAll(`{"values"`))},
			[]string{"term and vote are damaged", forGood}, []string{"term and vote are damaged", forGood}, []string{"term and vote are damaged", forGood},
		},
		{
			"term and vote: their key", []damage{ofTerms(flipAll("ConductordTerms"))},
			[]string{"lost its raft log"}, []string{"lost its raft log"}, []string{"lost its raft log"},
		},
		{
			"term and vote: an older term", []damage{olderTerm},
			[]string{"so votes are lost", forGood}, []string{"so votes are lost", forGood}, []string{"so votes are lost", forGood},
		},
		{
			"first meta page: a bit", []damage{ofTerms(flipAt(16 + 60))},
			[]string{"meta page 0", forGood}, []string{"meta page 0", forGood}, []string{"meta page 0", forGood},
		},
		{
			"second meta page: a bit", []damage{ofTerms(flipAt(4096 + 16 + 50))},
			[]string{"meta page 1", forGood}, []string{"meta page 1", forGood}, []string{"meta page 1", forGood},
		},
		{
			"second meta page: zeros", []damage{ofTerms(zeroAt(4096))},
			[]string{"meta page 1", forGood}, []string{"meta page 1", forGood}, []string{"meta page 1", forGood},
		},
	}
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		for _, log := range []string{"whole", "since", "after", "empty"} {
			for _, moment := range []string{"stopped", "killed"} {
				t.Run("log "+log+", "+moment, func(t *testing.T) {
					if moment == "stopped" && log != "since" {
						longtest.Skip(t)
					}
					t.Parallel()
					c, dir := nodeWithSnapshots(t, kind, log, moment == "killed")
					for i, row := range rows {
						t.Run(row.name, func(t *testing.T) {
							want := map[string][]string{"whole": row.since, "since": row.since, "after": row.after, "empty": row.empty}[log]
							if log == "whole" && slices.Contains(want, bring) {
								want = []string{all} // rebuilt from the first entry
							}
							options := c.options[0]
							options.DataDir = filepath.Join(t.TempDir(), fmt.Sprint(i))
							if err := copyDir(options.DataDir, dir); err != nil {
								t.Fatal(err)
							}
							for _, change := range row.damage {
								change(t, options.DataDir)
							}
							if want != nil {
								startsOrSays(t, options, want)
							}
						})
					}
				})
			}
		}
	})
}

// nodeWithSnapshots makes the data directory of a single node with two snapshots and a log with the
// named content.
func nodeWithSnapshots(t *testing.T, kind logstore.Kind, log string, killed bool) (c *cluster, dir string) {
	c = newCluster(t, 1, onStore(kind)).startAll()
	client := c.client()
	running := node.Raft(c.nodes[0])
	usual := running.ReloadableConfig()
	for i := range jobsHad {
		posted(t, client)
		if i != 5 && i != jobsHad-3 {
			continue
		}
		if log == "after" || (log == "since" && i == 5) {
			fewer := usual
			fewer.TrailingLogs = 1
			if err := running.ReloadConfig(fewer); err != nil {
				t.Fatal(err)
			}
		}
		if err := running.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		if err := running.ReloadConfig(usual); err != nil {
			t.Fatal(err)
		}
	}
	if log == "empty" { // all entries are in the newest snapshot, as after an install from a leader
		if err := running.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	dir = c.options[0].DataDir
	if killed { // the files of an idle process equal the files after its end
		dir = t.TempDir()
		if err := copyDir(dir, c.options[0].DataDir); err != nil {
			t.Fatal(err)
		}
	}
	c.stop(0)
	c.options[0].Init = false
	if log == "empty" {
		emptied, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		first, _ := emptied.FirstIndex()
		last, err := emptied.LastIndex()
		if err := errors.Join(err, emptied.DeleteRange(first, last), emptied.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if had := snapshotsOf(t, dir); len(had) != 2 {
		t.Fatalf("snapshots: %q", had)
	}
	return c, dir
}

// startsOrSays opens a node, which either has all jobs or is refused with the expected text.
func startsOrSays(t *testing.T, options node.Options, want []string) {
	t.Helper()
	c := &cluster{t: t, options: []node.Options{options}, nodes: make([]*node.Node, 1)}
	options.Fatal = func(error) {}                 // the log has the refusal already
	options.Raft.Heartbeat = 50 * time.Millisecond // of a node without competitors
	opened, err := node.Open(options)
	if err != nil {
		for _, part := range want {
			if part == "" || !strings.Contains(err.Error(), part) {
				t.Errorf("refused with %q, want %q", err, want)
			}
		}
		return
	}
	defer func() { _ = opened.Close() }()
	c.nodes[0] = opened
	if want[0] != "" {
		t.Fatalf("started, want %q", want)
	}
	c.ready()
	client := c.client()
	defer client.Close() // an open connection delays the node's end
	page, err := client.Jobs(t.Context(), jobs.Query{})
	if err != nil || len(page.Items) != jobsHad {
		t.Errorf("%d jobs of %d are there, %v", len(page.Items), jobsHad, err)
	}
}

// snapshotsOf are the names of a node's snapshots, the newest first.
func snapshotsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	slices.SortFunc(names, func(a, b string) int { return indexOf(t, b) - indexOf(t, a) })
	return names
}

// newestSnapshot is the name of a running node's newest snapshot. One whose name
// ends in .tmp is still being written.
func newestSnapshot(t *testing.T, dir string) string {
	t.Helper()
	names := snapshotsOf(t, dir)
	return names[slices.IndexFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".tmp") })]
}

// indexOf is the last entry of a snapshot.
func indexOf(t *testing.T, name string) (index int) {
	t.Helper()
	var term, millis int
	if _, err := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &millis); err != nil {
		t.Fatalf("snapshot %q: %v", name, err)
	}
	return index
}

func ofSnapshot(which int, file string, change func(path string) error) damage {
	return func(t *testing.T, dir string) {
		names := snapshotsOf(t, dir)
		which := min(which, len(names)-1)
		if err := change(filepath.Join(dir, "snapshots", names[which], file)); err != nil {
			t.Fatal(err)
		}
	}
}

func ofLog(file string, change func(path string) error) damage {
	return func(t *testing.T, dir string) {
		for _, kind := range logstore.Kinds {
			path := filepath.Join(logstore.Path(dir, kind), file)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ofTerms changes the bbolt file with term and vote.
func ofTerms(change func(path string) error) damage {
	return func(t *testing.T, dir string) {
		path := logstore.Path(dir, logstore.Bolt)
		if _, err := os.Stat(path); err != nil {
			path = filepath.Join(logstore.Path(dir, logstore.WAL), "wal-meta.db")
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
	}
}

func olderTerm(t *testing.T, dir string) {
	kind := logstore.Bolt
	if _, err := os.Stat(logstore.Path(dir, kind)); err != nil {
		kind = logstore.WAL
	}
	log, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.SetUint64([]byte("CurrentTerm"), 1), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// edited changes the bytes of a file.
func edited(change func(data []byte) []byte) func(path string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, change(data), 0o600)
	}
}

var (
	flipMiddle = edited(func(data []byte) []byte { data[len(data)/2] ^= 1; return data })
	halve      = edited(func(data []byte) []byte { return data[:len(data)/2] })
	otherIndex = edited(func(data []byte) []byte {
		return []byte(strings.Replace(string(data), `"Index":`, `"Index":1`, 1))
	})
)

func flipAt(at int) func(string) error {
	return edited(func(data []byte) []byte { data[at] ^= 8; return data })
}

func zeroAt(at int) func(string) error {
	return edited(func(data []byte) []byte { clear(data[at : at+4096]); return data })
}

// flipAll changes a bit in each copy of a text, because older pages can contain copies.
func flipAll(text string) func(string) error {
	other := []byte(text)
	other[2] ^= 1
	return edited(func(data []byte) []byte { return []byte(strings.ReplaceAll(string(data), text, string(other))) })
}

// A node whose snapshot is damaged or lost, and cannot be rebuilt from its log, starts with a
// snapshot of another node, as its refusal advises.
func TestSnapshotIsBroughtFromAnotherNode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		damage damage
	}{
		{"lost", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
				t.Fatal(err)
			}
		}},
		{"damaged", func(t *testing.T, dir string) {
			for i := range snapshotsOf(t, dir) {
				ofSnapshot(i, "state.bin", flipMiddle)(t, dir)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, kind logstore.Kind) {
				t.Parallel()
				c := newCluster(t, 3, onStore(kind), manySnapshots).startAll()
				client := c.client()
				away := c.others(c.leader())[0]
				for node.FirstIndex(c.nodes[away]) <= 1 {
					posted(t, client)
				}
				c.stop(away)
				row.damage(t, c.options[away].DataDir)
				opened, err := node.Open(c.options[away])
				if err == nil {
					_ = opened.Close()
					t.Fatal("it started")
				}
				if !strings.Contains(err.Error(), "copy a snapshot of another node") {
					t.Fatal(err)
				}
				var wanted int
				if _, err := fmt.Sscanf(err.Error()[strings.Index(err.Error(), "reaches entry"):], "reaches entry %d or later", &wanted); err != nil {
					t.Fatal(err)
				}
				from := c.options[c.leader()].DataDir
				for indexOf(t, newestSnapshot(t, from)) < wanted {
					posted(t, client)
				}
				name := filepath.Join("snapshots", newestSnapshot(t, from))
				to := filepath.Join(c.options[away].DataDir, name)
				// If both nodes made it in the same millisecond, the damaged snapshot has the same
				// name.
				if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(filepath.Join(from, name)))); err != nil {
					t.Fatal(err)
				}
				c.start(away)
				c.ready()
				same(t, c)
			})
		})
	}
}

// manySnapshots makes the log short.
func manySnapshots(o *node.Options) {
	o.Raft.SnapshotThreshold, o.Raft.TrailingLogs, o.Raft.SnapshotInterval = 16, 32, 20*time.Millisecond
}

// A follower is killed after it has stored a leader's snapshot and before it has cleared its log.
// In between it restores the state, which takes seconds for a large state. After the restart it
// continues, even under another leader whose log starts where the follower's log ends.
func TestKilledBetweenSnapshotAndClearing(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		t.Parallel()
		c := newCluster(t, 3, onStore(kind), manySnapshots).startAll()
		client := c.client()
		posted(t, client)
		away := c.others(c.leader())[0]
		had := node.Raft(c.nodes[away]).LastIndex()
		c.stop(away)
		lead := c.leader()
		for node.FirstIndex(c.nodes[lead]) <= had+1 {
			posted(t, client)
		}
		from, to := c.options[lead].DataDir, c.options[away].DataDir
		name := filepath.Join("snapshots", newestSnapshot(t, from))
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another leads", func() bool {
			if c.leader() != lead {
				return true
			}
			_ = node.Transfer(c.nodes[lead]) // it may have lost the leadership already
			return false
		})
		c.start(away)
		posted(t, client)
		c.ready()
		same(t, c)
	})
}

// Remains of snapshots are removed after an interrupted write or removal.
func TestRemainsOfSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	c, dir := nodeWithSnapshots(t, logstore.Bolt, "since", false)
	whole := snapshotsOf(t, dir)
	for _, left := range []string{"2-5-1795343683343.tmp/state.bin", "1-1-1/state.bin"} {
		path := filepath.Join(dir, "snapshots", left)
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(0)
	c.stop(0)
	if left := snapshotsOf(t, dir); !slices.Equal(left, whole) {
		t.Errorf("snapshots %q are left, want %q", left, whole)
	}
}
