package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
)

// TestJSONListsFaults: with -o json, flow check prints the faults of each file with line and
// column.
func TestJSONListsFaults(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("name = \"b\"\ncolour = 1\n[[steps]]\nname = \"s\"\ntimeout = \"soon\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, nil, "flow", "check", "-o", "json", bad, clitest.Examples+"hello.toml", "/nowhere.toml")
	for _, want := range []string{
		`"file": "` + bad + `",` + "\n" + `      "faults": [`, `"line": 2,` + "\n" + `          "column": 1,`, `"where": "step \"s\", timeout"`,
		`"name": "hello",` + "\n" + `      "steps": 2`, `"reason": "cannot read the flow: open /nowhere.toml: no such file or directory"`,
	} {
		if !strings.Contains(got.Out, want) || got.Code != 2 {
			t.Errorf("code %d, no %s in\n%s", got.Code, want, got.Out)
		}
	}
}

// TestJSONListsWithoutItems: an empty list is present, so that scripts can iterate over it.
func TestJSONListsWithoutItems(t *testing.T) {
	cluster := clitest.Open(t)
	for _, name := range []string{"job", "claim", "book", "schedule", "trash", "token", "quota"} {
		list := map[string]string{"trash": "jobs", "token": "principals"}[name]
		if list == "" {
			list = name + "s"
		}
		if got := clitest.Run(t, cluster, name, "list", "-o", "json"); got.Code != 0 || got.Out != "{\n  \""+list+"\": []\n}\n" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := clitest.Run(t, cluster, "job", "list", "--name", "none", "-o", "json"); got.Out != "{\n  \"jobs\": [],\n  \"scans\": true\n}\n" {
		t.Errorf("jobs by their name: %+v", got)
	}
}

// TestJSONShowsNoPackedDefinition: the packed definition of a flow is only for our programs.
func TestJSONShowsNoPackedDefinition(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--flow", clitest.Examples+"hello.toml", "--set", "guest=x")
	clitest.NewWorker(t, cluster, id).Stick()
	if got := clitest.Run(t, cluster, "flow", "show", id.String(), "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, "hash-of-hello") || strings.Contains(got.Out, "packed") {
		t.Errorf("got %+v", got)
	}
}
