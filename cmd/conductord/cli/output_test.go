package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard"
)

// TestHiddenCharacters: characters that a terminal would interpret are made visible, in text
// and in JSON; the JSON keeps its meaning.
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
			cluster := clitest.Open(t)
			cluster.Statuses = []raftboard.NodeStatus{{Endpoint: "e", Status: raftboard.Status{Node: row.text, Leader: "l", Ready: true}}}
			table := clitest.Run(t, cluster, "cluster", "status")
			if !strings.Contains(table.Out, " "+row.shown+" ") {
				t.Errorf("no %q in the table\n%q", row.shown, table.Out)
			}
			document := clitest.Run(t, cluster, "cluster", "status", "-o", "json")
			if !strings.Contains(document.Out, `"`+row.escaped+`"`) {
				t.Errorf("no %q in the JSON\n%q", row.escaped, document.Out)
			}
			var shown struct {
				Nodes []struct{ Status struct{ Node string } }
			}
			if err := json.Unmarshal([]byte(document.Out), &shown); err != nil || shown.Nodes[0].Status.Node != row.text {
				t.Errorf("it does not mean the same: %v, %+v", err, shown)
			}
		})
	}
}

// TestNamesReachNoTerminalRaw: names can contain marks of writing direction. No command writes them
// raw, in a table, a line, JSON, a note or an error.
func TestNamesReachNoTerminalRaw(t *testing.T) {
	const evil = "a\u202eb\u200bc"
	cluster := clitest.Open(t)
	ctx := t.Context()
	cluster.Statuses = []raftboard.NodeStatus{{Endpoint: evil, Status: raftboard.Status{Node: evil, Leader: evil, Cluster: evil, Ready: true}}}
	id := clitest.Post(t, cluster, "--flow", clitest.Examples+"hello.toml", "--set", "guest="+evil, "--name", evil, "--board", evil, "--tag", evil, "--key", evil, "--label", evil).String()
	done := clitest.NewWorker(t, cluster, clitest.Post(t, cluster, "--flow", clitest.Examples+"hello.toml", "--set", "guest=x", "--name", evil, "--board", evil))
	entity := jobs.Entity{Kind: jobs.EntityConductor, Name: evil, Boards: []string{evil}, JobKinds: []string{evil}, Labels: []string{evil}, MaxJobs: 4, Host: evil, PID: 7}
	done.Must(cluster.Register(ctx, done.Session, entity))
	done.Must(cluster.DrainConductor(ctx, jobs.DrainCommand{Conductor: evil, By: evil, Reason: evil}))
	done.Must(cluster.SavePrincipal(ctx, access.Principal{Name: evil, Grants: []access.Grant{{Role: access.Viewer, Boards: evil}}}))
	shown := 0
	for _, words := range []string{
		"job list", "job get ID", "job explain ID", "job errors", "job list --key EVIL", "job cancel ID --reason EVIL", "job post --kind EVIL --board EVIL --name EVIL",
		"board list", "board show EVIL", "board pause EVIL", "board resume EVIL", "board create EVIL2", "claim list", "session list", "conductor list", "conductor get EVIL",
		"conductor undrain EVIL", "conductor drain EVIL3", "access list", "access save EVIL --grant viewer=EVIL", "access delete EVIL", "audit search", "audit tail", "audit refusals",
		"schedule set EVIL --board EVIL --rule @daily --kind EVIL", "schedule list", "schedule show EVIL --board EVIL", "schedule pause EVIL --board EVIL",
		"cluster status", "cluster transfer-leader EVIL", "cluster remove EVIL", "book list", "trash list", "flow show ID", "bulk cancel --board EVIL --dry-run", "EVIL", "job EVIL", "job list --EVIL",
	} {
		for _, format := range []string{"table", "json"} {
			args := strings.Fields(strings.NewReplacer("EVIL", evil, "ID", id).Replace(words))
			got := clitest.Run(t, cluster, append(args, "-o", format)...)
			if strings.ContainsAny(got.Out+got.Err, "\u202e\u200b") {
				t.Errorf("%s: %d %+q %+q", words, got.Code, got.Out, got.Err)
			}
			if strings.Contains(got.Out+got.Err, `\u202e`) {
				shown++
			}
		}
	}
	if shown < 50 {
		t.Errorf("only %d commands have shown the names: the test hardly tests anything", shown)
	}
}

// A log also has no raw characters: neither invalid UTF-8, nor characters that JSON encoders
// leave unescaped.
func TestLogsAreClean(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		var log bytes.Buffer
		logger := hclog.New(&hclog.LoggerOptions{Output: cli.CleanLog(&log, asJSON), JSONFormat: asJSON})
		const evil = "a\u202eb\u009bc\x9bd\x1b[31me"
		logger.Warn("refused", "name", evil, "only bytes", "x\x9b31m", "lines", "x\x9b\n"+evil, "list", []string{evil}, "error", errors.New(evil))
		if !utf8.Valid(log.Bytes()) || bytes.ContainsFunc(log.Bytes(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("JSON %v: %q", asJSON, log.String())
		}
		if !asJSON {
			continue
		}
		var record struct{ Name string }
		if err := json.Unmarshal(log.Bytes(), &record); err != nil || !strings.HasPrefix(record.Name, "a\u202eb\u009bc") {
			t.Errorf("%v, %+q", err, record)
		}
	}
}

// TestErrorsAreClean: error messages can also contain foreign text.
func TestErrorsAreClean(t *testing.T) {
	got := clitest.Run(t, nil, "job", "list", "--state", "\x1b[31m\u202e")
	if strings.ContainsAny(got.Err, "\x1b\u202e") {
		t.Errorf("got %q", got.Err)
	}
}

// TestErrorsAsJSON: with -o json, an error is one document on stderr, with its API code.
func TestErrorsAsJSON(t *testing.T) {
	const id = "01890000-0000-7000-8000-000000000001"
	for _, row := range []struct {
		args, code string
		cluster    cli.Cluster
		hint       bool
	}{
		{"job get " + id, "not_found", clitest.Open(t), false},
		{"job get x", "invalid", clitest.Open(t), false},
		{"job get", "invalid", nil, true},
		{"job list --state lost", "invalid", nil, false},
		{"job list", "unavailable", nil, true},
		{"config check /nowhere.toml", "invalid", nil, false},
	} {
		got := clitest.Run(t, row.cluster, append([]string{"-o", "json"}, strings.Fields(row.args)...)...)
		var shown struct {
			Error struct{ Code, Message string }
			Hint  string
		}
		if err := json.Unmarshal([]byte(got.Err), &shown); err != nil || strings.Count(got.Err, "\n") != 1 || got.Code == 0 {
			t.Errorf("%s: %v in %+v", row.args, err, got)
		}
		if shown.Error.Code != row.code || shown.Error.Message == "" || (shown.Hint != "") != row.hint {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestJSONKeepsValues: large numbers, and characters that are special in HTML, stay as posted.
func TestJSONKeepsValues(t *testing.T) {
	cluster := clitest.Open(t)
	id := clitest.Post(t, cluster, "--kind", "k", "--details", `{"n":12345678901234567890,"s":"<&>"}`)
	got := clitest.Run(t, cluster, "job", "get", "-o", "json", id.String())
	job := clitest.ReadJob(t, got.Out)
	var compact bytes.Buffer
	if err := json.Compact(&compact, job.Details); err != nil {
		t.Fatal(err)
	}
	if compact.String() != `{"n":12345678901234567890,"s":"<&>"}` || !strings.Contains(got.Out, `"<&>"`) {
		t.Errorf("got %s", got.Out)
	}
}
