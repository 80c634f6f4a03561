package test

import (
	"os"
	"slices"
	"strings"
	"testing"

	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/cmd/conductord/daemon"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// startGrowing starts three nodes, and writes the configurations of further nodes that can join.
func startGrowing(t *testing.T, nodes int) (*local.Cluster, *raftboard.Client) {
	t.Helper()
	cluster := newClusterOf(t, nodes, func(c *config.Config) {
		c.Conductor.Enabled = false
		founders := c.Cluster.Members[:3]
		if slices.ContainsFunc(founders, func(m config.Member) bool { return m.Name == c.Node }) {
			c.Cluster.Members = founders
		}
	})
	for _, node := range cluster.Nodes[:3] {
		start(t, node)
	}
	for _, node := range cluster.Nodes[:3] {
		if err := node.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	client, err := raftboard.Dial(within(t), cluster.Endpoints()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return cluster, client
}

func start(t *testing.T, node *local.Node) {
	t.Helper()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
}

// membersDocument is the output of the commands that list members.
type membersDocument struct {
	Members []struct {
		Name  string `json:"name"`
		ID    string `json:"id"`
		Voter bool   `json:"voter"`
	} `json:"members"`
}

func (m membersDocument) voters() string {
	var names []string
	for _, member := range m.Members {
		if member.Voter {
			names = append(names, member.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// awaitVoters waits until a node lists these voters, and all members are healthy.
func awaitVoters(t *testing.T, node *local.Node, voters string) (health clustercmd.Health) {
	t.Helper()
	eventually(t, "the voters are "+voters, func() bool {
		var now membersDocument
		if err := prints(t, &now, "cluster", "members", "--server", node.API); err != nil || now.voters() != voters {
			return false
		}
		health = clustercmd.Health{}
		return prints(t, &health, "cluster", "check", "--server", node.API) == nil && health.Healthy
	})
	return health
}

// allThere expects the acknowledged jobs.
func allThere(t *testing.T, client *raftboard.Client, acknowledged []jobs.JobID) {
	t.Helper()
	for _, id := range acknowledged {
		if _, err := client.Job(within(t), id); err != nil {
			t.Errorf("a job that was acknowledged: %v", err)
		}
	}
	t.Logf("%d jobs were acknowledged", len(acknowledged))
}

// TestWipedDiskIsReplaced is the runbook "When a node's disk is gone", while jobs are posted.
// Promise 1: nothing is lost.
func TestWipedDiskIsReplaced(t *testing.T) {
	t.Parallel()
	cluster, client := startGrowing(t, 3)
	load := startPosting(t, client)
	load.wait(t, 100)
	wiped, other := cluster.Nodes[0], cluster.Nodes[1]
	refuses(t, 1, "another process uses this data directory", "cluster", "replace", wiped.Name, wiped.Name, "--config", wiped.Config)
	wiped.Kill()
	if err := os.RemoveAll(wiped.DataDir); err != nil {
		t.Fatal(err)
	}
	refuses(t, 4, "cluster replace node1 node1", "cluster", "join", "--config", wiped.Config)
	refuses(t, 2, `the configuration is for node "node1"`, "cluster", "replace", "node1", "node4", "--config", wiped.Config)
	refuses(t, 2, `this is cluster "local"`, "cluster", "replace", "node1", "node1", "--config", wiped.Config, "--cluster-id", "other")
	var joined daemon.JoinedNode
	if printed(t, &joined, "cluster", "replace", "node1", "node1", "--config", wiped.Config); joined.Replaces != "node1" || !joined.Voter {
		t.Errorf("joined: %+v", joined)
	}
	start(t, wiped)
	if health := awaitVoters(t, other, "node1 node2 node3"); health.Survives != 1 {
		t.Errorf("health: %+v", health)
	}
	load.wait(t, 50)
	other.Kill() // the new node counts
	load.wait(t, 50)
	allThere(t, client, load.stop())
}

// TestClusterGrowsAndShrinks is the runbook "Change the members", while jobs are posted.
// Promise 1: nothing is lost.
func TestClusterGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	cluster, client := startGrowing(t, 5)
	load := startPosting(t, client)
	load.wait(t, 100)
	for _, node := range cluster.Nodes[3:] {
		var joined daemon.JoinedNode
		printed(t, &joined, "cluster", "join", "--config", node.Config)
		start(t, node)
	}
	health := awaitVoters(t, cluster.Nodes[0], "node1 node2 node3 node4 node5")
	if health.Survives != 2 || !slices.ContainsFunc(health.Notes, func(note string) bool { return strings.Contains(note, "the file of node1 is out of date") }) {
		t.Errorf("health: %+v", health)
	}
	cluster.Nodes[0].Kill()
	cluster.Nodes[1].Kill()
	load.wait(t, 50)
	if err := prints(t, &clustercmd.Health{}, "cluster", "check", "--server", cluster.Nodes[4].API); err == nil || !strings.Contains(err.Error(), "node1 does not answer") {
		t.Errorf("health with two nodes away: %v", err)
	}
	var left, after membersDocument
	for _, gone := range []string{"node1", "node2"} {
		left = membersDocument{}
		printed(t, &left, "cluster", "remove", gone, "--server", cluster.Nodes[2].API)
	}
	if left.voters() != "node3 node4 node5" {
		t.Errorf("left: %+v", left)
	}
	refuses(t, 3, "node1", "cluster", "remove", "node1", "--server", cluster.Nodes[2].API)
	start(t, cluster.Nodes[0])
	if status, err := cluster.Nodes[0].Wait(within(t)); err != nil || status == 0 {
		t.Errorf("a removed node ends with status %d, %v", status, err)
	}
	if log, err := os.ReadFile(cluster.Nodes[0].Log); err != nil || !strings.Contains(string(log), "is no longer a member of the cluster: it was removed or replaced") {
		t.Errorf("a removed node does not say that it was removed: %v\n%s", err, log)
	}
	if printed(t, &after, "cluster", "demote", "node3", "--server", cluster.Nodes[4].API); after.voters() != "node4 node5" {
		t.Errorf("after a demotion: %+v", after)
	}
	printed(t, &left, "cluster", "promote", "node3", "--server", cluster.Nodes[4].API)
	load.wait(t, 50)
	allThere(t, client, load.stop())
}

// TestMachineMoves is the runbook "Other addresses".
func TestMachineMoves(t *testing.T) {
	t.Parallel()
	cluster, client := startGrowing(t, 3)
	load := startPosting(t, client)
	load.wait(t, 50)
	moving, other := cluster.Nodes[2], cluster.Nodes[0]
	moving.Kill()
	addresses, err := freeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	moving.Raft, moving.API = addresses[0], addresses[1]
	if err := moving.Reconfigure(func(c *config.Config) {
		c.Cluster.Members = slices.Clone(c.Cluster.Members)
		c.Cluster.Members[2].Raft, c.Cluster.Members[2].API = addresses[0], addresses[1]
	}); err != nil {
		t.Fatal(err)
	}
	move := []string{"cluster", "move", moving.Name, "--raft", moving.Raft, "--api", moving.API, "--server", other.API}
	refuses(t, 4, "start it there first", move...)
	start(t, moving)
	var now membersDocument
	eventually(t, "the cluster knows the new addresses", func() bool { return prints(t, &now, move...) == nil })
	if err := moving.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	other.Kill() // the moved node counts
	load.wait(t, 50)
	allThere(t, client, load.stop())
}
