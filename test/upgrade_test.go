package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/longtest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// builtWith builds the program with replaced files; an empty path removes a file.
func builtWith(t *testing.T, replace map[string]string) (program string) {
	t.Helper()
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "conductord")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, modulePath+"/cmd/conductord").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the other program: %v\n%s", err, said)
	}
	return program
}

// output is the output of a command, without the final newline.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(within(t), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return strings.TrimSuffix(string(said), "\n")
}

// newerProgram builds the program of a later release: it knows version 2 of the log's commands, and
// age_board requires that version.
func newerProgram(t *testing.T) string {
	t.Helper()
	root, dir := output(t, "go", "list", "-m", "-f", "{{.Dir}}"), t.TempDir()
	replace := map[string]string{}
	for _, change := range []struct{ file, before, after string }{
		{"fsm/command/entry.go", "const Version = 1\n", "const Version = 2\n"},
		{"fsm/command/verbs.go", "		Name: name, Permission: PermissionOf(name),", "		Since: map[string]byte{\"age_board\": 2}[name], Name: name, Permission: PermissionOf(name),"},
	} {
		path := filepath.Join(root, change.file)
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), change.before) != 1 {
			t.Fatalf("%s does not have exactly one %q: %v", change.file, change.before, err)
		}
		replace[path] = filepath.Join(dir, filepath.Base(change.file))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(text), change.before, change.after, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return builtWith(t, replace)
}

// formats are the places in the source with the numbers of the formats.
var formats = map[string]*regexp.Regexp{
	"fsm/command/entry.go":            regexp.MustCompile(`(?m)^const Version = \d+$`),
	"fsm/keys.go":                     regexp.MustCompile(`(?m)^const schemaVersion = \d+$`),
	"fsm/snapshot.go":                 regexp.MustCompile(`(?m)^const snapshotFormat = \d+$`),
	"raftboard/node/backup/backup.go": regexp.MustCompile(`(?m)^const Format = \d+$`),
}

// previousProgram builds the program of the previous commit, from its changed files.
func previousProgram(t *testing.T) string {
	t.Helper()
	if err := exec.Command("git", "rev-parse", "--verify", "-q", "HEAD~1").Run(); err != nil {
		t.Skip("there is no commit before this one: git, and a clone with its history, are needed")
	}
	root, dir := output(t, "git", "rev-parse", "--show-toplevel"), t.TempDir()
	git := func(args ...string) string { return output(t, "git", append([]string{"-C", root}, args...)...) }
	for file, number := range formats {
		now, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !number.Match(now) {
			t.Fatalf("%s does not have the number of its format: %v", file, err)
		}
		if before := number.FindString(git("show", "HEAD~1:"+file)); before != string(number.Find(now)) {
			t.Skipf("%s has changed its format: before %q, and now %q", file, before, number.Find(now))
		}
	}
	replace := map[string]string{}
	for i, line := range strings.Split(git("diff", "--name-status", "--no-renames", "HEAD~1"), "\n") {
		state, file, _ := strings.Cut(line, "\t")
		if !strings.HasSuffix(file, ".go") && file != "go.mod" && file != "go.sum" {
			continue
		}
		path := filepath.Join(root, file)
		if replace[path] = ""; state == "A" {
			continue
		}
		replace[path] = filepath.Join(dir, fmt.Sprint(i, filepath.Base(file)))
		if err := os.WriteFile(replace[path], []byte(git("show", "HEAD~1:"+file)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range strings.Fields(git("ls-files", "--others", "--exclude-standard", "--full-name", ":/*.go")) {
		replace[filepath.Join(root, file)] = ""
	}
	return builtWith(t, replace)
}

// upgraded gives a node another program as in the runbook "Upgrading", and waits until it takes
// part in the load.
func upgraded(t *testing.T, node *local.Node, program string, load *posting) {
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

// noneDiffers compares the states of all members.
func noneDiffers(t *testing.T, client *raftboard.Client) {
	t.Helper()
	eventually(t, "all members are compared", func() bool {
		comparison, err := client.Verify(within(t))
		same := 0
		for _, member := range comparison.Members {
			if member.Differs != "" {
				t.Fatalf("%s differs: %s", member.Name, member.Differs)
			}
			if member.Same {
				same++
			}
		}
		return err == nil && same == len(comparison.Members)
	})
}

// TestPreviousCommit: while jobs are posted, each node changes to the program of the previous
// commit and back; both programs lead for a time. Nothing is lost, and no node differs. A
// commit that raises the number of a format is not tested.
func TestPreviousCommit(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	previous := previousProgram(t)
	cluster, client := startCluster(t, func(c *config.Config) {
		c.Conductor.Enabled, c.Cluster.VerifyInterval = false, time.Second
		c.Raft.SnapshotThreshold, c.Raft.TrailingLogs, c.Raft.SnapshotInterval = 16, 32, 100*time.Millisecond // so that each start reads a snapshot
	})
	load := startPosting(t, client)
	load.wait(t, 50)
	for _, program := range []string{previous, binary} {
		for _, node := range cluster.Nodes {
			upgraded(t, node, program, load)
			if _, err := client.TransferLeader(within(t), node.Name); err != nil {
				t.Fatal(err)
			}
			load.wait(t, 20)
		}
		noneDiffers(t, client)
	}
	allThere(t, client, load.stop())
}

// TestRollingUpgrade is the runbook "Upgrading", while jobs are posted: the nodes get a newer
// program one after the other, one of them goes back and forth again, and the cluster's
// version is raised when all can read it. Nothing is lost, and no node differs.
func TestRollingUpgrade(t *testing.T) {
	longtest.Skip(t)
	t.Parallel()
	newer := newerProgram(t)
	cluster, client := startCluster(t, func(c *config.Config) { c.Conductor.Enabled, c.Cluster.VerifyInterval = false, time.Second })
	load := startPosting(t, client)
	load.wait(t, 50)
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	status := func() (now clustercmd.UpgradeStatus) {
		printed(t, &now, "cluster", "upgrade-status", server)
		return now
	}
	age, change := []string{"board", "ageing", "default", "1h", server}, func(node *local.Node, program string) { upgraded(t, node, program, load) }
	change(cluster.Nodes[0], newer)
	change(cluster.Nodes[1], newer)
	if now := status(); now.ClusterVersion != 1 || now.CanUse != 1 {
		t.Errorf("a mixed cluster: %+v", now)
	}
	// The leader can run either program.
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
	refuses(t, 4, "requires cluster version 2, and the cluster uses version 1", age...)
	refuses(t, 4, "node3 supports versions up to 1", "cluster", "upgrade", server)
	change(cluster.Nodes[1], binary) // back to the old program
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
	if log, err := os.ReadFile(cluster.Nodes[1].Log); err != nil || !strings.Contains(string(log), "install a newer program") {
		t.Errorf("the older program does not say why it ends: %v\n%s", err, log)
	}
	cluster.Nodes[1].Use(newer)
	start(t, cluster.Nodes[1])
	if err := cluster.Nodes[1].WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	acknowledged := load.stop()
	noneDiffers(t, client)
	allThere(t, client, acknowledged)
	if _, err := jobs.PostOne(within(t), client, jobs.Posting{Name: "after", Kind: "none"}); err != nil {
		t.Error(err)
	}
}
