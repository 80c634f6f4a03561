package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

// TestJobRetry: one command retries all kinds of failed jobs.
func TestJobRetry(t *testing.T) {
	cluster := clitest.Open(t)
	trashed := clitest.Post(t, cluster, "--kind", "k")
	clitest.Run(t, cluster, "job", "trash", "--reason", "no disk", trashed.String())
	failed := clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, failed).Fail()
	keyed := clitest.Post(t, cluster, "--kind", "k", "--key", "order 7")
	clitest.Run(t, cluster, "job", "trash", keyed.String())
	other := clitest.Post(t, cluster, "--kind", "k", "--key", "order 7")
	waits, done := clitest.Post(t, cluster, "--kind", "k"), clitest.Post(t, cluster, "--kind", "k")
	clitest.Run(t, cluster, "job", "consume", done.String())
	for _, row := range []struct {
		id   jobs.JobID
		code int
		out  string
		err  string // part of stderr
	}{
		{trashed, 0, "ID claimable\n", ""},
		{trashed, 0, "ID claimable\n", ""},
		{failed, 0, "ID claimable\n", ""},
		{waits, 0, "ID claimable\n", ""},
		{done, cli.ExitConflict, "", "conductord job repost ID"},
		{keyed, cli.ExitConflict, "", "`conductord job wait ID` waits until the key is free"},
		{jobs.NewJobID(), cli.ExitNotFound, "", "not found"},
	} {
		got := clitest.Run(t, cluster, "job", "retry", "--reason", "there is room", row.id.String())
		if got.Code != row.code || clitest.Steady(got.Out) != row.out || !strings.Contains(clitest.Steady(got.Err), row.err) {
			t.Errorf("got %+v, want %+v", got, row)
		}
	}
	if got := clitest.Run(t, cluster, "job", "retry", keyed.String()); !strings.Contains(got.Err, "job "+other.String()+` has the key "order 7" and is not finished`) {
		t.Errorf("a key that is taken: %+v", got)
	}
	if got := clitest.Run(t, cluster, "-o", "json", "job", "retry", trashed.String(), failed.String()); strings.Count(got.Out, `"state":"claimable"`) != 2 {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestJobRepost: a finished job is posted again as a new job with the same details and flow.
func TestJobRepost(t *testing.T) {
	cluster := clitest.Open(t)
	plain := clitest.Post(t, cluster, "--kind", "k", "--details", `{"n": 1}`, "--set", "x=2", "--tag", "red")
	if got := clitest.Run(t, cluster, "job", "repost", plain.String()); got.Code != cli.ExitConflict || !strings.Contains(got.Err, "wait until it is finished") {
		t.Errorf("an unfinished job: %+v", got)
	}
	clitest.Run(t, cluster, "job", "consume", plain.String())
	flow := clitest.PostHello(t, cluster)
	clitest.NewWorker(t, cluster, flow).Succeed()
	got := clitest.Run(t, cluster, "job", "repost", plain.String(), flow.String())
	ids := strings.Fields(got.Out)
	if got.Code != 0 || len(ids) != 2 || !strings.Contains(got.Err, "job "+ids[1]+" does the work of job "+flow.String()+" again") {
		t.Fatalf("posted again: %+v", got)
	}
	again := clitest.ReadJob(t, clitest.Run(t, cluster, "-o", "json", "job", "get", ids[0]).Out)
	if !strings.Contains(string(again.Details), `"n": 1`) || string(again.Store["x"]) != "2" || again.Tags[0] != "red" || again.State != jobs.StateClaimable {
		t.Errorf("posted again as %+v", again)
	}
	ended, err := cluster.Job(t.Context(), flow)
	if err != nil || ended.State != jobs.StateCompleted {
		t.Errorf("the old job is %+v (%v)", ended, err)
	}
	id, _ := jobs.ParseJobID(ids[1])
	worker := clitest.NewWorker(t, cluster, id)
	worker.Succeed()
	if err := cluster.DestroyBook(t.Context(), ended.Book); err != nil {
		t.Fatal(err)
	}
	if got := clitest.Run(t, cluster, "job", "repost", flow.String()); got.Code != cli.ExitNotFound || !strings.Contains(got.Err, "its flow and book were removed") {
		t.Errorf("a flow that is gone: %+v", got)
	}
	first := clitest.Post(t, cluster, "--kind", "k", "--key", "order 8", "--details", `{"order": 1}`)
	clitest.Run(t, cluster, "job", "cancel", first.String())
	other := clitest.Post(t, cluster, "--kind", "k", "--key", "order 8", "--details", `{"order": 2}`)
	const taken = ` has the key "order 8" and is not finished: wait until this job is finished, or cancel it`
	if got := clitest.Run(t, cluster, "job", "repost", first.String()); got.Code != cli.ExitConflict || got.Out != "" || strings.Contains(got.Err, "again\n") ||
		!strings.Contains(got.Err, "no new job was posted: conflict: on board \"default\", job "+other.String()+taken) {
		t.Errorf("a key that is taken: %+v", got)
	}
	if got := clitest.Run(t, cluster, "-o", "json", "job", "repost", first.String()); got.Code != cli.ExitConflict || !strings.Contains(got.Out, `"existed":true`) || !strings.Contains(got.Out, other.String()) {
		t.Errorf("a key that is taken, as JSON: %+v", got)
	}
	hidden := clitest.Post(t, cluster, "--kind", "k", "--details", `"$encrypted:1:k1:AAAA$"`)
	clitest.Run(t, cluster, "job", "consume", hidden.String())
	if got := clitest.Run(t, cluster, "job", "repost", hidden.String()); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "--value-keys") {
		t.Errorf("encrypted values: %+v", got)
	}
}
