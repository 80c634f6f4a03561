package board_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

func TestBoardCount(t *testing.T) {
	cluster := clitest.Open(t)
	for _, board := range []string{"orders/new", "orders/new", "orders/late", "mail"} {
		clitest.Post(t, cluster, "--kind", "k", "--board", board)
	}
	clitest.Run(t, cluster, "job", "cancel", clitest.Post(t, cluster, "--kind", "k", "--board", "mail", "--hold").String())
	for _, row := range []struct {
		args string
		code int
		want string // lines of the output, with single spaces
	}{
		{"mail orders/*", 0, "BOARD UNFINISHED CLAIMABLE COMPLETED|mail 1 1 1|orders/late 1 1 0|orders/new 2 2 0|total 4 4 1|"},
		{"orders/new orders/new orders/n*", 0, "BOARD UNFINISHED CLAIMABLE|orders/new 2 2|total 2 2|"},
		{"", 0, "BOARD UNFINISHED CLAIMABLE COMPLETED|default 0 0 0|mail 1 1 1|orders/late 1 1 0|orders/new 2 2 0|total 4 4 1|"},
		{"none*", 0, "BOARD UNFINISHED|total 0|"},
		{"mail none", cli.ExitNotFound, "conductord: cannot count the jobs of boards: board \"none\": not found|conductord: `conductord board list` lists the boards|"},
		{"o*s", cli.ExitNotFound, "conductord: cannot count the jobs of boards: board \"o*s\": not found|conductord: `conductord board list` lists the boards|"},
	} {
		got := clitest.Run(t, cluster, append([]string{"board", "count"}, strings.Fields(row.args)...)...)
		var lines string
		for line := range strings.Lines(got.Out + got.Err) {
			lines += strings.Join(strings.Fields(line), " ") + "|"
		}
		if got.Code != row.code || lines != row.want {
			t.Errorf("%s: %d, %s", row.args, got.Code, lines)
		}
	}
	var counts struct {
		Boards []struct{ Name string }
		Total  struct {
			Jobs       map[string]int
			Unfinished int
		}
	}
	got := clitest.Run(t, cluster, "-o", "json", "board", "count", "orders/*")
	if err := json.Unmarshal([]byte(got.Out), &counts); err != nil || len(counts.Boards) != 2 || counts.Boards[0].Name != "orders/late" || counts.Total.Unfinished != 3 || counts.Total.Jobs["claimable"] != 3 {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
}
