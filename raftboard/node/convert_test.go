package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// The two directions of a log store conversion.
var conversions = []struct{ from, to logstore.Kind }{
	{logstore.Bolt, logstore.WAL},
	{logstore.WAL, logstore.Bolt},
}

func onStore(kind logstore.Kind) func(*node.Options) {
	return func(o *node.Options) { o.LogStore = kind }
}

// onEachStore runs a test over every log store. Only the default store runs in short tests.
func onEachStore(t *testing.T, test func(t *testing.T, kind logstore.Kind)) {
	for _, kind := range logstore.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			if kind != logstore.Bolt {
				longtest.Skip(t)
			}
			test(t, kind)
		})
	}
}

// bothStores gives the nodes of one cluster different stores.
func bothStores(o *node.Options) {
	if o.Name != "n1" {
		o.LogStore = logstore.WAL
	}
}

// ranOn is a stopped node that has had jobs.
func ranOn(t *testing.T, kind logstore.Kind) (*cluster, []jobs.JobID) {
	t.Helper()
	c := newCluster(t, 1, onStore(kind)).startAll()
	client := c.client()
	var ids []jobs.JobID
	for range 5 {
		ids = append(ids, posted(t, client))
	}
	client.Close()
	c.stop(0)
	c.options[0].Init = false
	return c, ids
}

// A conversion is interrupted before each durable step. The node then starts with one of the stores
// and has everything, and the conversion can be repeated.
func TestConversionCutOffAnywhere(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	for _, row := range conversions {
		t.Run(fmt.Sprintf("%s to %s", row.from, row.to), func(t *testing.T) {
			t.Parallel()
			c, ids := ranOn(t, row.from)
			origin := c.options[0].DataDir
			stores := map[logstore.Kind]int{}
			for cut := 1; ; cut++ {
				dir := filepath.Join(t.TempDir(), "n1")
				if err := copyDir(dir, origin); err != nil {
					t.Fatal(err)
				}
				before := cutOff(t, dir, row.to, cut)
				if before == "" {
					break // the conversion has fewer steps
				}
				c.options[0].DataDir = dir
				kind := storeOf(t, dir)
				stores[kind]++
				other := row.from
				if kind == row.from {
					other = row.to
				}
				refusedWith(t, c.options[0], other)
				if kind == row.from && cut%2 == 0 { // in half of the cases the command is repeated at once
					convert(t, dir, row.to)
					kind = row.to
				}
				startsWith(t, c, kind, before, ids)
				convert(t, dir, row.to)
				startsWith(t, c, row.to, before, ids)
				if left, _ := filepath.Glob(filepath.Join(dir, "raft*")); len(left) != 1 {
					t.Errorf("cut off before %q: left are %v", before, left)
				}
			}
			if stores[row.from] < 5 || stores[row.to] < 1 {
				t.Errorf("the node had each store so many times: %v", stores)
			}
		})
	}
}

// cutOff converts up to the nth change on disk, and returns its name; empty: there are fewer.
func cutOff(t *testing.T, dir string, to logstore.Kind, nth int) (before string) {
	t.Helper()
	return cutOffAt(t, nth, func(step func(string)) error {
		_, err := membership.ConvertLog(t.Context(), dir, to, hclog.NewNullLogger(), step)
		return err
	})
}

// cutOffAt does something up to its nth step, and returns the step's name; empty: there are
// fewer. A panic leaves on disk what a killed process leaves.
func cutOffAt(t *testing.T, nth int, do func(step func(string)) error) (before string) {
	t.Helper()
	defer func() {
		if stopped := recover(); stopped != nil && stopped != before {
			panic(stopped)
		}
	}()
	err := do(func(step string) {
		if nth--; nth == 0 {
			before = step
			panic(step)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// storeOf is the active store in a data directory.
func storeOf(t *testing.T, dir string) logstore.Kind {
	t.Helper()
	var identity struct {
		LogStore logstore.Kind `json:"log_store"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err == nil {
		err = json.Unmarshal(data, &identity)
	}
	if err != nil {
		t.Fatal(err)
	}
	return identity.LogStore
}

func refusedWith(t *testing.T, options node.Options, kind logstore.Kind) {
	t.Helper()
	options.LogStore = kind
	opened, err := node.Open(options)
	if err == nil {
		err = errors.Join(err, opened.Close())
	}
	want := fmt.Sprintf("conductord log-store convert --to %s --data-dir %s", kind, options.DataDir)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a start with another store: %v, want %q", err, want)
	}
}

func startsWith(t *testing.T, c *cluster, kind logstore.Kind, before string, ids []jobs.JobID) {
	t.Helper()
	c.options[0].LogStore = kind
	c.startAll()
	client := c.client()
	for _, id := range ids {
		if _, err := client.Job(t.Context(), id); err != nil {
			t.Errorf("cut off before %q: %v", before, err)
		}
	}
	posted(t, client)
	client.Close()
	eventually(t, "the old store is removed", func() bool {
		old, err := filepath.Glob(filepath.Join(c.options[0].DataDir, "*.old"))
		return err == nil && len(old) == 0
	})
	c.stop(0)
}

func convert(t *testing.T, dir string, to logstore.Kind) {
	t.Helper()
	if _, err := membership.ConvertLog(t.Context(), dir, to, hclog.NewNullLogger(), func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// All data that raft reads is the same in the other store, and in the first one after a conversion
// back.
func TestConversionKeepsEverything(t *testing.T) {
	t.Parallel()
	for _, row := range conversions {
		t.Run(fmt.Sprintf("%s to %s", row.from, row.to), func(t *testing.T) {
			t.Parallel()
			c, _ := ranOn(t, row.from)
			dir := c.options[0].DataDir
			before := contents(t, dir, row.from)
			if len(before) < 8 {
				t.Fatalf("the log has only %v", before)
			}
			done, err := membership.ConvertLog(t.Context(), dir, row.to, hclog.NewNullLogger(), func(string) {})
			if err != nil || done.From != row.from || done.To != row.to || done.First != 1 || done.Last < 6 || done.Kept == "" {
				t.Errorf("%+v, %v", done, err)
			}
			if after := contents(t, dir, row.to); !slices.Equal(before, after) {
				t.Errorf("got  %v\nwant %v", after, before)
			}
			if _, err := os.Stat(done.Kept); err != nil {
				t.Errorf("the old store is not kept: %v", err)
			}
			if done, err = membership.ConvertLog(t.Context(), dir, row.to, hclog.NewNullLogger(), func(string) {}); err != nil || done.Kept != "" {
				t.Errorf("said again: %+v, %v", done, err)
			}
			convert(t, dir, row.from)
			if after := contents(t, dir, row.from); !slices.Equal(before, after) {
				t.Errorf("and back: got  %v\nwant %v", after, before)
			}
		})
	}
}

// contents lists the content of a log.
func contents(t *testing.T, dir string, kind logstore.Kind) []string {
	t.Helper()
	log, err := logstore.Open(dir, kind, logstore.Options{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	var all []string
	for _, key := range []string{"CurrentTerm", "LastVoteTerm"} {
		value, err := log.GetUint64([]byte(key))
		if err != nil || value == 0 {
			t.Errorf("%s: %d, %v", key, value, err)
		}
		all = append(all, fmt.Sprint(key, value))
	}
	vote, err := log.Get([]byte("LastVoteCand"))
	if err != nil || len(vote) == 0 {
		t.Errorf("the vote: %q, %v", vote, err)
	}
	all = append(all, string(vote))
	first, last, err := logstore.Bounds(log)
	if err != nil {
		t.Fatal(err)
	}
	for index := first; index <= last; index++ {
		var entry raft.Log
		if err := log.GetLog(index, &entry); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d %d %v %x", entry.Index, entry.Term, entry.Type, entry.Data))
	}
	return all
}

// A compaction frees the space that a long log has left in its file. Interrupted before any change
// on disk, it leaves a node that starts and has everything. It can be repeated.
func TestCompactionCutOffAnywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(o *node.Options) { o.Raft.SnapshotThreshold, o.Raft.TrailingLogs = 16, 32 }).startAll()
	client := c.client()
	var ids []jobs.JobID
	for range 40 {
		job, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "large", Kind: "none", Details: json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	if err := node.Raft(c.nodes[0]).Snapshot().Error(); err != nil { // removes most of the log
		t.Fatal(err)
	}
	for range 20 {
		ids = append(ids, posted(t, client))
	}
	status, err := client.Status(t.Context(), c.endpoints()[0])
	if err != nil || status.LogFreeBytes < 1<<20 || status.LogFreeBytes > status.LogBytes {
		t.Errorf("%d of %d bytes are free, %v", status.LogFreeBytes, status.LogBytes, err)
	}
	if status.SnapshotIndex == 0 || status.SnapshotIndex > status.AppliedIndex || status.SnapshotBytes == 0 {
		t.Errorf("the latest snapshot has %d bytes up to entry %d of %d", status.SnapshotBytes, status.SnapshotIndex, status.AppliedIndex)
	}
	client.Close()
	c.stop(0)
	c.options[0].Init = false
	origin := c.options[0].DataDir
	before := contents(t, origin, logstore.Bolt)
	cuts := 0
	for done := false; !done; cuts++ {
		dir := filepath.Join(t.TempDir(), "n1")
		if err := copyDir(dir, origin); err != nil {
			t.Fatal(err)
		}
		step := cutOffAt(t, cuts+1, func(step func(string)) error {
			_, err := membership.CompactLog(t.Context(), dir, hclog.NewNullLogger(), step)
			return err
		})
		done = step == ""
		if !done {
			if c.options[0].DataDir = dir; cuts%2 == 0 || longtest.All() {
				startsWith(t, c, logstore.Bolt, step, ids)
			}
			continue
		}
		again, err := membership.CompactLog(t.Context(), dir, hclog.NewNullLogger(), func(string) {})
		if err != nil || again.After > again.Before || again.After > int64(status.LogBytes)/2 {
			t.Errorf("repeated: %+v of %d, %v", again, status.LogBytes, err)
		}
		if after := contents(t, dir, logstore.Bolt); !slices.Equal(after, before) {
			t.Errorf("got  %v\nwant %v", after, before)
		}
		c.options[0].DataDir = dir
		startsWith(t, c, logstore.Bolt, step, ids)
	}
	if cuts < 6 {
		t.Errorf("there were only %d changes on disk", cuts)
	}
}

// A log that cannot be converted does not change, and the error has the reason.
func TestConversionIsRefused(t *testing.T) {
	t.Parallel()
	c, ids := ranOn(t, logstore.Bolt)
	dir := c.options[0].DataDir
	refused := func(t *testing.T, ctx context.Context, dir string, to logstore.Kind, reason string) {
		t.Helper()
		if _, err := membership.ConvertLog(ctx, dir, to, hclog.NewNullLogger(), func(string) {}); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
	t.Run("no data directory", func(t *testing.T) {
		missing := filepath.Join(t.TempDir(), "none")
		refused(t, t.Context(), missing, logstore.WAL, "not the data directory of a node")
		if _, err := os.Stat(missing); err == nil {
			t.Error("it was made")
		}
	})
	t.Run("files of another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can change the owner")
		}
		other := filepath.Join(t.TempDir(), "n1")
		if err := errors.Join(copyDir(other, dir), os.Chown(filepath.Join(other, "node.json"), 65534, -1)); err != nil {
			t.Fatal(err)
		}
		refused(t, t.Context(), other, logstore.WAL, "belong to the user with the id 65534: run the command as this user")
		if _, err := membership.CompactLog(t.Context(), other, hclog.NewNullLogger(), func(string) {}); err == nil || !strings.Contains(err.Error(), "run the command as this user") {
			t.Errorf("a compaction: %v", err)
		}
	})
	t.Run("no such store", func(t *testing.T) { refused(t, t.Context(), dir, "paper", `no log store "paper"`) })
	t.Run("a node that runs", func(t *testing.T) {
		c.startAll()
		refused(t, t.Context(), dir, logstore.WAL, "another process uses this data directory")
		c.stop(0)
	})
	t.Run("a compaction of raft-wal", func(t *testing.T) {
		other, _ := ranOn(t, logstore.WAL)
		if _, err := membership.CompactLog(t.Context(), other.options[0].DataDir, hclog.NewNullLogger(), func(string) {}); err == nil || !strings.Contains(err.Error(), "releases free space automatically") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		refused(t, ctx, dir, logstore.WAL, context.Canceled.Error())
	})
	t.Run("a damaged entry", func(t *testing.T) {
		damaged := filepath.Join(t.TempDir(), "n1")
		if err := errors.Join(copyDir(damaged, dir), flipAll("plain")(filepath.Join(damaged, "raft.db"))); err != nil {
			t.Fatal(err)
		}
		refused(t, t.Context(), damaged, logstore.WAL, "damaged on disk")
	})
	t.Run("a lost log", func(t *testing.T) {
		lost := filepath.Join(t.TempDir(), "n1")
		if err := errors.Join(copyDir(lost, dir), os.Remove(filepath.Join(lost, "raft.db"))); err != nil {
			t.Fatal(err)
		}
		refused(t, t.Context(), lost, logstore.WAL, "lost its raft log")
	})
	left, err := filepath.Glob(filepath.Join(dir, "raft*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	startsWith(t, c, logstore.Bolt, "nothing", ids)
}
