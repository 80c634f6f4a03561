package cli_test

import (
	"strings"
	"testing"
	"time"
)

// TestStale: every command that only reads can take what one node knows, and says how old
// that may be.
func TestStale(t *testing.T) {
	cluster := openCluster(t)
	job := postHello(t, cluster).String()
	read := readJob(t, run(t, cluster, "-o", "json", "job", "get", job).out)
	for _, row := range []struct {
		args string
		age  time.Duration // negative: unknown
		want string        // part of what stderr says
	}{
		{"job get " + job, 2 * time.Minute, "a stale answer: the node that gave it had heard the leader 2m0s before"},
		{"job list", 0, "had heard the leader 0s before"},
		{"job list", -1, "of unknown age: the node that gave it has heard no leader since it started"},
		{"job explain " + job, 0, "a stale answer"},
		{"job errors", 0, "a stale answer"},
		{"trash list", 0, "a stale answer"},
		{"flow show " + job, 0, "a stale answer"},
		{"book get " + read.Book.String(), 0, "a stale answer"},
		{"book list", 0, "a stale answer"},
		{"board list", 0, "a stale answer"},
		{"board show default", 0, "a stale answer"},
		{"board count", 0, "a stale answer"},
		{"schedule list", 0, "a stale answer"},
		{"session list", 0, "a stale answer"},
		{"conductor list", 0, "a stale answer"},
	} {
		cluster.age, cluster.stale = row.age, 0
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
