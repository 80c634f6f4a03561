package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// newerProgram builds the program as a later release would be: it knows version 2 of the
// log's commands, and age_board needs that.
func newerProgram(t *testing.T) string {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, dir := strings.TrimSpace(string(module)), t.TempDir()
	replace := map[string]string{}
	for _, change := range []struct{ file, before, after string }{
		{"fsm/command/entry.go", "const Version = 1\n", "const Version = 2\n"},
		{"fsm/command/verbs.go", "		Name: name, Permission: permission,", "		Since: map[string]byte{\"age_board\": 2}[name], Name: name, Permission: permission,"},
	} {
		path := filepath.Join(root, change.file)
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), change.before) != 1 {
			t.Fatalf("%s does not have exactly one %q: %v", change.file, change.before, err)
		}
		changed := filepath.Join(dir, filepath.Base(change.file))
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), change.before, change.after, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, newer := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "newer")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("go", "build", "-overlay", overlay, "-o", newer, modulePath+"/cmd/conductord").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the newer program: %v\n%s", err, said)
	}
	return newer
}

// TestRollingUpgrade is the runbook "Upgrading", while jobs are posted: the nodes get a newer
// program one after the other, one of them goes back and forth again, and the cluster's
// version is raised when all can read it. Nothing is lost, and no node differs.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	newer := newerProgram(t)
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled, c.Cluster.VerifyInterval = false, time.Second })
	load := startPosting(t, client)
	load.wait(t, 50)
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	status := func() (now cli.UpgradeStatus) {
		printed(t, &now, "cluster", "upgrade-status", server)
		return now
	}
	age := []string{"board", "ageing", "default", "1h", server}
	change := func(node *local.Node, program string) {
		t.Helper()
		if status, err := node.Terminate(within(t)); err != nil || status != 0 {
			t.Fatalf("%s ends with status %d, %v", node.Name, status, err)
		}
		node.Use(program)
		start(t, node)
		if err := node.WaitReady(within(t)); err != nil {
			t.Fatal(err)
		}
		load.wait(t, 20)
	}
	change(cluster.Nodes[0], newer)
	change(cluster.Nodes[1], newer)
	if now := status(); now.ClusterVersion != 1 || now.CanUse != 1 {
		t.Errorf("a mixed cluster: %+v", now)
	}
	// The leader may be of either program.
	for _, node := range cluster.Nodes {
		if _, err := client.TransferLeader(within(t), node.Name); err != nil {
			t.Fatal(err)
		}
		load.wait(t, 20)
	}
	if err := client.AgeBoard(within(t), "default", time.Hour); err != nil {
		t.Errorf("a command of version 1, with a leader that knows no other: %v", err)
	}
	if _, err := client.TransferLeader(within(t), cluster.Nodes[0].Name); err != nil {
		t.Fatal(err)
	}
	refuses(t, 4, "needs version 2 of the cluster, which is 1", age...)
	refuses(t, 4, "node3 knows up to 1", "cluster", "upgrade", server)
	change(cluster.Nodes[1], binary) // it goes back
	change(cluster.Nodes[1], newer)
	change(cluster.Nodes[2], newer)
	if now := status(); now.ClusterVersion != 1 || now.CanUse != 2 || now.Next != "conductord cluster upgrade" {
		t.Errorf("before the upgrade: %+v", now)
	}
	var raised struct {
		Version int `json:"version"`
	}
	if printed(t, &raised, "cluster", "upgrade", server); raised.Version != 2 {
		t.Errorf("raised to %d", raised.Version)
	}
	if said, err := exec.CommandContext(within(t), newer, age...).CombinedOutput(); err != nil {
		t.Errorf("a command of version 2: %v: %s", err, said)
	}
	if _, err := cluster.Nodes[1].Terminate(within(t)); err != nil {
		t.Fatal(err)
	}
	cluster.Nodes[1].Use(binary)
	start(t, cluster.Nodes[1])
	if code, err := cluster.Nodes[1].Wait(within(t)); err != nil || code == 0 {
		t.Errorf("the older program ends with status %d, %v", code, err)
	}
	if log, err := os.ReadFile(cluster.Nodes[1].Log); err != nil || !strings.Contains(string(log), "install a newer one") {
		t.Errorf("the older program does not say why it ends: %v\n%s", err, log)
	}
	cluster.Nodes[1].Use(newer)
	start(t, cluster.Nodes[1])
	acknowledged := load.stop()
	comparison, err := client.Verify(within(t))
	for _, member := range comparison.Members {
		if member.Differs != "" {
			t.Error(fmt.Sprintf("%s differs: %s", member.Name, member.Differs), err)
		}
	}
	allThere(t, client, acknowledged)
	if _, err := jobs.PostOne(within(t), client, jobs.Posting{Name: "after", Kind: "none"}); err != nil {
		t.Error(err)
	}
}
