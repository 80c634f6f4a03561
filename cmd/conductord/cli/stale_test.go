package cli_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/raftboard"
)

// TestStale: every command that only reads can take what one node knows, and says how old
// that may be.
func TestStale(t *testing.T) {
	cluster := openCluster(t)
	job := postHello(t, cluster).String()
	read := readJob(t, run(t, cluster, "-o", "json", "job", "get", job).out)
	heard := func(state string, ago time.Duration) raftboard.NodeStatus {
		return raftboard.NodeStatus{Status: raftboard.Status{Node: "n2", State: state, LastContact: ago}}
	}
	dead := raftboard.NodeStatus{Err: errors.New("it is down")}
	const minutes = "has heard the leader within the last 2m1s"
	for _, row := range []struct {
		args  string
		nodes []raftboard.NodeStatus
		want  string // part of what stderr says
	}{
		{"job get " + job, []raftboard.NodeStatus{dead, heard("candidate", 2*time.Minute)}, minutes},
		{"job list", []raftboard.NodeStatus{heard("leader", 0), heard("follower", 2*time.Minute)}, minutes},
		{"job list", []raftboard.NodeStatus{heard("leader", 0)}, "within the last 1s"},
		{"job list", []raftboard.NodeStatus{heard("leader", 0), heard("candidate", 0)}, "node n2 has heard no leader since it started"},
		{"job explain " + job, nil, "a stale answer"},
		{"job errors", nil, "a stale answer"},
		{"trash list", nil, "a stale answer"},
		{"flow show " + job, nil, "a stale answer"},
		{"book get " + read.Book.String(), nil, "a stale answer"},
		{"book list", nil, "a stale answer"},
		{"board list", nil, "a stale answer"},
		{"board show default", nil, "a stale answer"},
		{"board count", nil, "a stale answer"},
		{"schedule list", nil, "a stale answer"},
		{"session list", nil, "a stale answer"},
		{"conductor list", nil, "a stale answer"},
	} {
		cluster.nodes, cluster.stale = row.nodes, 0
		got := run(t, cluster, append(strings.Fields(row.args), "--stale")...)
		if got.code != 0 || cluster.stale != 1 || !strings.Contains(got.err, row.want) || got.out == "" {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	cluster.stale = 0
	if got := run(t, cluster, "job", "list"); got.code != 0 || cluster.stale != 0 || got.err != "" {
		t.Errorf("without the flag: %+v", got)
	}
}
