package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestTrash(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--name", "dig", "--tag", "hard")
	clitest.Post(t, cluster, "--kind", "k", "--name", "other")
	clitest.Run(t, cluster, "job", "trash", "--reason", "there is rock below", id.String())
	for _, row := range []struct {
		args string
		code int
		out  string // part of stdout
		err  string // part of stderr
	}{
		{"trash list", 0, "there is rock below", ""},
		{"trash list --tag hard --board default --kind k", 0, "dig", ""},
		{"trash list --tag soft", 0, "REASON\n", ""},
		{"-o json trash list", 0, `"reason": "there is rock below"`, ""},
		{"trash list --limit -1", cli.ExitUsage, "", "must not be negative"},
		{"trash show ID", 0, "failure:         operator: there is rock below", ""},
		{"job explain ID", 0, "conductord job retry ID", ""},
		{"job retry --reason now ID", 0, "ID claimable\n", ""},
		{"job retry ID", 0, "ID claimable\n", ""},
		{"trash show ID", cli.ExitConflict, "", "the job is claimable"},
		{"trash purge ID", cli.ExitConflict, "", "the job is claimable"},
		{"job cancel ID", 0, "ID completed: cancelled\n", ""},
		{"job retry ID", cli.ExitConflict, "", "the job is completed: cancelled, and only a new job"},
		{"trash purge ID", 0, "ID purged\n", ""},
		{"trash purge ID", cli.ExitNotFound, "", "not found"},
		{"job retry ID", cli.ExitNotFound, "", "not found"},
		{"job retry x", cli.ExitUsage, "", "job id"},
	} {
		got := clitest.Run(t, cluster, strings.Fields(strings.ReplaceAll(row.args, "ID", id.String()))...)
		out := strings.ReplaceAll(got.Out, id.String(), "ID")
		if got.Code != row.code || !strings.Contains(out, row.out) || !strings.Contains(got.Err, row.err) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	if page, err := cluster.Jobs(t.Context(), jobs.Query{}); err != nil || len(page.Items) != 1 {
		t.Errorf("left are %v (%v)", page.Items, err)
	}
}
