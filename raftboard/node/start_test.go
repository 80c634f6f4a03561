package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// First starts in any order form one cluster with one history. It continues after all nodes were
// stopped together.
func TestBootstrapsOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		order  []int
		name   string
		stores func(*node.Options)
		long   bool
	}{
		{[]int{0, 1, 2}, "bolt", onStore(logstore.Bolt), true},
		{[]int{2, 1, 0}, "bolt", onStore(logstore.Bolt), false},
		{[]int{1, 0, 2}, "wal", onStore(logstore.WAL), true},
		{[]int{2, 0, 1}, "both", bothStores, false},
	} {
		order := row.order
		t.Run(fmt.Sprint(order, " ", row.name), func(t *testing.T) {
			if row.long {
				longtest.Skip(t)
			}
			t.Parallel()
			c := newCluster(t, 3, row.stores)
			c.start(order...)
			c.ready()
			first := posted(t, c.client(order[0], order[1]))
			same(t, c)
			for i := range c.nodes {
				c.stop(i)
				c.options[i].Init = false
			}
			c.startAll()
			got, err := c.client().Job(t.Context(), first)
			if err != nil || got.ID != first {
				t.Errorf("a job from before the stop: %v", err)
			}
			same(t, c)
		})
	}
}

func posted(t *testing.T, client *raftboard.Client) jobs.JobID {
	t.Helper()
	job, err := jobs.PostOne(t.Context(), client, jobs.Posting{Name: "plain", Kind: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	return job.ID
}

// same waits until all nodes have the same state.
func same(t *testing.T, c *cluster) {
	t.Helper()
	eventually(t, "all nodes have the same state", func() bool {
		var digests [][32]byte
		for _, running := range c.nodes {
			if running == nil {
				continue
			}
			digest, err := node.Digest(running)
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, digest)
		}
		return len(slices.Compact(digests)) == 1
	})
}

// A data directory that does not fit its node is refused, with the reason.
func TestDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := stoppedNode(t)
	write := func(name, content string) func(*testing.T, *node.Options) {
		return func(t *testing.T, o *node.Options) {
			if err := os.WriteFile(filepath.Join(o.DataDir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, *node.Options) {
		return func(t *testing.T, o *node.Options) {
			if err := os.RemoveAll(filepath.Join(o.DataDir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(key string, value any) func(*testing.T, *node.Options) {
		return func(t *testing.T, o *node.Options) {
			path := filepath.Join(o.DataDir, "node.json")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var identity map[string]any
			if err := json.Unmarshal(data, &identity); err != nil {
				t.Fatal(err)
			}
			identity[key] = value
			if data, err = json.Marshal(identity); err != nil {
				t.Fatal(err)
			}
			if data, err = node.SealIdentity(data); err != nil {
				t.Fatal(err)
			}
			write("node.json", string(data))(t, o)
		}
	}
	damaged := func(t *testing.T, o *node.Options) {
		path := filepath.Join(o.DataDir, "node.json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		digit := bytes.Index(data, []byte(`"instance": "`)) + len(`"instance": "`)
		data[digit] = '0' + (data[digit]+1)%8 // another digit
		write("node.json", string(data))(t, o)
	}
	empty := func(t *testing.T, o *node.Options) {
		if err := errors.Join(os.RemoveAll(o.DataDir), os.Mkdir(o.DataDir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name   string
		change []func(*testing.T, *node.Options)
		reason string // empty: it starts
	}{
		{"untouched", nil, ""},
		{"empty", []func(*testing.T, *node.Options){empty}, "use --init"},
		{"empty and declared", []func(*testing.T, *node.Options){empty, initial}, ""},
		{"a fresh file system", []func(*testing.T, *node.Options){empty, write("lost+found", ""), initial}, ""},
		{"a first start that was cut off", []func(*testing.T, *node.Options){empty, write("node.json.tmp", "{"), initial}, ""},
		{"somebody else's", []func(*testing.T, *node.Options){empty, write("photo.jpg", ""), initial}, `found "photo.jpg"`},
		{"without its identity", []func(*testing.T, *node.Options){remove("node.json"), initial}, "has no node.json"},
		{"of another node", []func(*testing.T, *node.Options){edit("name", "n7")}, `data directory of node "n7"`},
		{"of another cluster", []func(*testing.T, *node.Options){edit("cluster", "other")}, `belongs to cluster "other"`},
		{"garbage for an identity", []func(*testing.T, *node.Options){write("node.json", "{")}, "cannot read the node's identity"},
		{"one digit of its identity damaged", []func(*testing.T, *node.Options){damaged}, "is damaged"},
		{"no incarnation", []func(*testing.T, *node.Options){edit("incarnation", "")}, "not complete"},
		{"no generation", []func(*testing.T, *node.Options){edit("generation", 0)}, "not complete"},
		{"no instance", []func(*testing.T, *node.Options){edit("instance", "00000000-0000-0000-0000-000000000000")}, "not complete"},
		{"without its log", []func(*testing.T, *node.Options){remove("raft.db")}, "has lost its raft log"},
		{"without its log in raft-wal", []func(*testing.T, *node.Options){overWAL, remove("raft-wal")}, "has lost its raft log"},
		{"with another log store", []func(*testing.T, *node.Options){func(_ *testing.T, o *node.Options) { o.LogStore = logstore.WAL }}, "conductord log-store convert --to wal"},
		{"of no log store", []func(*testing.T, *node.Options){edit("log_store", "")}, "which this program does not support"},
		{"of a time of more log stores", []func(*testing.T, *node.Options){edit("log_store", "paper")}, "which this program does not support"},
		{"with the rest of a conversion", []func(*testing.T, *node.Options){write("raft-wal.new", "half")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			options := c.options[0]
			options.DataDir = filepath.Join(t.TempDir(), "n1")
			if err := copyDir(options.DataDir, c.options[0].DataDir); err != nil {
				t.Fatal(err)
			}
			for _, change := range row.change {
				change(t, &options)
			}
			opened, err := node.Open(options)
			if err == nil {
				err = errors.Join(err, opened.Close())
			}
			if (err == nil) != (row.reason == "") || (err != nil && !strings.Contains(err.Error(), row.reason)) {
				t.Errorf("got %v, want %q", err, row.reason)
			}
		})
	}
}

// stoppedNode is a stopped cluster of one node with a job and a snapshot.
func stoppedNode(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 1).startAll()
	client := c.client()
	posted(t, client)
	client.Close() // the node's end waits briefly for callers
	eventually(t, "a snapshot", func() bool { return node.Raft(c.nodes[0]).Snapshot().Error() == nil })
	c.stop(0)
	c.options[0].Init = false
	return c
}

func initial(_ *testing.T, o *node.Options) { o.Init = true }

// overWAL converts the node's log store.
func overWAL(t *testing.T, o *node.Options) {
	t.Helper()
	convert(t, o.DataDir, logstore.WAL)
	o.LogStore = logstore.WAL
}

// A node that lost its disk has lost its votes, and the other nodes detect this.
func TestWipedNodeIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client(0, 1)
	c.stop(2)
	if err := os.RemoveAll(c.options[2].DataDir); err != nil {
		t.Fatal(err)
	}
	opened, err := node.Open(c.options[2])
	if err == nil || !strings.Contains(err.Error(), "every other node refuses this node") || !strings.Contains(err.Error(), "lost its disk") {
		t.Errorf("got %v", err)
	}
	if opened != nil {
		_ = opened.Close()
	}
	posted(t, client)
}

// An entry of a newer program stops the node with a reason; it is not skipped.
func TestUnknownEntryStops(t *testing.T) {
	t.Parallel()
	onEachStore(t, unknownEntryStops)
}

func unknownEntryStops(t *testing.T, kind logstore.Kind) {
	faults := make(chan error, 1)
	c := newCluster(t, 1, onStore(kind)).startAll()
	posted(t, c.client())
	c.stop(0)
	log, err := logstore.Open(c.options[0].DataDir, c.options[0].LogStore, logstore.Options{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	last, err := log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var before raft.Log
	if err := log.GetLog(last, &before); err != nil {
		t.Fatal(err)
	}
	unknown := &raft.Log{Index: last + 1, Term: before.Term, Type: raft.LogCommand, Data: []byte{'C', 99, 1, 2, 3}}
	if err := errors.Join(log.StoreLog(unknown), log.Close()); err != nil {
		t.Fatal(err)
	}
	c.options[0].Fatal = func(err error) { faults <- err } // a second one would block, and time out
	c.start(0)
	if err := <-faults; !strings.Contains(err.Error(), "unknown version") || !strings.Contains(err.Error(), fmt.Sprint(last+1)) {
		t.Errorf("the end: %v", err)
	}
	if applied := node.AppliedIndex(c.nodes[0]); applied > last {
		t.Errorf("applied entry %d, beyond the unknown one at %d", applied, last+1)
	}
	if err := c.nodes[0].Ready(); err == nil {
		t.Error("the node is ready nevertheless")
	}
}

// A node can be closed at any time, several times and in parallel.
func TestCloseAtAnyMoment(t *testing.T) {
	t.Parallel()
	closeAll := func(c *cluster) {
		began := time.Now()
		var all sync.WaitGroup
		for i := range c.nodes {
			for range 2 {
				all.Go(func() {
					if err := c.nodes[i].Close(); err != nil {
						c.t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if took := time.Since(began); took > patience/2 {
			c.t.Errorf("the end took %v", took)
		}
	}
	t.Run("during the first election", func(t *testing.T) {
		for _, wait := range []time.Duration{0, 50, 150, 250} {
			c := newCluster(t, 3, quickElections)
			c.start(0, 1, 2)
			<-time.After(wait * time.Millisecond)
			closeAll(c)
		}
	})
	t.Run("alone, without a majority", func(t *testing.T) {
		c := newCluster(t, 3)
		c.start(0)
		if err := c.nodes[0].Ready(); !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("ready: %v", err)
		}
		c.stop(0)
	})
	t.Run("with calls of all kinds", func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		client := c.client()
		session, job := opened(t, client, time.Minute), posted(t, client)
		if _, err := client.Claim(t.Context(), session, job, jobs.NewNonce()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				_, _ = client.ClaimNext(ctx, jobs.ClaimRequest{Session: session, Nonce: jobs.NewNonce(), Wait: patience})
			})
			calls.Go(func() { _, _ = client.Wait(ctx, job) })
			calls.Go(func() {
				for range client.Watch(ctx, jobs.Watch{}) {
				}
			})
			calls.Go(func() {
				for ctx.Err() == nil {
					_, _ = jobs.PostOne(ctx, client, jobs.Posting{Name: "plain", Kind: "other"})
				}
			})
		}
		leader := c.nodes[c.leader()]
		eventually(t, "calls wait", func() bool { return node.Raft(leader).AppliedIndex() > 50 })
		closeAll(c)
		cancel()
		calls.Wait()
	})
}
