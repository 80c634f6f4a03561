package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

func TestBulk(t *testing.T) {
	cluster := clitest.Open(t)
	for i := range 3 {
		clitest.Post(t, cluster, "--kind", "k", "--name", fmt.Sprint("dig ", i), "--tag", "hard")
	}
	clitest.Post(t, cluster, "--kind", "l", "--name", "sow")
	for _, row := range []struct {
		args string
		code int
		want string // part of the output
		not  string
	}{
		{"bulk suspend", cli.ExitUsage, "add at least one filter", "\x00"},
		{"bulk suspend --tag hard", cli.ExitUsage, "suspend 3 jobs? Add --yes", "\x00"},
		{"bulk suspend --tag hard --dry-run", 0, "3 jobs matched\n", "\x00"},
		{"job list --state suspended", 0, "POSTED\n", "dig"},
		{"bulk suspend --tag hard --yes --reason now", 0, "3 jobs: 3 done, 0 refused\n", "\x00"},
		{"job list --state suspended --name dig --posted-since -1h", 0, "dig 2", "sow"},
		{"bulk resume --kind k --name 1 -y", 0, "1 job: 1 done, 0 refused\n", "\x00"},
		{"-o json bulk cancel --kind k -y", 0, `"done": 3`, "refused"},
		{"job list --outcome cancelled --finished-since -1h", 0, "dig 0", "sow"},
		{"job list --outcome cancelled --finished-until -1h", 0, "POSTED\n", "dig"},
		{"job list --outcome nice", cli.ExitUsage, "--outcome must be", "\x00"},
		{"job list --finished-since soon", cli.ExitUsage, "--finished-since must be", "\x00"},
		{"bulk cancel --state completed -y", cli.ExitUsage, "has no effect", "\x00"},
		{"bulk retry --kind k -y", 0, "0 jobs matched\n", "\x00"},
		{"bulk purge --tag hard --dry-run", 0, "3 jobs matched\n", "\x00"},
		{"bulk purge --tag hard -y", 0, "3 jobs: 3 done, 0 refused\n", "\x00"},
		{"job list", 0, "sow", "dig"},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if said := got.Out + got.Err; got.Code != row.code || !strings.Contains(said, row.want) || strings.Contains(said, row.not) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}
