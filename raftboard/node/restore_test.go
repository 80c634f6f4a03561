package node_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// backedUp reads a whole backup.
func backedUp(t *testing.T, client *raftboard.Client) []byte {
	t.Helper()
	reader, err := client.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	file, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// restored creates a cluster from a backup, and starts it. Its last node keeps its log in raft-wal.
func restored(t *testing.T, file []byte, size int, how membership.Restore) *cluster {
	t.Helper()
	c := newCluster(t, size)
	c.options[size-1].LogStore = logstore.WAL
	for i := range c.options {
		c.options[i].Init = false
		if _, err := node.RestoreBackup(c.options[i], bytes.NewReader(file), how); err != nil {
			t.Fatal(err)
		}
	}
	return c.startAll()
}

// TestBackupIsRestored makes backups at any node while jobs are posted. Each contains
// everything that was acknowledged before. Clusters of one, three and five nodes start from
// it, and no earlier token or session is valid in them.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	client := c.client()
	claimed := claimedFor(t, client, jobs.MaxTTL, 0)
	for _, name := range []string{"hourly", "daily"} {
		if _, err := client.SaveSchedule(t.Context(), schedules.Schedule{Name: name, Rule: "@" + name, Posting: jobs.Posting{Kind: "tick"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.PauseSchedule(t.Context(), schedules.Command{Ref: schedules.Ref{Name: "daily"}, Reason: "a holiday"}); err != nil {
		t.Fatal(err)
	}
	var acknowledged []jobs.JobID
	for range 50 {
		acknowledged = append(acknowledged, posted(t, client))
	}
	file := backupUnderLoad(t, c)
	last := lastEvent(t, client, posted(t, client)) // a job after the backup
	if _, err := membership.VerifyBackup(bytes.NewReader(file), t.TempDir()); err != nil {
		t.Error(err)
	}
	for i := range c.nodes {
		c.stop(i)
	}
	for _, size := range []int{1, 3, 5} {
		t.Run(fmt.Sprint("nodes ", size), func(t *testing.T) {
			t.Parallel()
			c := restored(t, file, size, membership.Restore{PauseSchedules: true})
			client := c.client()
			for _, id := range acknowledged {
				if _, err := client.Job(t.Context(), id); err != nil {
					t.Fatalf("job %s was acknowledged before the backup: %v", id, err)
				}
			}
			checkFreshStart(t, client, claimed)
			next := posted(t, client)
			seen := false
			for event, err := range client.Watch(t.Context(), jobs.Watch{After: &last, Kinds: []jobs.EventKind{jobs.EventPosted}}) {
				if err != nil {
					t.Fatal(err)
				}
				if seen = event.Job == next; seen {
					break
				}
			}
			if !seen {
				t.Error("who has watched the cluster from before does not see a new job")
			}
			same(t, c)
		})
	}
}

// lastEvent is the position of a job's posting.
func lastEvent(t *testing.T, client *raftboard.Client, id jobs.JobID) jobs.Position {
	t.Helper()
	for event, err := range client.Watch(t.Context(), jobs.Watch{After: &jobs.Position{}, Job: id}) {
		if err != nil {
			t.Fatal(err)
		}
		return event.Position
	}
	return jobs.Position{}
}

// backupUnderLoad makes a backup at a follower while jobs are posted.
func backupUnderLoad(t *testing.T, c *cluster) []byte {
	t.Helper()
	loaded, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			client := c.client()
			for loaded.Err() == nil {
				posted(t, client)
			}
		})
	}
	defer load.Wait()
	defer stop()
	return backedUp(t, c.client((c.leader()+1)%3))
}

// checkFreshStart checks the owners and schedules of a restored cluster.
func checkFreshStart(t *testing.T, client *raftboard.Client, before jobs.Claimed) {
	t.Helper()
	if err := client.Consume(t.Context(), jobs.Ending{Job: before.Job.ID, Token: before.Job.Token, Outcome: jobs.OutcomeSuccess}); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("the owner from before consumes its job: %v", err)
	}
	if err := client.KeepAlive(t.Context(), before.Job.Claim.Session); !errors.Is(err, jobs.ErrSessionExpired) {
		t.Errorf("the session from before is kept alive: %v", err)
	}
	job, err := client.Job(t.Context(), before.Job.ID)
	if err != nil || job.State != jobs.StateClaimable {
		t.Errorf("the job that was claimed is %s: %v", job.State, err)
	}
	again := claimedFor(t, client, jobs.MaxTTL, 0)
	if again.Job.Token.Generation != before.Job.Token.Generation+1 {
		t.Errorf("after token %v comes %v", before.Job.Token, again.Job.Token)
	}
	page, err := client.Schedules(t.Context(), schedules.Query{})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d schedules: %v", len(page.Items), err)
	}
	for _, schedule := range page.Items {
		if schedule.Pause == nil || (schedule.Name == "daily") != (schedule.Pause.Reason == "a holiday") {
			t.Errorf("schedule %s is paused by %+v", schedule.Name, schedule.Pause)
		}
	}
}

// TestBackupsThatAreRefused checks that an incomplete backup, or a backup of another cluster,
// creates no node, and that the data directory of an existing node does not change.
func TestBackupsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	posted(t, c.client())
	file := backedUp(t, c.client())
	c.stop(0)
	flipped := bytes.Clone(file)
	flipped[len(file)/2] ^= 1
	for _, row := range []struct {
		name   string
		file   []byte
		how    membership.Restore
		adjust func(*node.Options)
		want   string
	}{
		{"cut off", file[:len(file)/2], membership.Restore{}, nil, "bad backup: its state is truncated"},
		{"changed", flipped, membership.Restore{}, nil, "bad"},
		{"of another cluster", file, membership.Restore{}, func(o *node.Options) { o.Cluster = "other" }, `is from cluster "test", not from "other": to restore it anyway, use --from-cluster`},
		{"of another cluster than is named", file, membership.Restore{FromCluster: "third"}, nil, `is from cluster "test", not from "third"`},
		{"of the same generation", file, membership.Restore{Generation: 1}, nil, "generation 1 is not higher than the generation of the backup, 1"},
		{"into a node", file, membership.Restore{}, func(o *node.Options) { o.DataDir = c.options[0].DataDir }, "it contains a node: restore into an empty directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			options := c.options[0]
			options.DataDir = t.TempDir()
			if row.adjust != nil {
				row.adjust(&options)
			}
			before := names(t, options.DataDir)
			if _, err := node.RestoreBackup(options, bytes.NewReader(row.file), row.how); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if after := names(t, options.DataDir); !slices.Equal(before, after) {
				t.Errorf("the directory had %v, and has %v", before, after)
			}
		})
	}
	c.options[0].Init = false
	c.startAll() // the directory is unchanged
	other := c.options[0]
	other.Cluster, other.DataDir = "staging", t.TempDir()
	if _, err := node.RestoreBackup(other, bytes.NewReader(file), membership.Restore{FromCluster: "test"}); err != nil {
		t.Errorf("a backup of the cluster that is named: %v", err)
	}
	for _, bad := range [][]byte{file[:len(file)/2], flipped} {
		scratch := t.TempDir()
		if _, err := membership.VerifyBackup(bytes.NewReader(bad), scratch); !errors.Is(err, backup.ErrBad) || len(names(t, scratch)) > 0 {
			t.Errorf("a bad backup was verified, or left %v: %v", names(t, scratch), err)
		}
	}
}

// names are the files of a directory, without its lock.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "lock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

// TestRestoreThatWasCutOff checks that a node does not start after an interrupted restore, and that
// the restore can be repeated.
func TestRestoreThatWasCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	id := posted(t, c.client())
	file := backedUp(t, c.client())
	c.stop(0)
	options := c.options[0]
	options.DataDir = t.TempDir()
	if _, err := node.RestoreBackup(options, bytes.NewReader(file), membership.Restore{}); err != nil {
		t.Fatal(err)
	}
	// As if the process had ended before its last step.
	if err := os.Remove(filepath.Join(options.DataDir, "node.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(options.DataDir, "restore.incomplete"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Open(options); err == nil || !strings.Contains(err.Error(), "was interrupted: restore it again") {
		t.Errorf("a node with half a restore starts: %v", err)
	}
	if _, err := node.RestoreBackup(options, bytes.NewReader(file), membership.Restore{}); err != nil {
		t.Fatal(err)
	}
	c.options[0] = options
	if _, err := c.startAll().client().Job(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestNodesOfDifferentBackups checks that nodes which were restored from different
// backups, or with different flags, form no cluster: their states differ at one index.
func TestNodesOfDifferentBackups(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	posted(t, c.client())
	first := backedUp(t, c.client())
	posted(t, c.client())
	second := backedUp(t, c.client())
	c.stop(0)
	mixed := newCluster(t, 3)
	fatal := make(chan error, 3)
	for i, file := range [][]byte{first, second, second} {
		mixed.options[i].Init = false
		mixed.options[i].Fatal = func(err error) { fatal <- err }
		if _, err := node.RestoreBackup(mixed.options[i], bytes.NewReader(file), membership.Restore{}); err != nil {
			t.Fatal(err)
		}
	}
	mixed.start(1, 2)
	mixed.ready()
	_, err := node.Open(mixed.options[0])
	if want := "were not restored from the same backup"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	posted(t, mixed.client(1, 2))
}

// TestScheduledBackups checks that a node makes backups by itself, keeps the configured number, and
// reports the time since the last one.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	remains := filepath.Join(dir, "test-n1-20260102T030405Z.tar.123.tmp")
	foreign := filepath.Join(dir, "test-n2-20260102T030405Z.tar")
	for _, path := range []string{remains, foreign} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	metrics := prometheus.NewRegistry()
	c := newCluster(t, 1, func(o *node.Options) {
		o.Metrics, o.Backups = metrics, node.Backups{Directory: dir, Interval: time.Second, Keep: 2}
	}).startAll()
	posted(t, c.client())
	seen := map[string]bool{}
	eventually(t, "three backups were made, and two are kept", func() bool {
		for _, name := range names(t, dir) {
			seen[name] = true
		}
		kept := slices.DeleteFunc(names(t, dir), func(name string) bool { return !strings.HasPrefix(name, "test-n1-") || strings.HasSuffix(name, ".tmp") })
		return len(seen) >= 5 && len(kept) == 2
	})
	client := c.client()
	eventually(t, "the status lists verified backups, the newest first", func() bool {
		all := client.Cluster(t.Context())[0].Status
		return all.BackupInterval == time.Second && len(all.Backups) >= 2 && all.Backups[0].Verified && all.Backups[0].Index >= all.Backups[1].Index &&
			all.Backups[1].Index > 0 && all.Backups[0].Bytes > 0 && all.Backups[0].MadeAt.After(all.Backups[1].MadeAt) && strings.HasPrefix(all.Backups[0].File, "test-n1-")
	})
	if _, err := os.Stat(remains); err == nil {
		t.Error("the remains of a backup are still there")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("another node's backup is gone: %v", err)
	}
	if age := gauge(t, metrics, "conductord_backup_age_seconds"); age < 0 || age > patience.Seconds() {
		t.Errorf("the newest backup is %v seconds old", age)
	}
	c.stop(0)
	broken := filepath.Join(dir, "test-n1-22000102T030405Z.tar")
	if err := os.WriteFile(broken, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.options[0].Metrics = prometheus.NewRegistry()
	c.start(0)
	eventually(t, "a broken backup is found after a start", func() bool {
		all := client.Cluster(t.Context())[0].Status
		return len(all.Backups) > 0 && all.Backups[0].File == filepath.Base(broken) && strings.Contains(all.Backups[0].Fault, "bad backup") && !all.Backups[0].Verified
	})
	c.stop(0)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	for _, name := range names(t, dir) {
		if path := filepath.Join(dir, name); path != foreign {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := membership.VerifyBackup(file, t.TempDir()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = file.Close()
		}
	}
	inside := c.options[0]
	inside.Backups.Directory = filepath.Join(inside.DataDir, "backups")
	if _, err := node.Open(inside); err == nil || !strings.Contains(err.Error(), "is within the data directory") {
		t.Errorf("backups within the data directory: %v", err)
	}
}

func gauge(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestStoppedNodeIsChecked checks that a check of a stopped node finds all of its jobs and
// changes nothing, and that it refuses what a start would refuse.
func TestStoppedNodeIsChecked(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, kind logstore.Kind) {
		for _, log := range []string{"since", "after", "empty"} {
			t.Run("log "+log, func(t *testing.T) {
				t.Parallel()
				_, dir := nodeWithSnapshots(t, kind, log, false)
				before := fingerprint(t, dir)
				found, err := membership.CheckStopped(dir, t.TempDir())
				if err != nil || found.Jobs[jobs.StateClaimable] != jobsHad || found.Index == 0 {
					t.Errorf("found %+v: %v", found, err)
				}
				if after := fingerprint(t, dir); after != before {
					t.Errorf("the directory was\n%s\nand is\n%s", before, after)
				}
				ofSnapshot(0, "state.bin", flipMiddle)(t, dir)
				found, err = membership.CheckStopped(dir, t.TempDir())
				if lost := log != "since"; lost == (err == nil) || (err == nil && found.Jobs[jobs.StateClaimable] != jobsHad) {
					t.Errorf("with a damaged snapshot it has %+v: %v", found, err)
				} else if err != nil && !strings.Contains(err.Error(), filepath.Join(dir, "snapshots")) {
					t.Errorf("the fault does not name the directory: %v", err)
				}
				ofLog("", os.RemoveAll)(t, dir)
				if _, err = membership.CheckStopped(dir, t.TempDir()); err == nil || !strings.Contains(err.Error(), "has lost its raft log") {
					t.Errorf("without a log: %v", err)
				}
			})
		}
	})
	if _, err := membership.CheckStopped(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "it contains no node") {
		t.Errorf("an empty directory: %v", err)
	}
}

// fingerprint lists the files of a directory with their contents' sums.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(&list, "%s %x\n", path, sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}
