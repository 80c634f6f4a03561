package test

import (
	"flag"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/test/attack"
)

var (
	silent    = flag.Int("silent", 100, "silent connections at each raft port in TestSilentConnections")
	elections = flag.Int("elections", 1, "elections with and without them")
)

// slowElection is longer than an election and a start on a busy machine.
const slowElection = 15 * time.Second

// TestSilentConnections: unknown callers that connect to the raft ports and send nothing delay
// neither an election nor the start of a node. "-silent N -elections N -v" measures both.
func TestSilentConnections(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	c, err := attack.Start(within(t), local.Options{Binary: binary, Dir: t.TempDir(), Addresses: freeAddresses})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for range *elections {
		for _, connections := range []int{0, *silent} {
			end := c.Silence(connections)
			leader := leaderAmong(t, c)
			began := time.Now()
			leader.Kill()
			eventually(t, "the others have a leader, and acknowledge", func() bool {
				_, err := jobs.PostOne(within(t), c.Honest, attack.Posting())
				return err == nil
			})
			elected := time.Since(began)
			began = time.Now()
			start(t, leader)
			err := leader.WaitReady(within(t))
			ready := time.Since(began)
			end()
			t.Logf("%d silent connections at each raft port: the next leader acknowledges after %.1f s, and the node that was killed is ready after %.1f s",
				connections, elected.Seconds(), ready.Seconds())
			if err != nil || elected > slowElection || ready > slowElection {
				t.Errorf("beside %d silent connections: %v and %v, %v", connections, elected, ready, err)
			}
		}
	}
}

// leaderAmong finds the leading node.
func leaderAmong(t *testing.T, c *attack.Cluster) (leader *local.Node) {
	t.Helper()
	eventually(t, "a node leads", func() bool {
		for _, node := range c.Nodes {
			status, err := c.Honest.Status(within(t), node.API)
			if err == nil && status.Leader == node.Name && status.Ready {
				leader = node
				return true
			}
		}
		return false
	})
	return leader
}
