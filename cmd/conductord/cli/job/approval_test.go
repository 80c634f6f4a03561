package job_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/logbook"
)

// TestApproval lists, shows and decides the approval of a step.
func TestApproval(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.PostHello(t, cluster)
	run := func(verb string, arguments ...string) clitest.Said {
		return clitest.Run(t, cluster, append([]string{"approval", verb, id.String()}, arguments...)...)
	}
	if got := run("approve"); got.Code != cli.ExitConflict || !strings.Contains(got.Err, "no step of job") {
		t.Errorf("before the approval: %+v", got)
	}
	worker, now := clitest.NewWorker(t, cluster, id), time.Now()
	approval := &logbook.Approval{Text: "Delete sda?", Need: []logbook.Need{{Role: "dba", Count: 2}}, Fields: json.RawMessage(`{"required":["ticket"],"properties":{"ticket":{"type":"string"}}}`)}
	worker.Update(logbook.FlowRunning, logbook.AtomChange{Name: "ask", Kind: logbook.KindTask, State: logbook.AtomPending, RetryAt: now.Add(time.Hour), Attempts: []logbook.Attempt{
		{Action: logbook.ActionExecute, Number: 1, Token: worker.Claimed.Job.Token, StartedAt: now, Asked: 1, Wait: &logbook.Wait{Since: now, Until: now.Add(time.Hour), Approval: approval}},
	}})
	if got := clitest.Run(t, cluster, "approval", "list"); !strings.Contains(got.Out, "Delete sda?") || !strings.Contains(got.Out, "2 of dba") {
		t.Errorf("the list is %+v", got)
	}
	for _, row := range []struct {
		arguments string
		code      int
		want      string
	}{
		{"approve ask --by ann", cli.ExitUsage, "ticket"},
		{`approve ask --by ann --answers {"ticket":7}`, cli.ExitUsage, "/ticket"},
		{"reject ask --by ann", cli.ExitUsage, "a rejection and an override need a reason"},
		{"approve dance --by ann", cli.ExitNotFound, "has not started a step"},
		{`approve ask --by ann --id a1 --answers {"ticket":"C1"}`, 0, "recorded; missing: 1 of dba"},
		{`approve ask --by ann --id a1 --answers {"ticket":"C1"}`, 0, "repeated; recorded; missing: 1 of dba"},
		{"withdraw --by ann", 0, "recorded; missing: 2 of dba"},
		{"withdraw --by ann", cli.ExitConflict, "nothing to withdraw"},
		{`approve --by bob --answers {"ticket":"C2"}`, 0, "recorded; missing: 1 of dba"},
		{"override ask --by cid", cli.ExitUsage, "reason"},
		{"override ask --by cid --reject --reason outage", 0, "rejected\n"},
		{`approve ask --by ann --answers {"ticket":"C3"}`, cli.ExitConflict, "rejected with an override by cid at "},
		{"show ask", 0, "rejected with an override by cid at "},
	} {
		words := strings.Fields(row.arguments)
		got := run(words[0], words[1:]...)
		if twice := words[0] != "override" && strings.Count(got.Err, "cannot ") > 1; twice || got.Code != row.code || !strings.Contains(got.Out+got.Err, row.want) {
			t.Errorf("%s: got %+v, want %d and %q", row.arguments, got, row.code, row.want)
		}
	}
	if got := clitest.Run(t, cluster, "approval", "show", id.String()[:13]+"/ask"); !strings.Contains(got.Out, "rejected with an override by cid at ") {
		t.Errorf("with JOB/STEP: %+v", got)
	}
	if got := clitest.Run(t, cluster, "approval", "list"); strings.Contains(got.Out, "Delete sda?") {
		t.Errorf("after the end, the list is %+v", got)
	}
}
