package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestBackupAndRestore is the runbook "Back up and restore": a backup is made while jobs are
// posted, all three machines are lost, and a new cluster starts from the backup. It has every job
// that was acknowledged before the backup.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	load := startPosting(t, client)
	load.wait(t, 100)
	before := load.soFar()
	file := filepath.Join(t.TempDir(), "cluster.tar")
	server := "--server=" + cluster.Endpoints()[1]
	var made clustercmd.BackupDocument
	printed(t, &made, "backup", "create", file, server)
	refuses(t, 2, "exists: choose another name", "backup", "create", file, server)
	var inspected clustercmd.BackupDocument
	printed(t, &inspected, "backup", "inspect", file)
	if made != inspected || made.Manifest.Index == 0 || made.Manifest.Cluster != clusterID(t, cluster.Nodes[0].Config) {
		t.Errorf("made %+v, and inspected %+v", made, inspected)
	}
	var verified daemon.VerifiedBackup
	if printed(t, &verified, "backup", "check", file); verified.Manifest != made.Manifest {
		t.Errorf("verified %+v", verified)
	}
	load.stop()
	refuses(t, 1, "another process uses this data directory", "backup", "restore", file, "--config", cluster.Nodes[0].Config)
	cluster.Kill()
	refuses(t, 1, "it contains a node: restore into an empty directory", "backup", "restore", file, "--config", cluster.Nodes[0].Config)
	restoreAll(t, cluster, file)
	for _, id := range before {
		if _, err := client.Job(within(t), id); err != nil {
			t.Errorf("a job that was acknowledged before the backup: %v", err)
		}
	}
	if _, err := jobs.PostOne(within(t), client, jobs.Posting{Name: "new", Kind: "none"}); err != nil {
		t.Error(err)
	}
	t.Logf("%d jobs were acknowledged before the backup of index %d", len(before), made.Manifest.Index)
}

// printed runs a command with -o json, and decodes its output.
func printed(t *testing.T, document any, args ...string) {
	t.Helper()
	if err := prints(t, document, args...); err != nil {
		t.Fatal(err)
	}
}

func prints(t *testing.T, document any, args ...string) error {
	t.Helper()
	command := exec.CommandContext(within(t), binary, append(args, "-o", "json")...)
	var said bytes.Buffer
	command.Stderr = &said
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("%v: %w: %s%s", args, err, output, said.String())
	}
	if err := json.Unmarshal(output, document); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, output)
	}
	return nil
}

func clusterID(t *testing.T, path string) string {
	t.Helper()
	loaded, err := config.Load(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Cluster.ID
}

// restoreAll restores a backup on all machines of a cluster, and starts the new cluster.
func restoreAll(t *testing.T, cluster *local.Cluster, file string) {
	t.Helper()
	for _, node := range cluster.Nodes {
		if err := os.RemoveAll(node.DataDir); err != nil {
			t.Fatal(err)
		}
		var done daemon.RestoredBackup
		if printed(t, &done, "backup", "restore", file, "--config", node.Config); done.Generation != 2 || done.Index < done.Manifest.Index {
			t.Errorf("restored %+v", done)
		}
	}
	for _, node := range cluster.Nodes {
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
}

// TestMajorityIsLost is the runbook "When a majority is gone": two of three disks are lost and
// the third node is stopped. A new cluster starts from the third node's disk.
func TestMajorityIsLost(t *testing.T) {
	t.Parallel()
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	load := startPosting(t, client)
	load.wait(t, 100)
	acknowledged := load.stop()
	survivor := cluster.Nodes[1]
	sameIndex(t, cluster, client)
	survivor.Kill()
	file := filepath.Join(t.TempDir(), "cluster.tar")
	extract := []string{"backup", "extract", file, "--data-dir", survivor.DataDir}
	refuses(t, 1, `a majority of the cluster answers \(node1, node3\)`, extract...)
	cluster.Kill()
	var checked daemon.CheckedNode
	if printed(t, &checked, "node", "check", survivor.DataDir); checked.Jobs[jobs.StateClaimable] < uint64(len(acknowledged)) {
		t.Errorf("%d jobs were acknowledged, and the survivor has %+v", len(acknowledged), checked)
	}
	var made clustercmd.BackupDocument
	if printed(t, &made, extract...); made.Manifest.Index != checked.Index || made.Manifest.Digest != checked.Digest {
		t.Errorf("checked %+v, and made %+v", checked, made)
	}
	refuses(t, 2, "exists: choose another name", extract...)
	restoreAll(t, cluster, file)
	for _, id := range acknowledged {
		if _, err := client.Job(within(t), id); err != nil {
			t.Errorf("a job that was acknowledged: %v", err)
		}
	}
}

// sameIndex waits until all nodes have applied the same entries.
func sameIndex(t *testing.T, cluster *local.Cluster, client *raftboard.Client) {
	t.Helper()
	eventually(t, "all nodes have applied the same entries", func() bool {
		applied := map[uint64]bool{}
		for _, node := range cluster.Nodes {
			status, err := client.Status(within(t), node.API)
			if err != nil {
				return false
			}
			applied[status.AppliedIndex] = true
		}
		return len(applied) == 1
	})
}
