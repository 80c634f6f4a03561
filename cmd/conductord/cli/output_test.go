package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/raftboard"
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
			cluster.nodes = []raftboard.NodeStatus{{Endpoint: "e", Status: raftboard.Status{Node: row.text, Leader: "l", Ready: true}}}
			table := run(t, cluster, "cluster", "status")
			if !strings.Contains(table.out, " "+row.shown+" ") {
				t.Errorf("no %q in the table\n%q", row.shown, table.out)
			}
			document := run(t, cluster, "cluster", "status", "-o", "json")
			if !strings.Contains(document.out, `"`+row.escaped+`"`) {
				t.Errorf("no %q in the JSON\n%q", row.escaped, document.out)
			}
			var shown struct {
				Nodes []struct{ Status struct{ Node string } }
			}
			if err := json.Unmarshal([]byte(document.out), &shown); err != nil || shown.Nodes[0].Status.Node != row.text {
				t.Errorf("it does not mean the same: %v, %+v", err, shown)
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

// TestErrorsAsJSON: with -o json an error is one document on stderr, with the
// code that the API has for it.
func TestErrorsAsJSON(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000001"
	for _, row := range []struct {
		args, code string
		cluster    cli.Cluster
		hint       bool
	}{
		{"job get " + id, "not_found", openCluster(t), false},
		{"job get x", "invalid", openCluster(t), false},
		{"job get", "invalid", nil, true},
		{"job list --state lost", "invalid", nil, false},
		{"job list", "unavailable", nil, true},
		{"check-config /nowhere.toml", "invalid", nil, false},
	} {
		got := run(t, row.cluster, append([]string{"-o", "json"}, strings.Fields(row.args)...)...)
		var shown struct {
			Error struct{ Code, Message string }
			Hint  string
		}
		if err := json.Unmarshal([]byte(got.err), &shown); err != nil || strings.Count(got.err, "\n") != 1 || got.code == 0 {
			t.Errorf("%s: %v in %+v", row.args, err, got)
		}
		if shown.Error.Code != row.code || shown.Error.Message == "" || (shown.Hint != "") != row.hint {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestJSONKeepsValues: large numbers and signs that HTML minds stay as posted.
func TestJSONKeepsValues(t *testing.T) {
	cluster := openCluster(t)
	id := post(t, cluster, "--kind", "k", "--details", `{"n":12345678901234567890,"s":"<&>"}`)
	got := run(t, cluster, "job", "get", "-o", "json", id.String())
	job := readJob(t, got.out)
	var compact bytes.Buffer
	if err := json.Compact(&compact, job.Details); err != nil {
		t.Fatal(err)
	}
	if compact.String() != `{"n":12345678901234567890,"s":"<&>"}` || !strings.Contains(got.out, `"<&>"`) {
		t.Errorf("got %s", got.out)
	}
}
