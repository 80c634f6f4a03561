package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestJobListOrders: the newest job comes first, and --after continues in each order.
func TestJobListOrders(t *testing.T) {
	cluster := clitest.Open(t)
	for _, priority := range []string{"0", "5", "-5", "5"} {
		clitest.Post(t, cluster, "--kind", "k", "--name", "p"+priority, "--priority", priority)
	}
	clitest.Post(t, cluster, "--kind", "k", "--name", "elsewhere", "--board", "b", "--priority", "9")
	clitest.NewWorker(t, cluster, clitest.Post(t, cluster, "--kind", "k", "--name", "claimed", "--priority", "9"))
	for _, row := range []struct {
		args string
		want string
	}{
		{"", "claimed elsewhere p5 p-5 p5 p0"},
		{"--reverse", "p0 p5 p-5 p5 elsewhere claimed"},
		{"--board default", "claimed p5 p-5 p5 p0"},
		{"--order claim", "p5 p5 p0 p-5"},
		{"--order claim --board b", "elsewhere"},
		{"--order claim --state claimable --kind k", "p5 p5 p0 p-5"},
	} {
		for _, limit := range []string{"0", "1", "2"} {
			var names []string
			for after := ""; ; {
				got := clitest.Run(t, cluster, append([]string{"job", "list", "-o", "json", "--limit", limit, "--after", after}, strings.Fields(row.args)...)...)
				for _, job := range clitest.ReadJobs(t, got.Out) {
					names = append(names, job.Name)
				}
				if got.Code != 0 || !strings.Contains(got.Err, "--after") {
					break
				}
				after = clitest.CursorOf(t, got.Out)
			}
			if strings.Join(names, " ") != row.want {
				t.Errorf("%q by pages of %s: %q", row.args, limit, names)
			}
		}
	}
	for args, want := range map[string]string{
		"--order odd":                   "--order must be posted or claim, not \"odd\"",
		"--order claim --reverse":       "--order claim cannot be reversed; omit --reverse",
		"--order claim --state claimed": "only claimable jobs have a place in claim order",
		"--order claim --after 7":       "query after is invalid",
	} {
		got := clitest.Run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...)
		if got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestJobStarted: a job shows its first claim and its duration.
func TestJobStarted(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k").String()
	if page := clitest.Run(t, cluster, "job", "get", id).Out; strings.Contains(page, "started") || strings.Contains(page, "took") {
		t.Errorf("before it was claimed: %s", page)
	}
	clitest.Run(t, cluster, "job", "consume", id)
	if page := clitest.Steady(clitest.Run(t, cluster, "job", "get", id).Out); !strings.Contains(page, "started: TIME\nfinished: TIME\ntook: TOOK\n") {
		t.Errorf("when it is finished: %s", page)
	}
	if page := clitest.Run(t, cluster, "job", "get", id, "-o", "json").Out; !strings.Contains(page, `"started_at": "`) {
		t.Errorf("as JSON: %s", page)
	}
}
