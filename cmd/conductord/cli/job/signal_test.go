package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

// TestPostWithSignal posts a job with a signal, and then signals it with a second posting.
func TestPostWithSignal(t *testing.T) {
	cluster := clitest.Open(t)
	post := func(arguments ...string) clitest.Said {
		return clitest.Run(t, cluster, append([]string{"job", "post", "--kind", "order"}, arguments...)...)
	}
	first := post("--key", "order 7", "--signal", "paid", "--data", "100")
	id := strings.TrimSpace(first.Out)
	if first.Code != 0 || !strings.Contains(first.Err, "signal paid to job "+id+": kept") {
		t.Errorf("the first posting: %+v", first)
	}
	if got := post("--key", "order 7", "--signal", "paid", "--signal-id", "evt_17"); got.Code != 0 || strings.TrimSpace(got.Out) != id || !strings.Contains(got.Err, "kept") {
		t.Errorf("the second posting: %+v", got)
	}
	parsed, err := jobs.ParseJobID(id)
	if err != nil {
		t.Fatal(err)
	}
	if job, err := cluster.Job(t.Context(), parsed); err != nil || job.UnreadSignals != 2 {
		t.Errorf("the job has %d unread signals, %v", job.UnreadSignals, err)
	}
	if got := clitest.Run(t, cluster, "job", "cancel", id); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := post("--key", "order 7", "--signal", "paid", "--signal-id", "evt_17"); got.Code != 0 || strings.TrimSpace(got.Out) != id || !strings.Contains(got.Err, "is finished: no job was posted") || strings.Contains(got.Err, "not finished") {
		t.Errorf("the repeat after the end of the job: %+v", got)
	}
	for _, wrong := range [][]string{{"--signal", "paid"}, {"--key", "k", "--data", "1"}} {
		if got := post(wrong...); got.Code != cli.ExitUsage {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}

// TestJobSignal sends signals to a job, which keeps them, and repeats one.
func TestJobSignal(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	send := func(arguments ...string) clitest.Said {
		return clitest.Run(t, cluster, append([]string{"job", "signal", id.String()}, arguments...)...)
	}
	clitest.Expect(t, send("paid", "--id", "evt_17", "--data", `{"amount": 100}`), 0, "kept\n", "")
	clitest.Expect(t, send("paid", "--id", "evt_17"), 0, "repeated, first kept\n", "")
	if got := clitest.Run(t, cluster, "job", "get", id.String()); !strings.Contains(got.Out, "unread signals:") {
		t.Errorf("job get shows no unread signal: %+v", got)
	}
	keyed := jobs.Posting{Name: "keyed", Kind: "order", Key: "order 7"}
	_, err := jobs.PostOne(t.Context(), cluster, keyed)
	if err != nil {
		t.Fatal(err)
	}
	byKey := func(arguments ...string) clitest.Said {
		return clitest.Run(t, cluster, append([]string{"job", "signal", "paid"}, arguments...)...)
	}
	clitest.Expect(t, byKey("--key", "order 7", "--id", "evt_18"), 0, "kept: job ID\n", "")
	clitest.Expect(t, byKey("--key", "order 7", "--id", "evt_18"), 0, "repeated, first kept: job ID\n", "")
	if got := byKey("--key", "order 8"); got.Code != cli.ExitNotFound || !strings.Contains(got.Err, `no unfinished job of board "default" has key "order 8"`) || !strings.Contains(got.Err, "post the job with the signal") {
		t.Errorf("a key without a job: %+v", got)
	}
	for _, wrong := range [][]string{{}, {"--board", "default"}, {"extra", "--key", "order 7"}} {
		if got := byKey(wrong...); got.Code != cli.ExitUsage {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
	if got := send("paid", "--data", "{"); got.Code == 0 || !strings.Contains(got.Err, "signal data") {
		t.Errorf("data that are no JSON: %+v", got)
	}
	if err := cluster.Cancel(t.Context(), jobs.JobCommand{Job: id}); err != nil {
		t.Fatal(err)
	}
	if got := send("paid"); got.Code != cli.ExitConflict || !strings.Contains(got.Err, "its outcome is cancelled") || strings.Count(got.Err, "cannot ") != 1 {
		t.Errorf("a finished job: %+v", got)
	}
}
