package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// refuses runs a command that must end by itself, and checks that it prints the reason in one line.
func refuses(t *testing.T, status int, why string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	output, err := command.CombinedOutput()
	if err == nil || command.ProcessState.ExitCode() != status {
		t.Errorf("%v ended with status %d, want %d:\n%s", args, command.ProcessState.ExitCode(), status, output)
	}
	lines := 0
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "conductord: cannot") && regexp.MustCompile(why).MatchString(line) {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%v said %d times why (%s):\n%s", args, lines, why, output)
	}
}

// TestRefusals checks that a node with a dangerous configuration does not start, and prints the
// reason in one line.
func TestRefusals(t *testing.T) {
	t.Parallel()
	cluster, _ := startCluster(t, nil)
	first, second := cluster.Nodes[0], cluster.Nodes[1]

	t.Run("an empty data directory without --init", func(t *testing.T) {
		refuses(t, 1, "contains no node.*--init", "server", "--config", first.Config, "--data-dir", filepath.Join(t.TempDir(), "lost"))
	})
	t.Run("a data directory with other things in it", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "holiday.jpg"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refuses(t, 1, "is not empty", "server", "--config", first.Config, "--data-dir", dir, "--init")
	})
	t.Run("a data directory in use", func(t *testing.T) {
		refuses(t, 1, "another process uses this data directory", "server", "--config", first.Config)
	})
	t.Run("the data directory of another node", func(t *testing.T) {
		refuses(t, 1, `is the data directory of node "node2", and this is node "node1"`, "server", "--config", first.Config, "--data-dir", second.DataDir)
	})
	t.Run("another cluster id than the data directory has", func(t *testing.T) {
		refuses(t, 1, `belongs to cluster "local", and the configuration has cluster "other"`, "server", "--config", first.Config, "--cluster-id", "other")
	})
	t.Run("another cluster id than all others have", func(t *testing.T) {
		first.Kill()
		defer restart(t, first)
		refuses(t, 1, `every other node refuses this node.*belongs to cluster "other"`,
			"server", "--config", first.Config, "--cluster-id", "other", "--data-dir", filepath.Join(t.TempDir(), "new"), "--init")
	})
	t.Run("a node made anew after its disk was lost", func(t *testing.T) {
		first.Kill()
		defer restart(t, first)
		refuses(t, 1, `every other node refuses this node.*has lost its disk`,
			"server", "--config", first.Config, "--data-dir", filepath.Join(t.TempDir(), "new"), "--init")
	})
	t.Run("a lost log behind an identity", func(t *testing.T) {
		first.Kill()
		log := filepath.Join(first.DataDir, "raft.db")
		if err := os.Rename(log, log+".moved"); err != nil {
			t.Fatal(err)
		}
		refuses(t, 1, "has lost its raft log", "server", "--config", first.Config)
		if err := os.Rename(log+".moved", log); err != nil {
			t.Fatal(err)
		}
		restart(t, first)
	})
	t.Run("a configuration with faults", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "bad.toml")
		text := "node = \"n1\"\nnodes = 3\n[raft]\nheartbeat = \"soon\"\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), binary, "server", "--config", path).CombinedOutput()
		if err == nil {
			t.Fatal("it started")
		}
		for _, want := range []string{path + ":2: nodes", path + ":4: raft.heartbeat", "data_dir", "cluster.id"} {
			if !strings.Contains(string(output), want) {
				t.Errorf("nothing is said of %s:\n%s", want, output)
			}
		}
	})
}

func restart(t *testing.T, node *local.Node) {
	t.Helper()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if err := node.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
}

// TestOneOfThreeAnswersOnlyStaleReads: a single node of three answers stale reads, but no write and
// no linearizable read.
func TestOneOfThreeAnswersOnlyStaleReads(t *testing.T) {
	t.Parallel()
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled = false })
	last := cluster.Nodes[2]
	posted := documentPosting(t, "kept", linearDocument(1, "work"))
	if _, err := client.Post(within(t), posted); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last node has the job", func() bool {
		status, err := client.Status(t.Context(), last.API)
		return err == nil && status.Jobs[jobs.StateClaimable] == 1
	})
	cluster.Nodes[0].Kill()
	cluster.Nodes[1].Kill()
	// A post in flight at the timeout has an ambiguous result; a read does not.
	const unknown, noLeader = 5, 6
	var calls sync.WaitGroup
	for _, row := range []struct {
		allowed []int
		args    []string
	}{
		{[]int{noLeader}, []string{"job", "get", posted.ID.String()}},
		{[]int{noLeader, unknown}, []string{"job", "post", "--name", "refused", "--kind", "none"}},
	} {
		calls.Go(func() {
			command := exec.CommandContext(t.Context(), binary, append(row.args, "--server", last.API, "--timeout", "10s")...)
			output, err := command.CombinedOutput()
			if err == nil || !slices.Contains(row.allowed, command.ProcessState.ExitCode()) {
				t.Errorf("%v ended with status %d, want one of %v:\n%s", row.args, command.ProcessState.ExitCode(), row.allowed, output)
			}
		})
	}
	calls.Wait()
	stale, err := client.Stale().Job(within(t), posted.ID)
	if err != nil || stale.State != jobs.StateClaimable {
		t.Errorf("a stale read gives state %q, error %v", stale.State, err)
	}
}
