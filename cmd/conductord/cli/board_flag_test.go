package cli_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestUnknownBoards: a missing board is an error, and an empty board is not.
func TestUnknownBoards(t *testing.T) {
	cluster := clitest.Open(t)
	clitest.Run(t, cluster, "board", "create", "empty")
	clitest.Post(t, cluster, "--kind", "paint", "--board", "night")
	for _, row := range []struct {
		args string
		code int
		want string // part of stderr
	}{
		{"job list --board nihgt", cli.ExitNotFound, `there is no board "nihgt"; did you mean "night"?: not found`},
		{"job list --board else", cli.ExitNotFound, "there is no board \"else\": not found\nconductord: `conductord board list` lists the boards\n"},
		{"job list --board empty", 0, ""},
		{"job list --board night --kind pant", 0, `no job or conductor has the kind "pant"; did you mean "paint"?`},
		{"job list --board night --kind sing", 0, ""},
		{"job list --board default", 0, ""},
		{"job errors --board nihgt", cli.ExitNotFound, "there is no board"},
		{"claim list --board nihgt", cli.ExitNotFound, "there is no board"},
		{"trash list --board nihgt", cli.ExitNotFound, "there is no board"},
		{"schedule list --board nihgt", cli.ExitNotFound, "there is no board"},
		{"job watch --board nihgt", cli.ExitNotFound, "there is no board"},
		{"events --board night,nihgt", cli.ExitNotFound, `there is no board "nihgt"`},
		{"job wait --board nihgt", cli.ExitNotFound, "there is no board"},
		{"job wait --board empty", 0, ""},
		{"bulk suspend --board nihgt --yes", cli.ExitNotFound, "there is no board"},
		{"bulk suspend --board empty --yes", 0, ""},
		{"job post --board new --kind k", 0, ""},
	} {
		got := clitest.Run(t, cluster, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.Contains(got.Err, row.want) || row.want == "" && got.Err != "" {
			t.Errorf("conductord %s: %+v", row.args, got)
		}
	}
}
