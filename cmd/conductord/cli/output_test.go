package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// TestHiddenCharacters: what a terminal would obey is shown instead, as text
// and in JSON, where it still means the same.
func TestHiddenCharacters(t *testing.T) {
	for _, row := range []struct{ name, text, shown, escaped string }{
		{"plain", "Größe 東京 🚀", "Größe 東京 🚀", "Größe 東京 🚀"},
		{"escape sequence", "a\x1b[31mb", `a\u001b[31mb`, `a\u001b[31mb`},
		{"C1 control", "a\u009b31mb", `a\u009b31mb`, `a\u009b31mb`},
		{"delete", "a\x7fb", `a\u007fb`, `a\u007fb`},
		{"right to left", "a\u202eb", `a\u202eb`, `a\u202eb`},
		{"zero width", "a\u200bb", `a\u200bb`, `a\u200bb`},
		{"line separator", "a\u2028b", `a\u2028b`, `a\u2028b`},
		{"tag beyond 16 bits", "a\U000e0041b", `a\U000e0041b`, `a\udb40\udc41b`},
		{"carriage return", "a\rb", `a\u000db`, `a\rb`},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster := openCluster(t)
			cluster.nodes = []cli.Node{{Endpoint: "e", Name: row.text, Leader: "l", Ready: true}}
			table := run(t, cluster, "cluster", "status")
			if !strings.Contains(table.out, " "+row.shown+" ") {
				t.Errorf("no %q in the table\n%q", row.shown, table.out)
			}
			document := run(t, cluster, "cluster", "status", "-o", "json")
			if !strings.Contains(document.out, `"`+row.escaped+`"`) {
				t.Errorf("no %q in the JSON\n%q", row.escaped, document.out)
			}
			var nodes []cli.Node
			if err := json.Unmarshal([]byte(document.out), &nodes); err != nil || nodes[0].Name != row.text {
				t.Errorf("it does not mean the same: %v, %+v", err, nodes)
			}
		})
	}
}

// TestErrorsAreClean: messages come from anybody, too.
func TestErrorsAreClean(t *testing.T) {
	got := run(t, nil, "job", "list", "--state", "\x1b[31m\u202e")
	if strings.ContainsAny(got.err, "\x1b\u202e") {
		t.Errorf("got %q", got.err)
	}
}

// TestJSONKeepsValues: large numbers and signs that HTML minds stay as posted.
func TestJSONKeepsValues(t *testing.T) {
	cluster := openCluster(t)
	id := post(t, cluster, "--kind", "k", "--details", `{"n":12345678901234567890,"s":"<&>"}`)
	got := run(t, cluster, "job", "get", "-o", "json", id.String())
	var job jobs.Job
	if err := json.Unmarshal([]byte(got.out), &job); err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, job.Details); err != nil {
		t.Fatal(err)
	}
	if compact.String() != `{"n":12345678901234567890,"s":"<&>"}` || !strings.Contains(got.out, `"<&>"`) {
		t.Errorf("got %s", got.out)
	}
}
