package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
)

// TestHandlersElsewhere: one of three real servers has a handler. The other servers release
// jobs that need it, until the first server has them. A job whose handler no server has is
// trashed at once.
func TestHandlersElsewhere(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	cluster, client := startCluster(t, func(c *config.Config) {
		handlers := filepath.Join(dir, c.Node)
		if err := os.MkdirAll(handlers, 0o700); err != nil {
			t.Fatal(err)
		}
		if c.Node == "node1" {
			writeHandler(t, handlers, "rare", "echo 1")
		}
		c.Conductor.Handlers = []string{handlers}
	})
	eventually(t, "all conductors are there", func() bool {
		present, err := client.Entities(t.Context(), jobs.EntityConductor)
		return err == nil && len(present) == len(cluster.Nodes)
	})
	leader := leaderOf(t, cluster, client)
	for name, want := range map[string]int{"rare": 0, "nobody's": 1} {
		handler := map[string]string{"rare": "rare", "nobody's": "missing"}[name]
		document := filepath.Join(dir, handler+".toml")
		text := "name = \"" + handler + "\"\npattern = \"linear\"\n\n[[steps]]\nname = \"" + handler + "\"\n"
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if got := command(t, "", "flow", "run", document, "--wait", "--server", leader.API); got.code != want {
				t.Errorf("a flow whose handler is %s ended with %d: %s%s", name, got.code, got.out, got.err)
			}
		}
	}
}

// TestHandlersAreFollowed: a running daemon announces a newly installed handler, and no longer
// announces a handler that is removed or not executable. An unchanged list is not logged again.
func TestHandlersAreFollowed(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	dir := t.TempDir()
	cluster := newClusterOf(t, 1, func(c *config.Config) { c.Conductor.Handlers = []string{dir} })
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	api := cluster.Nodes[0].API
	for _, row := range []struct {
		name string
		act  func() error
		want string
	}{
		{"none", func() error { return nil }, `"handlers":[]`},
		{"installed", func() error { writeHandler(t, dir, "paint", "echo 1"); return nil }, `"handlers":["paint"]`},
		{"another", func() error { writeHandler(t, dir, "sing", "echo 1"); return nil }, `"handlers":["paint","sing"]`},
		{"one is not executable", func() error { return os.Chmod(filepath.Join(dir, "paint"), 0o600) }, `"handlers":["sing"]`},
		{"executable again", func() error { return os.Chmod(filepath.Join(dir, "paint"), 0o700) }, `"handlers":["paint","sing"]`},
		{"removed", func() error { return os.Remove(filepath.Join(dir, "sing")) }, `"handlers":["paint"]`},
	} {
		if err := row.act(); err != nil {
			t.Fatal(err)
		}
		var got said
		eventually(t, row.name, func() bool {
			got = command(t, "", "conductor", "list", "-o", "json", "--server", api)
			return strings.Contains(strings.Join(strings.Fields(got.out), ""), row.want)
		})
	}
	log, err := os.ReadFile(cluster.Nodes[0].Log)
	if count := strings.Count(string(log), "handlers listed: directories="); err != nil || count != 6 {
		t.Errorf("the daemon's log names the handlers %d times, %v; want 6", count, err)
	}
}
