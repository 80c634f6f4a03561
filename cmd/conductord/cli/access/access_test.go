package access_test

import (
	"strings"
	"testing"

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
