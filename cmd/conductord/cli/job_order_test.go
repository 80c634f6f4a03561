package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
)

// TestJobListOrders: the newest job comes first, and --after goes on in each order.
func TestJobListOrders(t *testing.T) {
	cluster := openCluster(t)
	for _, priority := range []string{"0", "5", "-5", "5"} {
		post(t, cluster, "--kind", "k", "--name", "p"+priority, "--priority", priority)
	}
	post(t, cluster, "--kind", "k", "--name", "elsewhere", "--board", "b", "--priority", "9")
	newWorker(t, cluster, post(t, cluster, "--kind", "k", "--name", "claimed", "--priority", "9"))
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
				got := run(t, cluster, append([]string{"job", "list", "-o", "json", "--limit", limit, "--after", after}, strings.Fields(row.args)...)...)
				for _, job := range readJobs(t, got.out) {
					names = append(names, job.Name)
				}
				if got.code != 0 || !strings.Contains(got.err, "--after") {
					break
				}
				after = cursorOf(t, got.out)
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
		got := run(t, cluster, append([]string{"job", "list"}, strings.Fields(args)...)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestJobStarted: a job shows when it was first claimed, and how long it took.
func TestJobStarted(t *testing.T) {
	cluster := openCluster(t)
	id := post(t, cluster, "--kind", "k").String()
	if page := run(t, cluster, "job", "get", id).out; strings.Contains(page, "started") || strings.Contains(page, "took") {
		t.Errorf("before it was claimed: %s", page)
	}
	run(t, cluster, "job", "consume", id)
	if page := steady(run(t, cluster, "job", "get", id).out); !strings.Contains(page, "started: TIME\nfinished: TIME\ntook: TOOK\n") {
		t.Errorf("when it is finished: %s", page)
	}
	if page := run(t, cluster, "job", "get", id, "-o", "json").out; !strings.Contains(page, `"started_at": "`) {
		t.Errorf("as JSON: %s", page)
	}
}
