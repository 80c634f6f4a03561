package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// TestJobRetry: one verb for all that has failed.
func TestJobRetry(t *testing.T) {
	cluster := openCluster(t)
	trashed := post(t, cluster, "--kind", "k")
	run(t, cluster, "job", "trash", "--reason", "no disk", trashed.String())
	failed := postHello(t, cluster)
	newWorker(t, cluster, failed).fail()
	keyed := post(t, cluster, "--kind", "k", "--key", "order 7")
	run(t, cluster, "job", "trash", keyed.String())
	other := post(t, cluster, "--kind", "k", "--key", "order 7")
	waits, done := post(t, cluster, "--kind", "k"), post(t, cluster, "--kind", "k")
	run(t, cluster, "job", "consume", done.String())
	for _, row := range []struct {
		id   jobs.JobID
		code int
		out  string
		err  string // part of it
	}{
		{trashed, 0, "ID claimable\n", ""},
		{trashed, 0, "ID claimable\n", ""},
		{failed, 0, "ID claimable\n", ""},
		{waits, 0, "ID claimable\n", ""},
		{done, cli.ExitConflict, "", "conductord job repost ID"},
		{keyed, cli.ExitConflict, "", "`conductord job wait ID` waits until the key is free"},
		{jobs.NewJobID(), cli.ExitNotFound, "", "not found"},
	} {
		got := run(t, cluster, "job", "retry", "--reason", "there is room", row.id.String())
		if got.code != row.code || steady(got.out) != row.out || !strings.Contains(steady(got.err), row.err) {
			t.Errorf("got %+v, want %+v", got, row)
		}
	}
	if got := run(t, cluster, "job", "retry", keyed.String()); !strings.Contains(got.err, "job "+other.String()+` has the key "order 7" and is not finished`) {
		t.Errorf("a key that is taken: %+v", got)
	}
	if got := run(t, cluster, "-o", "json", "job", "retry", trashed.String(), failed.String()); strings.Count(got.out, `"state":"claimable"`) != 2 {
		t.Errorf("as JSON: %+v", got)
	}
}

// TestJobRepost: a finished job is posted again as a new job with the same work.
func TestJobRepost(t *testing.T) {
	cluster := openCluster(t)
	plain := post(t, cluster, "--kind", "k", "--details", `{"n": 1}`, "--set", "x=2", "--tag", "red")
	if got := run(t, cluster, "job", "repost", plain.String()); got.code != cli.ExitConflict || !strings.Contains(got.err, "its work is unfinished") {
		t.Errorf("an unfinished job: %+v", got)
	}
	run(t, cluster, "job", "consume", plain.String())
	flow := postHello(t, cluster)
	newWorker(t, cluster, flow).succeed()
	got := run(t, cluster, "job", "repost", plain.String(), flow.String())
	ids := strings.Fields(got.out)
	if got.code != 0 || len(ids) != 2 || !strings.Contains(got.err, "job "+ids[1]+" does the work of job "+flow.String()+" again") {
		t.Fatalf("posted again: %+v", got)
	}
	again := readJob(t, run(t, cluster, "-o", "json", "job", "get", ids[0]).out)
	if !strings.Contains(string(again.Details), `"n": 1`) || string(again.Store["x"]) != "2" || again.Tags[0] != "red" || again.State != jobs.StateClaimable {
		t.Errorf("posted again as %+v", again)
	}
	ended, err := cluster.Job(t.Context(), flow)
	if err != nil || ended.State != jobs.StateCompleted {
		t.Errorf("the old job is %+v (%v)", ended, err)
	}
	id, _ := jobs.ParseJobID(ids[1])
	worker := newWorker(t, cluster, id)
	worker.succeed()
	if err := cluster.DestroyBook(t.Context(), ended.Book); err != nil {
		t.Fatal(err)
	}
	if got := run(t, cluster, "job", "repost", flow.String()); got.code != cli.ExitNotFound || !strings.Contains(got.err, "its flow and book were removed") {
		t.Errorf("a flow that is gone: %+v", got)
	}
	first := post(t, cluster, "--kind", "k", "--key", "order 8", "--details", `{"order": 1}`)
	run(t, cluster, "job", "cancel", first.String())
	other := post(t, cluster, "--kind", "k", "--key", "order 8", "--details", `{"order": 2}`)
	const taken = ` has the key "order 8" and is not finished: wait until it is, or cancel it`
	if got := run(t, cluster, "job", "repost", first.String()); got.code != cli.ExitConflict || got.out != "" || strings.Contains(got.err, "again\n") ||
		!strings.Contains(got.err, "no new job was posted: conflict: on board \"default\", job "+other.String()+taken) {
		t.Errorf("a key that is taken: %+v", got)
	}
	if got := run(t, cluster, "-o", "json", "job", "repost", first.String()); got.code != cli.ExitConflict || !strings.Contains(got.out, `"existed":true`) || !strings.Contains(got.out, other.String()) {
		t.Errorf("a key that is taken, as JSON: %+v", got)
	}
	hidden := post(t, cluster, "--kind", "k", "--details", `"$encrypted:1:k1:AAAA$"`)
	run(t, cluster, "job", "consume", hidden.String())
	if got := run(t, cluster, "job", "repost", hidden.String()); got.code != cli.ExitUsage || !strings.Contains(got.err, "--value-keys") {
		t.Errorf("encrypted values: %+v", got)
	}
}
