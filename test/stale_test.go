package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/raftboard/wire"
)

// TestStaleReads: without a majority, one node still answers from its own state, but only to
// callers that request stale answers.
func TestStaleReads(t *testing.T) {
	longtest.Skip(t)
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
	eventually(t, "the last node no longer leads", func() bool {
		status, err := client.Status(t.Context(), leader.API)
		return err == nil && status.State != "leader"
	})
	refuses(t, 6, "leader", "job", "list", "--timeout=2s", servers)
	answer, err := http.Post("http://"+leader.API+"/conductord.v1.BoardService/ListJobs", "application/json", strings.NewReader(`{"stale": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if age, err := time.ParseDuration(answer.Header.Get(wire.HeaderAge)); err != nil || age <= 0 {
		t.Errorf("a stale answer over plain HTTP has the headers %v", answer.Header)
	}
	for _, args := range [][]string{{"job", "list"}, {"job", "get", id}, {"board", "show", "default"}} {
		if got := command(t, "", append(args, "--stale", servers)...); !strings.Contains(got.out, "default") || !strings.Contains(got.err, "stale: up to ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
