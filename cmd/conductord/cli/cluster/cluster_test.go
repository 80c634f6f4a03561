package cluster_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	clustercmd "github.com/conductord/conductord/cmd/conductord/cli/cluster"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

func TestClusterStatus(t *testing.T) {
	offset := -time.Second / 4
	leader := raftboard.NodeStatus{Endpoint: "a:1", Status: raftboard.Status{Node: "n1", Cluster: "c", State: "leader", Leader: "n1", Term: 3, AppliedIndex: 17,
		Ready: true, Sessions: 2, LogStore: "wal", ClockOffset: &offset, Jobs: map[jobs.State]uint64{"completed": 5, "claimable": 1}}}
	down := raftboard.NodeStatus{Endpoint: "b:1", Err: errors.New("connection refused")}
	lone := raftboard.NodeStatus{Endpoint: "c:1", Status: raftboard.Status{Node: "n3", Cluster: "c", State: "candidate", NotReady: "no leader"}}
	free := raftboard.NodeStatus{Endpoint: "d:1", Status: raftboard.Status{Node: "n4", Cluster: "c", State: "leader", Leader: "n4", Ready: true, LogBytes: 600 << 20, LogFreeBytes: 300 << 20}}
	busy := raftboard.NodeStatus{Endpoint: "e:1", Status: raftboard.Status{Node: "n5", Cluster: "c", State: "leader", Leader: "n5", Ready: true, LogBytes: 800 << 20, LogFreeBytes: 300 << 20}}
	header := "ENDPOINT NODE CLUSTER STATE LEADER TERM APPLIED SESSIONS LOG CLOCK JOBS READY\n"
	for _, row := range []struct {
		name  string
		nodes []raftboard.NodeStatus
		code  int
		out   string
	}{
		{"led", []raftboard.NodeStatus{leader, down}, 0, header + "a:1 n1 c leader n1 3 17 2 wal -TOOK 1 claimable, 5 completed yes\nb:1 - - - - 0 0 0 - - - no answer\nb:1 does not answer: connection refused\n"},
		{"a log that is mostly free", []raftboard.NodeStatus{free}, 0, header + "d:1 n4 c leader n4 0 0 0 - - - yes\n" +
			"300 of 600 MiB of n4's raft log are free; to shrink the log, stop the node and run `conductord log-store compact --data-dir DIR`\n"},
		{"a log in use", []raftboard.NodeStatus{busy}, 0, header + "e:1 n5 c leader n5 0 0 0 - - - yes\n"},
		{"not led", []raftboard.NodeStatus{lone}, cli.ExitUnavailable, header + "c:1 n3 c candidate - 0 0 0 - - - no: no leader\n"},
	} {
		cluster := clitest.Open(t)
		cluster.Statuses = row.nodes
		got := clitest.Run(t, cluster, "cluster", "status")
		if got.Code != row.code || clitest.Steady(got.Out) != row.out || strings.Contains(got.Out, "n1") && !strings.Contains(got.Out, " -0.250s ") {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

func TestTransferLeader(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		line string
		want clitest.Said
	}{
		{"cluster transfer-leader", clitest.Said{Out: "n2 leads\n", Err: "", Code: 0}},
		{"cluster transfer-leader n3", clitest.Said{Out: "n3 leads\n", Err: "", Code: 0}},
		{"cluster transfer-leader n3 -o json", clitest.Said{Out: "{\n  \"leader\": \"n3\"\n}\n", Err: "", Code: 0}},
		{"cluster transfer-leader nobody", clitest.Said{Out: "", Err: "conductord: cannot transfer the leadership: not found\n", Code: cli.ExitNotFound}},
	} {
		if got := clitest.Run(t, cluster, strings.Fields(row.line)...); got != row.want {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

func threeMembers() []raftboard.Member {
	return []raftboard.Member{
		{Name: "n1", ID: "n1.1", RaftAddress: "h1:7071", APIAddress: "h1:7070", Voter: true},
		{Name: "n2", ID: "n2.1", RaftAddress: "h2:7071", APIAddress: "h2:7070", Voter: true},
		{Name: "n3", ID: "n3.1", RaftAddress: "h3:7071", APIAddress: "h3:7070"},
	}
}

func TestMembers(t *testing.T) {
	cluster := clitest.Open(t)
	cluster.Members = threeMembers()
	cluster.Statuses = []raftboard.NodeStatus{{Endpoint: "h1:7070", Status: raftboard.Status{Node: "n1", AppliedIndex: 7, Members: threeMembers()}}}
	for _, row := range []struct {
		line string
		want clitest.Said
	}{
		{"cluster members", clitest.Said{Out: "NAME  ROLE       RAFT     API      ID\nn1    voter      h1:7071  h1:7070  n1.1\nn2    voter      h2:7071  h2:7070  n2.1\nn3    non-voter  h3:7071  h3:7070  n3.1\n", Err: "", Code: 0}},
		{"cluster promote n3", clitest.Said{Out: "NAME  ROLE   RAFT     API      ID\nn1    voter  h1:7071  h1:7070  n1.1\nn2    voter  h2:7071  h2:7070  n2.1\nn3    voter  h3:7071  h3:7070  n3.1\n", Err: "", Code: 0}},
		{"cluster demote n2", clitest.Said{Out: "NAME  ROLE       RAFT     API      ID\nn1    voter      h1:7071  h1:7070  n1.1\nn2    non-voter  h2:7071  h2:7070  n2.1\nn3    voter      h3:7071  h3:7070  n3.1\n", Err: "", Code: 0}},
		{"cluster move n1 --raft h9:1 --api h9:2", clitest.Said{Out: "NAME  ROLE       RAFT     API      ID\nn1    voter      h9:1     h9:2     n1.1\nn2    non-voter  h2:7071  h2:7070  n2.1\nn3    voter      h3:7071  h3:7070  n3.1\n", Err: "", Code: 0}},
		{"cluster remove n2", clitest.Said{Out: "NAME  ROLE   RAFT     API      ID\nn1    voter  h9:1     h9:2     n1.1\nn3    voter  h3:7071  h3:7070  n3.1\n", Err: "", Code: 0}},
		{"cluster remove n3 -o json", clitest.Said{Out: "{\n  \"members\": [\n    {\n      \"name\": \"n1\",\n      \"id\": \"n1.1\",\n      \"raft_address\": \"h9:1\",\n      \"api_address\": \"h9:2\",\n      \"voter\": true\n    }\n  ]\n}\n", Err: "", Code: 0}},
		{"cluster remove n3", clitest.Said{Out: "", Err: "conductord: cannot remove the member: not found\n", Code: cli.ExitNotFound}},
	} {
		if got := clitest.Run(t, cluster, strings.Fields(row.line)...); got != row.want {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

// A check names what needs an operator, and counts the voters that can be lost.
func TestClusterCheck(t *testing.T) {
	cluster := clitest.Open(t)
	offset := 2 * time.Second
	healthy := func() []raftboard.NodeStatus {
		var nodes []raftboard.NodeStatus
		members := threeMembers()
		members[2].Voter = true
		for _, m := range members {
			nodes = append(nodes, raftboard.NodeStatus{Endpoint: m.APIAddress, Status: raftboard.Status{
				Node: m.Name, Leader: "n1", AppliedIndex: 50_000, CommitIndex: 50_000, Members: members, Version: "v1", Ready: true,
			}})
		}
		return nodes
	}
	for _, row := range []struct {
		name   string
		change func([]raftboard.NodeStatus)
		want   clitest.Said
	}{
		{"healthy", func([]raftboard.NodeStatus) {}, clitest.Said{Out: "1 more voter can be lost\n", Err: "", Code: 0}},
		{"one is away", func(n []raftboard.NodeStatus) { n[1].Err = jobs.ErrUnavailable }, clitest.Said{
			Out: "no further voter can be lost\n", Err: "conductord: the cluster needs attention: n2 does not answer at h2:7070\n", Code: cli.ExitFailed}},
		{"two are away", func(n []raftboard.NodeStatus) {
			n[1], n[2] = raftboard.NodeStatus{Err: jobs.ErrUnavailable}, raftboard.NodeStatus{Err: jobs.ErrUnavailable}
			n[0].Status.Leader, n[0].Status.Ready, n[0].Status.NotReady = "", false, "no leader"
		}, clitest.Said{
			Out: "no majority: 2 more voters must answer\n", Err: "conductord: the cluster needs attention: no node knows a leader; n1 is not ready: no leader; n2 does not answer at h2:7070; n3 does not answer at h3:7070\n", Code: cli.ExitFailed}},
		{"one is behind", func(n []raftboard.NodeStatus) { n[2].Status.AppliedIndex = 10 }, clitest.Said{
			Out: "1 more voter can be lost\n", Err: "conductord: the cluster needs attention: n3 is 49990 entries behind\n", Code: cli.ExitFailed}},
		{"a wrong clock", func(n []raftboard.NodeStatus) { n[2].Status.ClockOffset = &offset }, clitest.Said{
			Out: "1 more voter can be lost\n", Err: "conductord: the cluster needs attention: the clock of n3 is off by +2.000s: check its time service\n", Code: cli.ExitFailed}},
		{"a full disk", func(n []raftboard.NodeStatus) { n[2].Status.DiskFreeBytes, n[2].Status.DiskShort = 30<<20, true }, clitest.Said{
			Out: "1 more voter can be lost\n", Err: "conductord: the cluster needs attention: the disk of n3 has too little free space, 30 MiB, so the cluster rejects new work: " +
				"free space, use a larger disk, or set a smaller disk_reserve\n", Code: cli.ExitFailed}},
		{"an old backup", func(n []raftboard.NodeStatus) {
			n[1].Status.BackupInterval, n[1].Status.BackupAge = 24*time.Hour, 24*time.Hour
			n[2].Status.BackupInterval, n[2].Status.BackupAge = time.Hour, 3*time.Hour
			n[2].Status.Backups = []raftboard.ScheduledBackup{{File: "c-n3.tar", Fault: "it is truncated"}}
		}, clitest.Said{
			Out: "1 more voter can be lost\n", Err: "conductord: the cluster needs attention: scheduled backups of n3 are overdue: the newest is 3h0m0s old, and the interval is 1h0m0s: see the log of the node; " +
				"the newest scheduled backup of n3 cannot be used: it is truncated\n", Code: cli.ExitFailed}},
		{"notes", func(n []raftboard.NodeStatus) { n[2].Status.Version, n[2].Status.MembersDiffer = "v2", "they differ" }, clitest.Said{
			Out: "1 more voter can be lost\nnote: the file of n3 is out of date: they differ\nnote: the nodes run different versions: v1, v2\n", Err: "", Code: 0}},
	} {
		cluster.Statuses = healthy()
		row.change(cluster.Statuses)
		if got := clitest.Run(t, cluster, "cluster", "check"); got != row.want {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

// Joining makes a data directory, or leaves nothing behind if the cluster refuses the node.
func TestClusterJoin(t *testing.T) {
	cluster := clitest.Open(t)
	cluster.Members = threeMembers()
	dir := t.TempDir()
	file := filepath.Join(dir, "n2.toml")
	text := "node = \"n2\"\ninsecure = true\ndata_dir = \"" + filepath.Join(dir, "data") + "\"\n[cluster]\nid = \"test\"\n" +
		"[[cluster.members]]\nname = \"n1\"\nraft = \"h1:7071\"\napi = \"h1:7070\"\n[[cluster.members]]\nname = \"n2\"\nraft = \"h2:7071\"\napi = \"h2:7070\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := clitest.Run(t, cluster, "cluster", "join", "--config", file); got.Code != cli.ExitConflict {
		t.Errorf("a name in use: %+v", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "data", "*.*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	got := clitest.Run(t, cluster, "cluster", "replace", "n2", "n2", "--config", file)
	if got != (clitest.Said{Out: "node n2 is a member of cluster test: start the node, without --init\n", Err: "", Code: 0}) {
		t.Errorf("replaced: %+v", got)
	}
	if got := clitest.Run(t, cluster, "cluster", "replace", "n2", "n2", "--config", file); got.Code != cli.ExitFailed || !strings.Contains(got.Err, "it contains a node") {
		t.Errorf("again: %+v", got)
	}
	if got := clitest.Run(t, cluster, "cluster", "replace", "n2", "n7", "--config", file); got.Code != cli.ExitUsage {
		t.Errorf("on another machine: %+v", got)
	}
}

// Each flag of the check command adds a test. A failed test is a problem.
func TestClusterCheckTests(t *testing.T) {
	cluster := clitest.Open(t)
	members := threeMembers()[:1]
	cluster.Statuses = []raftboard.NodeStatus{{Status: raftboard.Status{Node: "n1", Leader: "n1", Members: members, Ready: true}}}
	cluster.Compared = []raftboard.MemberCheck{{Name: "n1", Same: true}, {Name: "n2", Error: "it is away"}}
	want := clitest.Said{Out: "no further voter can be lost\nNODE  ENTRY  STATE\nn1    42     same\nn2    42     not compared: it is away\n", Err: "", Code: 0}
	if got := clitest.Run(t, cluster, "cluster", "check", "--states"); got != want {
		t.Errorf("one is away: %+v", got)
	}
	cluster.Compared[1] = raftboard.MemberCheck{Name: "n2", Differs: "table job"}
	want = clitest.Said{Out: "no further voter can be lost\nNODE  ENTRY  STATE\nn1    42     same\nn2    42     differs in table job\n",
		Err: "conductord: the cluster needs attention: the state of n2 differs from the majority, so the node stops: see \"A member differs\" in docs/repair.md\n", Code: cli.ExitFailed}
	if got := clitest.Run(t, cluster, "cluster", "check", "--states"); got != want {
		t.Errorf("one differs: %+v", got)
	}
	var document struct {
		Healthy bool
		States  struct{ Members []struct{ Differs string } }
		Tests   []clustercmd.TestedCluster
	}
	got := clitest.Run(t, cluster, "cluster", "check", "--states", "--disk", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &document); err != nil || got.Code != cli.ExitFailed || document.Healthy ||
		document.States.Members[1].Differs != "table job" || len(document.Tests) != 1 || document.Tests[0].Test != "disk" || document.Tests[0].Verdict == "" {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "cluster", "check", "--failover"), 0,
		"no further voter can be lost\nfailover: n2 leads now; the longest time without a write was TOOK (limit TOOK)\n", "")
}

func TestClusterUpgrade(t *testing.T) {
	cluster := clitest.Open(t)
	members := threeMembers()[:2]
	node := func(name, version string, can int) raftboard.NodeStatus {
		return raftboard.NodeStatus{Status: raftboard.Status{Node: name, Members: members, Version: version, ClusterVersion: 1, ProgramVersion: can}}
	}
	cluster.Statuses = []raftboard.NodeStatus{node("n1", "v1.1", 2), node("n2", "v1.0", 1)}
	for _, row := range []struct {
		second raftboard.NodeStatus
		want   string
	}{
		{node("n2", "v1.0", 1), "n2    v1.0     1        -\nthe cluster uses version 1; next: nothing to do, or upgrade the programs of the nodes\n"},
		{node("n2", "v1.1", 2), "n2    v1.1     2        -\nthe cluster uses version 1; next: conductord cluster upgrade\n"},
		{raftboard.NodeStatus{Err: jobs.ErrUnavailable}, "n2    -        -        does not answer\nthe cluster uses version 1; next: start the nodes that do not answer\n"},
	} {
		cluster.Statuses[1] = row.second
		if got := clitest.Run(t, cluster, "cluster", "upgrade-status"); got.Code != 0 || !strings.HasSuffix(got.Out, row.want) {
			t.Errorf("got %+v, want %s", got, row.want)
		}
	}
	if got := clitest.Run(t, cluster, "cluster", "upgrade"); got != (clitest.Said{Out: "the cluster uses version 2\n", Err: "", Code: 0}) {
		t.Errorf("upgraded: %+v", got)
	}
	cluster.Statuses = cluster.Statuses[:1]
	if got := clitest.Run(t, cluster, "cluster", "upgrade"); got.Code != cli.ExitConflict {
		t.Errorf("refused: %+v", got)
	}
}
