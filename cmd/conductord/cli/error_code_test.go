package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/docs"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard/wire"
)

// TestCodesAreDocumented compares docs/errors.md, and the table of docs/protocol.md, with the codes
// of the API, their wire codes and their exit codes.
func TestCodesAreDocumented(t *testing.T) {
	protocol, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	wanted := append(command.Codes(), connect.CodeCanceled.String(), connect.CodeDeadlineExceeded.String())
	for _, section := range docs.ErrorSections() {
		if !slices.Contains(wanted, section[0]) {
			t.Errorf("docs/errors.md has a section for %q, which is no code", section[0])
		}
	}
	for _, code := range wanted {
		text := docs.ErrorSection(code)
		for _, part := range []string{"- Happened: ", "\nUsual causes:\n\n- ", "\nWhat to do:\n\n- "} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %q in docs/errors.md does not have %q", code, part)
			}
		}
		if !slices.Contains(command.Codes(), code) {
			continue // clients create this code themselves
		}
		err := command.ErrorFromProto(&v1.Error{Code: code})
		crossing, exit := wire.ErrorToConnect(err), cli.ExitCode(err)
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		request.Header.Set("Content-Type", "application/json")
		if failed := connect.NewErrorWriter().Write(answer, request, crossing); failed != nil {
			t.Fatal(failed)
		}
		if facts := fmt.Sprintf("\n- HTTP %d; Connect and gRPC `%s`; exit code %d\n", answer.Code, crossing.Code(), exit); !strings.Contains(text, facts) {
			t.Errorf("the section of %q in docs/errors.md does not say%s", code, facts)
		}
		row := fmt.Sprintf("\\n\\| `%s` \\|.*\\| `%s` \\| %d \\| %d \\|\\n", code, crossing.Code(), answer.Code, exit)
		if !regexp.MustCompile(row).Match(protocol) {
			t.Errorf("the table of docs/protocol.md has no row like %s", row)
		}
	}
}

// TestErrorCommand: an error of the API names the command that explains it, which needs no server.
func TestErrorCommand(t *testing.T) {
	cluster := clitest.Open(t)
	for _, row := range []struct {
		args string
		code int
		out  string // part of stdout
		err  string // end of stderr
	}{
		{"job get 01890000-0000-7000-8000-000000000001", cli.ExitNotFound, "", ": not found\n"},
		{"job get 01890000-0000-7000-8000-000000000001", cli.ExitNotFound, "", ": not found\nconductord: `conductord error not_found` explains this error\n"}, // at a terminal
		{"board create x --no-such-flag", cli.ExitUsage, "", "--help` shows details\n"},
		{"error not_found", cli.ExitOK, "not_found\n\nThe object does not exist", ""},
		{"error", cli.ExitOK, "unclaimable", ""},
		{"error", cli.ExitOK, "The approval has ended", ""},
		{"error decided", cli.ExitOK, "decided\n\nThe approval has ended", ""},
		{"error fenced -o json", cli.ExitOK, `"code": "fenced"`, ""},
		{"error not_fond", cli.ExitUsage, "", "did you mean \"not_found\"?; `conductord error` lists the codes\n"},
	} {
		terminal := strings.Contains(row.err, "explains")
		got := clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) { p.Terminal = terminal }, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.Contains(got.Out, row.out) || !strings.HasSuffix(got.Err, row.err) || strings.Contains(got.Out, "```") {
			t.Errorf("conductord %s: %+v", row.args, got)
		}
	}
}
