package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// TestHandlersElsewhere: one of three real servers has a handler. The others release jobs
// that need it, until that one has them. A job whose handler no server has is trashed at
// once.
func TestHandlersElsewhere(t *testing.T) {
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
