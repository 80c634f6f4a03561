package cli_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

const firstID, secondID, laterID = "01a20dce-5501-742b-b53e-8f1ba6a6a0d4", "01a20dce-5501-7fff-8000-000000000001", "01a20dcf-0000-7000-8000-000000000002"

// TestTables: a table fits into a terminal. Without a terminal, no cell is shortened.
func TestTables(t *testing.T) {
	header := []string{"id", "state", "owner", "name", "posted", "reason"}
	rows := [][]string{
		{firstID, "claimable", "-", "paint the very long shed behind the house", "3m ago", "too cold"},
		{laterID, "trashed", "-", "größer", "2h ago", "-"},
	}
	whole := "ID                                    STATE      OWNER  NAME                                       POSTED  REASON\n" +
		firstID + "  claimable  -      paint the very long shed behind the house  3m ago  too cold\n" +
		laterID + "  trashed    -      größer                                     2h ago  -\n"
	for _, row := range []struct {
		name  string
		width int // -1: no terminal
		rows  [][]string
		want  string
	}{
		{"no terminal", -1, rows, whole},
		{"a terminal of unknown width", 0, rows, whole},
		{"a wide one", 200, rows, whole},
		{"without rows", 20, nil, "ID  STATE  OWNER  NAME  POSTED  REASON\n"},
		{"just too narrow: empty columns go, and ids are cut", 104, rows, "ID                  STATE      NAME                                       POSTED  REASON\n" +
			"01a20dce-5501-742b  claimable  paint the very long shed behind the house  3m ago  too cold\n" +
			"01a20dcf-0000-7000  trashed    größer                                     2h ago  -\n"},
		{"texts are shortened", 60, rows, "ID                  STATE      NAME         POSTED  REASON\n" +
			"01a20dce-5501-742b  claimable  paint the …  3m ago  too cold\n" +
			"01a20dcf-0000-7000  trashed    größer       2h ago  -\n"},
		{"columns go from the right, but the last", 50, rows, "ID                  STATE      NAME       REASON\n" +
			"01a20dce-5501-742b  claimable  paint th…  too cold\n" +
			"01a20dcf-0000-7000  trashed    größer     -\n"},
		{"the last keeps more than others", 60, [][]string{{firstID, "held", "me", "a", "3m ago", "the rock below the shed is too hard"}}, "ID                  STATE  OWNER  REASON\n" +
			"01a20dce-5501-742b  held   me     the rock below the shed i…\n"},
		{"ids stay apart", 45, [][]string{{firstID, "held", "-", "a", "3m ago", "-"}, {secondID, "held", "-", "b", "3m ago", "-"}}, "ID                  STATE  NAME  POSTED\n" +
			"01a20dce-5501-742b  held   a     3m ago\n" +
			"01a20dce-5501-7fff  held   b     3m ago\n"},
		{"too narrow for anything", 5, rows, "ID\n01a20dce-5501-742b\n01a20dcf-0000-7000\n"},
	} {
		var out bytes.Buffer
		program := cli.Program{Out: &out, Env: []string{"NO_COLOR=1"}}
		if row.width >= 0 {
			program.Columns = func() int { return row.width }
		}
		if err := program.WriteTable(header, row.rows); err != nil || out.String() != row.want {
			t.Errorf("%s: %v, got\n%swant\n%s", row.name, err, out.String(), row.want)
		}
	}
	if rows[0][0] != firstID {
		t.Error("the caller's rows were changed")
	}
}

func TestTablesHaveColours(t *testing.T) {
	for _, row := range []struct {
		terminal bool
		env      []string
		want     string
	}{
		{true, nil, "NAME    STATE      OUTCOME\nfailed  \x1b[32mcompleted\x1b[0m  \x1b[31mfailed\x1b[0m\nb       held       -\n"},
		{true, []string{"NO_COLOR=1"}, "NAME    STATE      OUTCOME\nfailed  completed  failed\nb       held       -\n"},
		{false, nil, "NAME    STATE      OUTCOME\nfailed  completed  failed\nb       held       -\n"},
	} {
		var out bytes.Buffer
		program := cli.Program{Out: &out, Env: row.env}
		if row.terminal {
			program.Columns = func() int { return 80 }
		}
		err := program.WriteTable([]string{"name", "state", "outcome"}, [][]string{{"failed", "completed", "failed"}, {"b", "held", "-"}})
		if err != nil || out.String() != row.want {
			t.Errorf("terminal %t, %v: %v, %q", row.terminal, row.env, err, out.String())
		}
	}
}

// TestListsFitATerminal: the lists of a busy cluster fit into 80 columns without losing important
// columns.
func TestListsFitATerminal(t *testing.T) {
	cluster := clitest.Open(t)
	for i := range 3 {
		clitest.NewWorker(t, cluster, clitest.Post(t, cluster, "--flow", clitest.Examples+"hello.toml", "--set", "guest=x", "--name", fmt.Sprint("the long name of job ", i), "--board", "the board of the night"))
	}
	clitest.NewWorker(t, cluster, clitest.PostHello(t, cluster)).Fail()
	clitest.NewWorker(t, cluster, clitest.PostHello(t, cluster)).Succeed()
	for args, want := range map[string]string{
		"job list":     "ID STATE OUTCOME NAME STARTED TOOK",
		"claim list":   "JOB NAME BOARD OWNER HEALTH",
		"session list": "ID NAME HOST PID TTL CLAIMS",
		"job errors":   "AT JOB HOW STEP",
		"book list":    "ID NAME CREATED",
		"board list":   "BOARD STATE CLAIMABLE CLAIMED",
		"trash list":   "ID BOARD NAME KIND TRASHED",
	} {
		got := clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) { p.Columns, p.Env = func() int { return 80 }, []string{"NO_COLOR=1"} }, strings.Fields(args)...)
		if got.Code != 0 || !strings.HasPrefix(clitest.Steady(got.Out), want) {
			t.Errorf("%s: %+v", args, got)
		}
		for line := range strings.Lines(got.Out) {
			if utf8.RuneCountInString(line) > 81 {
				t.Errorf("%s: a line of %d characters: %s", args, utf8.RuneCountInString(line)-1, line)
			}
		}
	}
}
