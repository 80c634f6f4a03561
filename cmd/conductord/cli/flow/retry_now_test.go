package flow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

// TestFlowRetryNow ends the wait of a job for its next attempt. Commands that would do nothing to such a job refuse it.
func TestFlowRetryNow(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	refused := clitest.Run(t, cluster, "flow", "retry-now", id.String())
	if refused.Code != cli.ExitConflict || !strings.Contains(refused.Err, "the job is claimable") {
		t.Errorf("a job that does not wait: %+v", refused)
	}
	w := clitest.NewWorker(t, cluster, id)
	w.Must(cluster.Abandon(t.Context(), jobs.Ending{Job: id, Token: w.Claimed.Job.Token, Delay: time.Hour, Reason: "waits"}))
	for _, args := range [][]string{{"job", "retry"}, {"job", "release"}, {"job", "change", "--not-before", "1s"}} {
		got := clitest.Run(t, cluster, append(args, id.String())...)
		if got.Code != cli.ExitConflict || !strings.Contains(got.Err, "for its next attempt") || !strings.Contains(got.Err, "conductord flow retry-now "+id.String()) {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := clitest.Run(t, cluster, "job", "explain", id.String()); !strings.Contains(got.Out, "conductord flow retry-now "+id.String()) {
		t.Errorf("explained as: %s", got.Out)
	}
	clitest.Expect(t, clitest.Run(t, cluster, "flow", "retry-now", id.String(), "--reason", "mended"), 0, "ID claimable\n", "")
}
