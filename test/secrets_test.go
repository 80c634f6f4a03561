package test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/flow/handler"
	"github.com/conductord/conductord/logbook"
)

// TestSecretsStayOutOfTheCluster follows docs/secrets.md: handlers get secrets from a file, the
// environment and a command, and print them in every output. No file of the cluster may contain a
// secret (data directory, log, backup), and no command may print one.
func TestSecretsStayOutOfTheCluster(t *testing.T) {
	t.Parallel()
	handlers, outside := filepath.Join(t.TempDir(), "handlers"), t.TempDir()
	canaries := map[string]string{"db": "canary-of-the-file-3811", "api": "canary-of-the-command-9127"}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(outside, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("db", canaries["db"]+"\n", 0o600)
	vault := write("vault", "#!/bin/sh\n[ \"$1 $2\" = \"default api\" ] && echo "+canaries["api"]+"\nexit 0\n", 0o700)
	// It fails once, answers "not yet" once, and prints everything that it knows each time.
	writeHandler(t, handlers, "talker", `read -r line
echo "stderr: $line" >&2
echo '{"done":1,"details":'"$line"'}' >&3
case "$line" in *canary-of-the-command-9127*canary-of-the-file-3811*) ;; *) echo "it has no secrets" >&2; exit 65 ;; esac
[ "$CONDUCTORD_ACTION" = revert ] && exit 0
[ "$CONDUCTORD_ATTEMPT" = 1 ] && exit 1
[ "$CONDUCTORD_ASKED" = 0 ] && { echo '{"not_yet":"10ms","details":'"$line"'}'; exit 75; }
echo "$line"`)
	writeHandler(t, handlers, "teller", `read -r line; echo "after: $line" >&2; exit 65`)
	document := write("flow.toml", `name = "login"
[store]
db = {secret = "db"}
[[steps]]
name = "talker"
revert = "talker"
requires = ["db"]
inject = {account = [{key = {secret = "api"}, user = "u"}]}
provides = "account"
retry = {attempts = 2}
[[steps]]
name = "teller"
requires = ["account"]
`, 0o600)
	cluster, _ := startCluster(t, func(c *config.Config) {
		c.Conductor.Handlers = []string{handlers}
		c.Secrets = config.Secrets{Directory: outside, Command: vault}
		c.Log.Level = "trace"
	})
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	run := command(t, "", "flow", "run", document, "--wait", server)
	if run.code == 0 || !strings.Contains(run.err+run.out, "teller") {
		t.Fatalf("the flow was to be reverted: exit code %d: %s %s", run.code, run.out, run.err)
	}
	job := strings.Fields(run.err)[2] // job ID is posted
	shown := run.out + run.err + ran(t, "job", "get", job, server) + ran(t, "flow", "show", job, "--attempts", server) +
		ran(t, "flow", "show", job, "--attempts", "-o", "json", server)
	if !strings.Contains(shown, "stderr: {") || !strings.Contains(shown, "[secret db]") || !strings.Contains(shown, "[secret api]") {
		t.Errorf("the attempts do not show where the secrets were: %s", shown)
	}
	dir := filepath.Dir(cluster.Nodes[0].DataDir)
	ran(t, "backup", "create", filepath.Join(dir, "cluster.tar"), server)
	cluster.Kill()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for name, canary := range canaries {
			if strings.Contains(string(text), canary) {
				t.Errorf("%s has the secret %s", path, name)
			}
		}
		return err
	})
	if err != nil || files < 3*4+1 {
		t.Errorf("looked at %d files, %v", files, err)
	}
	for name, canary := range canaries {
		if strings.Contains(shown, canary) {
			t.Errorf("a command shows the secret %s", name)
		}
	}
}

// TestHandlersThatPrintTheirSecrets: for any form in which a handler prints its secret, no eight
// bytes of it are recorded in results, failures, progress, stderr or lines. The secrets are
// documents, and texts that quoting changes.
func TestHandlersThatPrintTheirSecrets(t *testing.T) {
	t.Parallel()
	const document, odd = `{"user":"joe-of-shop","pass":"hunter2hunter2"}`, "k\"9\\x\"7\\q\"5\\z\"3\t\u200b\\w\"1"
	quoted, lines := strconv.Quote(odd), "AAAA\"BBB\nCC\\DDD\nEE\tFFFF\"G"
	for _, row := range []struct{ name, secret, stdout, stderr, want string }{
		{"a document", document, document, "", `"[secret db]"`},
		{"a document in another", document, `{"credentials": [` + document + `]}`, document, `{"credentials":["[secret db]"]}`},
		{"a document in lines", document, "{\n \"pass\": \"hunter2hunter2\",\n \"user\": \"joe-of-shop\"\n}", "", `"[secret db]"`},
		{"a list", `["tok-1-of-shop","tok-2-of-shop"]`, `["tok-1-of-shop","tok-2-of-shop"]`, "", `"[secret db]"`},
		{"a quoted text", `"hunter2hunter2"`, `"hunter2hunter2"`, "", `"[secret db]"`},
		{"a document that is no answer", document, document + "x", "", ""},
		{"quotation marks", odd, odd, odd, ""},
		{"quotation marks, quoted", odd, quoted, quoted + strconv.Quote(quoted), `"[secret db]"`},
		{"lines", lines, lines, lines, ""},
		{"an unknown field", odd, `{"failure":{` + strconv.QuoteToASCII(odd) + `:1}}`, odd[:12], `{"failure":{"[secret db]":1}}`},
		{"a key twice", `aaaa"bbbb\cccc`, `{"aaaa\"bbbb\\cccc":1,"aaaa\"bbbb\\cccc":2}`, "", ""},
		{"no time", odd, `{"not_yet":` + strconv.QuoteToASCII(odd) + `}`, "", `{"not_yet":"[secret db]"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"stdout": row.stdout, "stderr": row.stderr, "progress": `{"done":1,"details":` + strings.ReplaceAll(row.stdout, "\n", " ") + "}\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			writeHandler(t, dir, "print", "cd "+dir+"; cat stderr >&2; cat progress >&3; cat stdout; exit $((CONDUCTORD_ATTEMPT == 1 ? 1 : CONDUCTORD_ATTEMPT == 2 ? 75 : 0))\n")
			set, err := handler.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			var record strings.Builder
			local := engine.Local{
				Secrets: func(context.Context, string) (string, error) { return row.secret, nil },
				Output:  func(_ *flow.Call, line string) { record.WriteString(line + "\n") },
			}
			step := flow.NewStep("s", set.Task("print", ""), flow.Requires("in"), flow.Provides("r"), flow.Retry(flow.Backoff{Attempts: 3}))
			result, _ := local.Run(t.Context(), flow.Linear("f", step), logbook.Values{"in": json.RawMessage(`{"secret":"db"}`)})
			detail, err := json.Marshal(result.Detail)
			if err != nil || len(result.Detail.Atoms) != 1 || string(result.Values["r"]) != row.want {
				t.Fatalf("%s, want %s: %v %s", result.Values["r"], row.want, err, detail)
			}
			record.Write(detail)
			shown := strings.ReplaceAll(record.String(), "[secret db]", "\xff")
			if !strings.Contains(record.String(), "[secret db]") {
				t.Errorf("it shows no secret: %s", record.String())
			}
			for depth := range 5 { // the record is JSON, and its texts can be JSON too
				for at := range len(row.secret) - 8 + 1 {
					if part := row.secret[at : at+8]; utf8.ValidString(part) && strings.Contains(shown, part) {
						t.Fatalf("quoted %d times, the record has %q: %s", depth, part, record.String())
					}
				}
				shown = unescaped(shown)
			}
		})
	}
}

var escaped = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// unescaped removes one level of escapes from a text.
func unescaped(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(s string) string {
		if plain, err := strconv.Unquote(`"` + s + `"`); err == nil {
			return plain
		}
		return s[1:]
	})
}
