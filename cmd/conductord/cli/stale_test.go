package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestStale: every command that only reads accepts the state of one node, and reports the possible
// age of that state.
func TestStale(t *testing.T) {
	cluster := clitest.Open(t)
	job := clitest.PostHello(t, cluster).String()
	read := clitest.ReadJob(t, clitest.Run(t, cluster, "-o", "json", "job", "get", job).Out)
	for _, row := range []struct {
		args string
		age  time.Duration // negative: unknown
		want string        // part of stderr
	}{
		{"job get " + job, 2 * time.Minute, "stale: up to 2m old"},
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
		cluster.Age, cluster.AskedStale = row.age, 0
		got := clitest.Run(t, cluster, append(strings.Fields(row.args), "--stale")...)
		if got.Code != 0 || cluster.AskedStale != 1 || !strings.Contains(got.Err, row.want) || got.Out == "" {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	cluster.AskedStale = 0
	if got := clitest.Run(t, cluster, "job", "list"); got.Code != 0 || cluster.AskedStale != 0 || got.Err != "" {
		t.Errorf("without the flag: %+v", got)
	}
}
