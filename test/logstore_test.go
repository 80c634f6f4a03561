package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestLogStores runs a cluster whose nodes have different log stores. It kills each node under
// load, converts one node from raft-boltdb to raft-wal, and kills all nodes together.
// Everything acknowledged exists at the end.
func TestLogStores(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	cluster, client := startCluster(t, func(c *config.Config) {
		c.Conductor.Enabled = false
		if c.Node != "node1" {
			c.LogStore = "wal"
		}
	})
	load := startPosting(t, client)
	for _, node := range cluster.Nodes {
		load.wait(t, 50)
		node.Kill()
		load.wait(t, 50) // by the two other nodes
		restart(t, node)
	}
	changing := cluster.Nodes[0]
	convert := []string{"log-store", "convert", "--to", "wal", "--data-dir", changing.DataDir}
	refuses(t, 1, "another process uses this data directory", convert...)
	compact := []string{"log-store", "compact", "--data-dir", changing.DataDir}
	refuses(t, 1, "another process uses this data directory", compact...)
	changing.Kill()
	var compacted daemon.CompactedLog
	if printed(t, &compacted, compact...); compacted.After == 0 || compacted.After > compacted.Before {
		t.Errorf("%+v", compacted)
	}
	if output, err := exec.CommandContext(within(t), binary, convert...).CombinedOutput(); err != nil || !strings.Contains(string(output), `set log_store = "wal"`) {
		t.Fatalf("%v: %s", err, output)
	}
	refuses(t, 1, "keeps its raft log in wal.*log_store = \"bolt\".*log-store convert --to bolt", "server", "--config", changing.Config)
	sayWAL(t, changing.Config)
	restart(t, changing)
	for _, node := range cluster.Nodes {
		if status, err := client.Status(within(t), node.API); err != nil || status.LogStore != "wal" {
			t.Errorf("%s: %q, %v", node.Name, status.LogStore, err)
		}
	}
	eventually(t, "the old log is removed", func() bool {
		left, err := filepath.Glob(filepath.Join(changing.DataDir, "raft.db*"))
		return err == nil && len(left) == 0
	})
	load.wait(t, 50)
	cluster.Kill()
	for _, node := range cluster.Nodes {
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	load.wait(t, 50)
	acknowledged := load.stop()
	for _, id := range acknowledged {
		if _, err := client.Job(within(t), id); err != nil {
			t.Errorf("a job that was acknowledged: %v", err)
		}
	}
	t.Logf("%d jobs were acknowledged", len(acknowledged))
}

// sayWAL sets the log store in a configuration with the default.
func sayWAL(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("log_store = \"wal\"\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// posting posts jobs, one after the other, and records the acknowledged ones.
type posting struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu           sync.Mutex
	acknowledged []jobs.JobID
}

// startPosting posts until stop, or the end of the test.
func startPosting(t *testing.T, client *raftboard.Client) *posting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &posting{end: cancel}
	for range 4 {
		p.done.Go(func() {
			for ctx.Err() == nil {
				job, err := jobs.PostOne(ctx, client, jobs.Posting{Name: "kept", Kind: "none"})
				if err != nil {
					continue // no effect, or an ambiguous result
				}
				p.mu.Lock()
				p.acknowledged = append(p.acknowledged, job.ID)
				p.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { p.stop() })
	return p
}

// wait waits for more acknowledged jobs.
func (p *posting) wait(t *testing.T, more int) {
	t.Helper()
	count := func() int { return len(p.soFar()) }
	from := count()
	eventually(t, "jobs are acknowledged", func() bool { return count() >= from+more })
}

// soFar are the jobs that have been acknowledged.
func (p *posting) soFar() []jobs.JobID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.acknowledged)
}

func (p *posting) stop() []jobs.JobID {
	p.end()
	p.done.Wait()
	return p.acknowledged
}
