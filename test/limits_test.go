package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
)

// TestSpentConductorEndsItsNode checks that a node whose conductor has reached a limit finishes its
// jobs, takes no others, and ends with exit code 0.
func TestSpentConductorEndsItsNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	writeHandler(t, filepath.Join(dir, "handlers"), "work", "while [ ! -e '"+gate+"' ]; do sleep 0.05; done; echo 1")
	document := filepath.Join(dir, "flow.toml")
	if err := os.WriteFile(document, []byte("name = 'f'\n[[steps]]\nname = 'work'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := newClusterOf(t, 1, func(c *config.Config) {
		c.Conductor.Handlers, c.Conductor.MaxDispatches = []string{filepath.Join(dir, "handlers")}, 2
	})
	node := cluster.Nodes[0]
	begin := func() {
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		if err := node.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	conductord := func(args ...string) string {
		output, err := exec.CommandContext(within(t), binary, append(args, "--server", node.API)...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return strings.TrimSpace(string(output))
	}
	begin()
	var ids []string
	for range 3 {
		ids = append(ids, conductord("flow", "run", document))
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, err := node.Wait(within(t)); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}

	if err := node.Reconfigure(func(c *config.Config) { c.Conductor.MaxDispatches, c.Conductor.Enabled = 0, false }); err != nil {
		t.Fatal(err)
	}
	begin()
	if done := conductord("job", "list", "--state", "completed"); !strings.Contains(done, ids[0]) || !strings.Contains(done, ids[1]) || strings.Contains(done, ids[2]) {
		t.Errorf("of %q are completed:\n%s", ids, done)
	}
	if status, err := node.Terminate(within(t)); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}

	if err := node.Reconfigure(func(c *config.Config) { c.Conductor.MaxDuration, c.Conductor.Enabled = time.Second, true }); err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if status, err := node.Wait(within(t)); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
}
