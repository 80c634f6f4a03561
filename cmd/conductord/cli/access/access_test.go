package access_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestRolesInApprovalsStay: only --approves changes the roles of a principal in approvals.
func TestRolesInApprovalsStay(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct{ args, want string }{
		{"access save ann --grant approver=orders/* --approves dba,owner", "approves as dba,owner"},
		{"access list", "ann approver=orders/* dba,owner shown"},
		{"access save ann --grant viewer=*", "viewer=*; approves as dba,owner"},
		{"token create ann --grant operator=*", "cdt_"},
		{"access list", "ann operator=* dba,owner shown"},
		{"access save bob --grant viewer=*", "saved principal bob: viewer=*"},
		{"access save ann --grant viewer=* --approves hr", "approves as hr"},
		{"access save ann --grant viewer=* --approves=", "saved principal ann: viewer=*"},
		{"access list", "ann viewer=* - shown"},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if said := strings.Join(strings.Fields(got.Out+got.Err), " "); got.Code != 0 || !strings.Contains(said, row.want) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestParallelSavesAreRefused: of two parallel saves of a principal, the second fails and changes nothing. A save with
// an old --revision fails too.
func TestParallelSavesAreRefused(t *testing.T) {
	cluster := clitest.Open(t)
	run := func(want int, args string) clitest.Said {
		t.Helper()
		got := clitest.Run(t, cluster, strings.Fields(args)...)
		if got.Code != want {
			t.Errorf("%s: %+v", args, got)
		}
		return got
	}
	refused := func(args, want string) {
		t.Helper()
		if got := run(cli.ExitConflict, args); !strings.Contains(got.Err, want) || !strings.Contains(got.Err, "read it again with `conductord access list`") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"access save ann --grant viewer=*", "access save ann --grant viewer=a", "token create ann --grant viewer=b"} {
		cluster.Meanwhile = func() { run(cli.ExitOK, "access save ann --grant operator=orders/*") }
		refused(args, `cannot save principal "ann"`)
		if listed := run(cli.ExitOK, "access list"); !strings.Contains(listed.Out, "operator=orders/*") {
			t.Errorf("after %s: %s", args, listed.Out)
		}
		run(cli.ExitOK, "access save ann --grant viewer=*")
	}
	refused("access save ann --grant viewer=a --revision 0", "it exists, with revision")
	page, err := cluster.Principals(t.Context(), "")
	if err != nil || len(page.Items) != 1 || page.Items[0].Revision == 0 {
		t.Fatalf("the principals are %+v, %v", page.Items, err)
	}
	based := " --revision " + strconv.FormatUint(page.Items[0].Revision, 10)
	run(cli.ExitOK, "access save ann --grant poster=a"+based)
	refused("access save ann --grant poster=b"+based, "it has changed since revision")
	run(cli.ExitOK, "access delete ann")
	refused("access save ann --grant poster=b"+based, "it was deleted after revision")
	run(cli.ExitOK, "access save ann --grant poster=b --revision 0")
}
