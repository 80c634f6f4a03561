package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

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
	if got := send("paid", "--data", "{"); got.Code == 0 || !strings.Contains(got.Err, "signal data") {
		t.Errorf("data that are no JSON: %+v", got)
	}
	if err := cluster.Cancel(t.Context(), jobs.JobCommand{Job: id}); err != nil {
		t.Fatal(err)
	}
	if got := send("paid"); got.Code != cli.ExitConflict || !strings.Contains(got.Err, "its outcome is cancelled") {
		t.Errorf("a finished job: %+v", got)
	}
}
