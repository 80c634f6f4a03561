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
		{"job get " + job, 2 * time.Minute, "stale: up to 2m0s old"},
		{"job list", 0, "stale: up to 0s old"},
		{"job list", -1, "stale: unknown age; the node has had no leader since its start"},
		{"job explain " + job, 0, "stale: up to "},
		{"job errors", 0, "stale: up to "},
		{"trash list", 0, "stale: up to "},
		{"flow show " + job, 0, "stale: up to "},
		{"book get " + read.Book.String(), 0, "stale: up to "},
		{"book list", 0, "stale: up to "},
		{"board list", 0, "stale: up to "},
		{"board show default", 0, "stale: up to "},
		{"board count", 0, "stale: up to "},
		{"schedule list", 0, "stale: up to "},
		{"session list", 0, "stale: up to "},
		{"conductor list", 0, "stale: up to "},
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
