package access_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestQuotaCommands runs the verbs in the order of a quota's life.
func TestQuotaCommands(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		code int
		want string // part of the output, on stdout or stderr
	}{
		{"quota save --jobs 1", cli.ExitUsage, "name either a principal or boards"},
		{"quota save --principal shop --boards orders/* --jobs 1", cli.ExitUsage, "name either a principal or boards"},
		{"quota save --boards orders/*", cli.ExitUsage, "limits nothing"},
		{"quota save --boards orders/* --sessions 1", cli.ExitUsage, "boards have no sessions"},
		{"quota save --boards orders/* --watches 1", cli.ExitUsage, "watches are counted by principal"},
		{"quota save --boards orders/* --jobs 2 --bytes 9000", 0, `saved the quota of boards "orders/*"`},
		{"quota save --principal shop --jobs 5 --sessions 3 --watches 4", 0, `saved the quota of principal "shop"`},
		{"job post --board orders/eu --kind k --name a", 0, ""},
		{"job post --board orders/us --kind k --name b", 0, ""},
		{"job post --board orders/eu --kind k --name c", cli.ExitLimit, `quota of boards "orders/*" is at its limit: at most 2 unfinished jobs`},
		{"quota list", 0, `boards "orders/*" 100% 2/2 `},
		{"quota list", 0, ` 0 - - `},
		{"quota list", 0, `principal "shop" 0% 0/5 0 0 0/3 0/4 `},
		{"-o json quota list", 0, `"boards": "orders/*"`},
		{"-o json quota list", 0, `"watches": "4"`},
		{"quota save --boards orders/* --jobs 3", 0, "saved"},
		{"job post --board orders/eu --kind k --name c", 0, ""},
		{"quota delete", cli.ExitUsage, "name either a principal or boards"},
		{"quota delete --boards orders/*", 0, `deleted the quota of boards "orders/*"`},
		{"quota delete --boards orders/*", cli.ExitNotFound, "not found"},
		{"job post --board orders/eu --kind k --name d", 0, ""},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if said := strings.Join(strings.Fields(got.Out+got.Err), " ") + " "; got.Code != row.code || !strings.Contains(said, row.want) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}
