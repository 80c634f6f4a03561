package job_test

import (
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
)

func TestJobErrors(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--name", "dig", "--key", "well")
	clitest.Run(t, cluster, "job", "trash", "--reason", "there is rock below", id.String())
	other := clitest.Post(t, cluster, "--kind", "l", "--name", "sow")
	clitest.Run(t, cluster, "job", "trash", "--reason", "it is winter", other.String())
	for _, row := range []struct {
		args string
		code int
		want string // part of the table or of the message
		not  string
	}{
		{"", 0, "there is rock below", "\x00"},
		{"ID", 0, "trashed  -     operator  -     dig", "sow"},
		{"--kind l", 0, "it is winter", "rock"},
		{"--key well --error operator --how trashed --board default", 0, "rock", "winter"},
		{"--code 3", 0, "MESSAGE\n", "rock"},
		{"--since -1h", 0, "winter", "\x00"},
		{"--until -1h", 0, "MESSAGE\n", "rock"},
		{"--limit 1", 0, "shown: 1;", "rock"},
		{"--how somehow", cli.ExitUsage, "--how must be one of", "\x00"},
		{"--since yesterday", cli.ExitUsage, "--since must be a time", "\x00"},
		{"--limit -1", cli.ExitUsage, "must not be negative", "\x00"},
		{jobs.NewJobID().String(), cli.ExitNotFound, "not found", "\x00"},
	} {
		args := append([]string{"job", "errors"}, strings.Fields(strings.ReplaceAll(row.args, "ID", id.String()))...)
		got := clitest.Run(t, cluster, args...)
		if said := got.Out + got.Err; got.Code != row.code || !strings.Contains(said, row.want) || strings.Contains(said, row.not) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
	if got := clitest.Run(t, cluster, "-o", "json", "job", "errors", id.String()); !strings.Contains(got.Out, `"kind": "operator"`) {
		t.Errorf("as JSON: %+v", got)
	}
}
