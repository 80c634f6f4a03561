package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestJobOrders(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		name string
		args string // several commands on one job; the test checks the last
		held bool
		code int
		out  string
		err  string // part of stderr
	}{
		{"suspend", "suspend", false, 0, "ID suspended\n", ""},
		{"suspend again", "suspend; suspend", false, 0, "ID suspended\n", ""},
		{"resume", "suspend; resume", false, 0, "ID claimable\n", ""},
		{"resume what waits", "resume", false, 0, "ID claimable\n", ""},
		{"cancel", "cancel", false, 0, "ID completed: cancelled\n", ""},
		{"cancel again", "cancel; cancel", false, 0, "ID completed: cancelled\n", ""},
		{"cancel what is suspended", "suspend; cancel --revert=false", false, 0, "ID completed: cancelled\n", ""},
		{"suspend what another has", "suspend", true, 0, "ID claimed, to be suspended\n", ""},
		{"resume what another has", "suspend; resume", true, 0, "ID claimed\n", ""},
		{"cancel what another has", "cancel", true, 0, "ID claimed, to be reverted and cancelled\n", ""},
		{"leave what another has", "cancel --revert=false", true, 0, "ID claimed, to be cancelled\n", ""},
		{"suspend what is cancelled", "cancel; suspend", false, cli.ExitConflict, "", "the job is completed"},
		{"suspend what is being cancelled", "cancel; suspend", true, cli.ExitConflict, "", "it is being cancelled"},
		{"resume what is cancelled", "cancel; resume", false, cli.ExitConflict, "", "the job is completed"},
		{"undo what suspend cannot", "suspend --revert", false, cli.ExitUsage, "", "there is no flag --revert"},
	} {
		t.Run(row.name, func(t *testing.T) {
			id := clitest.Post(t, cluster, "--kind", "k")
			if row.held {
				clitest.NewWorker(t, cluster, id)
			}
			var got clitest.Said
			for _, line := range strings.Split(row.args, ";") {
				got = clitest.Run(t, cluster, append([]string{"job"}, append(strings.Fields(line), id.String())...)...)
			}
			if got.Code != row.code || clitest.Steady(got.Out) != row.out || !strings.Contains(got.Err, row.err) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := clitest.Run(t, cluster, "job", "cancel", jobs.NewJobID().String()); got.Code != cli.ExitNotFound {
		t.Errorf("an unknown job: %+v", got)
	}
}

func TestJobShowsItsStopRequest(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k")
	clitest.Run(t, cluster, "job", "suspend", "--reason", "it rains", id.String())
	got := clitest.Run(t, cluster, "job", "get", id.String())
	if text := clitest.Steady(got.Out); !strings.Contains(text, "stop: suspend, at TIME by ") || !strings.Contains(text, "@") || !strings.Contains(text, ": it rains\n") {
		t.Errorf("the job is shown as %+v", got)
	}
	listed := clitest.Run(t, cluster, "job", "list", "--state", "suspended")
	if !strings.Contains(listed.Out, id.String()) {
		t.Errorf("suspended jobs: %+v", listed)
	}
	said := clitest.Run(t, cluster, "-o", "json", "job", "cancel", "--reason", "no more", id.String())
	job := clitest.ReadJob(t, said.Out)
	if job.Outcome != jobs.OutcomeCancelled || job.StopRequest == nil || !job.StopRequest.Revert || job.StopRequest.Reason != "no more" || job.Reason != "no more" {
		t.Errorf("the job is given as %+v", job)
	}
	watched := clitest.Run(t, cluster, "job", "watch", "--after", "0-0", id.String())
	for _, want := range []string{
		` suspended ID "k" suspended request=suspend by=`, ` reason="it rains"`,
		` completed ID "k" completed outcome=cancelled request=cancel revert=true by=`,
	} {
		if !strings.Contains(clitest.Steady(watched.Out), want) {
			t.Errorf("the watch does not say %q: %+v", want, watched)
		}
	}
}
