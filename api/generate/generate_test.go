package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTextsAreClassified removes part of a message's role and generates: the generator fails before
// it writes a file, and names the message, the field and the option.
func TestTextsAreClassified(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "generate")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range []struct{ file, old, new, want string }{
		{"types", "string reason = 23 [(class) = HIDDEN];", "string reason = 23;", "message Job, field reason: a text without a class; write [(class) = SHOWN], HIDDEN or REDUCED"},
		{"service", "repeated string ids = 1 [(class) = SHOWN];", "repeated string ids = 1;", "message FindIDsResponse, field ids: a text without"},
		{"service", "map<string, uint64> jobs = 13 [(class) = SHOWN];", "map<string, uint64> jobs = 13;", "message StatusResponse, field jobs: a text without"},
		{"types", "option (is_value) = true;", "", "message Value, field json: a text without"},
		{"command", "bool revert = 4;", "bool revert = 4 [(class) = SHOWN];", "message JobCommand, field revert: it has a class and is no text"},
		{"types", "HIDDEN", "SECRET", "SECRET"},
		{"service", `option (scope) = {on: LIST, field: "query.board"};`, "", "message BulkRequest: no scope; write option (scope)"},
		{"service", `{on: LIST, field: "query.board"}`, `{on: LIST, field: "query.boards"}`, `message BulkRequest: an option names "query.boards", and there is no such field`},
		{"service", `{on: LIST, field: "query.board"}`, `{on: LIST}`, "message BulkRequest: its scope LIST names no field"},
		{"service", `{on: LIST, field: "query.board"}`, `{on: LIST, field: "query"}`, `message BulkRequest: an option names "query", which is a message`},
		{"types", `"id.attempt"`, `"id.number"`, `message StepWork: an option names "id.number", and there is no such field`},
		{"command", `option (scope) = {on: JOB, field: "job"};`, "", "message ExtendClaimCommand: no scope"},
		{"types", `option (scope) = {on: BOARD, field: "board"};`, "", "message Posting: no scope"},
		{"service", " { option (call).needs = OPERATE; }", ";", "call BoardService.Bulk: no permission; write option (call).needs"},
		{"service", `(call).applies = "suspend"`, `(call) = {applies: "suspend", needs: READ}`, "call BoardService.Suspend: it applies suspend, which states the permission"},
		{"service", `(call).applies = "suspend"`, `(call).applies = "change"`, "call BoardService.Suspend: there is no command change with the message JobCommand"},
		{"command", "JobCommand suspend = 13 [(command).needs = OPERATE];", "JobCommand suspend = 13;", "command suspend: no permission; write [(command).needs"},
		{"command", `option (target) = "job to";`, "", "command suspend is audited, and message JobCommand names no target"},
	} {
		root := t.TempDir()
		sources := filepath.Join("..", "conductord", "v1")
		if err := os.CopyFS(filepath.Join(root, "conductord", "v1"), os.DirFS(sources)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, "conductord", "v1", row.file+".proto")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if row.want != "" && !strings.Contains(string(text), row.old) {
			t.Errorf("%s.proto has no %q", row.file, row.old)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), row.old, row.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, root).CombinedOutput()
		if (err != nil) != (row.want != "") || !strings.Contains(string(out), row.want) {
			t.Errorf("%s.proto with %q: %v: %s", row.file, row.new, err, out)
		}
	}
}
