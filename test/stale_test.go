package test

import (
	"strings"
	"testing"
)

// TestStaleReads: without a majority, one node still answers what it knows to those who ask for
// that, and to nobody else.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	cluster, client := startCluster(t, nil)
	servers := "--server=" + strings.Join(cluster.Endpoints(), ",")
	id := strings.TrimSpace(ran(t, "job", "post", "--kind", "none", "--name", "lonely", servers))
	leader := leaderOf(t, cluster, client)
	for _, node := range cluster.Nodes {
		eventually(t, node.Name+" has the job", func() bool {
			return command(t, "", "job", "get", id, "--stale", "--server="+node.API).code == 0
		})
	}
	for _, node := range cluster.Nodes {
		if node != leader {
			node.Kill()
		}
	}
	eventually(t, "the last node leads no more", func() bool {
		status, err := client.Status(t.Context(), leader.API)
		return err == nil && status.State != "leader"
	})
	refuses(t, 6, "leader", "job", "list", "--timeout=2s", servers)
	for _, args := range [][]string{{"job", "list"}, {"job", "get", id}, {"board", "show", "default"}} {
		if said := ran(t, append(args, "--stale", servers)...); !strings.Contains(said, "default") {
			t.Errorf("%v: %s", args, said)
		}
	}
}
