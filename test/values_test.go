package test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
)

// canary is in every value of TestEncryptedValues, and in nothing else. control is in a value that is
// not encrypted: where the test looks for the one, it must find the other.
const (
	canary  = "canary-4711"
	control = "control-0815"
)

const guarded = `
name = "guarded"
pattern = "linear"
[store]
card = "none"
[[steps]]
name = "charge"
requires = ["card"]
provides = "receipt"
inject = { account = "canary-4711 of the shop" }
[[steps]]
name = "refuse"
requires = ["receipt"]
`

// TestEncryptedValues is the runbook "Set up" of docs/value-keys.md: keys for the nodes and for
// readers, no plain value on any disk, the replacement of the key, and a conductor without it.
func TestEncryptedValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	document := file("guarded.toml")
	writeHandler(t, file("handlers"), "charge", "cat\n") // its result is its arguments
	writeHandler(t, file("handlers"), "refuse", "cat >&2; exit 7\n")
	if err := os.WriteFile(document, []byte(guarded), 0o600); err != nil {
		t.Fatal(err)
	}
	ran(t, "value-key", "add", file("keys"), "first")
	cluster := newCluster(t, func(c *config.Config) {
		c.Conductor.Handlers, c.Conductor.ValueKeys = []string{file("handlers")}, file("keys")
	})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	with := func(keys string, args ...string) string {
		t.Helper()
		return ran(t, append(args, server, "--value-keys="+file(keys))...)
	}
	post := func(keys string) string {
		t.Helper()
		id := strings.TrimSpace(with(keys, "flow", "run", document, "--set", `card="`+canary+` of Ann"`))
		if code := command(t, "", "job", "wait", id, server).code; code != 1 {
			t.Fatalf("job wait: exit code %d", code)
		}
		return id
	}
	first := post("keys")
	var job struct{ Flow string }
	printed(t, &job, "job", "get", first, server)

	for _, args := range [][]string{{"job", "get", first}, {"flow", "show", job.Flow}, {"job", "errors", first}} {
		if shown := with("keys", args...); !strings.Contains(shown, canary) || strings.Contains(shown, "encrypted") {
			t.Errorf("%v with the key: %s", args, shown)
		}
		if shown := ran(t, append(args, server)...); strings.Contains(shown, canary) || !strings.Contains(shown, "[encrypted with key first]") {
			t.Errorf("%v without a key: %s", args, shown)
		}
		if shown := ran(t, append(args, server, "-o", "json")...); strings.Contains(shown, canary) || !strings.Contains(shown, "$encrypted:1:first:") {
			t.Errorf("%v as JSON without a key: %s", args, shown)
		}
	}
	ran(t, "job", "post", "--name", "plain", "--kind", "none", "--details", `"`+control+`"`, server)
	ran(t, "backup", "create", file("backup"), server)
	for _, node := range cluster.Nodes {
		if _, err := node.Terminate(within(t)); err != nil {
			t.Fatal(err)
		}
		if found := found(t, node.DataDir); found[canary] || !found[control] {
			t.Errorf("the data directory of %s: %v", node.Name, found)
		}
		if found(t, node.Log)[canary] {
			t.Errorf("the log of %s holds a value", node.Name)
		}
	}
	if found := found(t, file("backup")); found[canary] || !found[control] {
		t.Errorf("the backup: %v", found)
	}

	// The replacement: all have the new key before it encrypts.
	ran(t, "value-key", "add", file("keys"), "second")
	ran(t, "value-key", "use", file("keys"), "second")
	ran(t, "value-key", "add", file("others"), "third")
	startAll(t, cluster)
	second := post("keys")
	if shown := ran(t, "job", "get", second, server); !strings.Contains(shown, "[encrypted with key second]") {
		t.Error(shown)
	}
	if shown := with("keys", "job", "get", first); !strings.Contains(shown, canary) {
		t.Errorf("after the exchange: %s", shown)
	}

	// A conductor without the key releases the job, until it is restarted with the key.
	waiting := strings.TrimSpace(with("others", "flow", "run", document))
	eventually(t, "the job says why it waits", func() bool {
		said := ran(t, "job", "explain", waiting, server)
		return strings.Contains(said, "a value is encrypted with key third") && strings.Contains(said, "add the key to the file in conductor.value_keys")
	})
	appendKeys(t, file("keys"), file("others"))
	for _, node := range cluster.Nodes {
		if _, err := node.Terminate(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	startAll(t, cluster)
	if code := command(t, "", "job", "wait", waiting, server).code; code != 1 {
		t.Errorf("job wait: exit code %d", code)
	}
	if shown := with("keys", "job", "get", waiting); !strings.Contains(shown, string(jobs.OutcomeReverted)) {
		t.Error(shown)
	}

	if err := os.Chmod(file("keys"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses(t, 2, "chmod 600", "job", "get", first, server, "--value-keys="+file("keys"))
	if found, bad := examined(t, "", "--config", cluster.Nodes[0].Config); !bad || !strings.Contains(found["value keys"].Text, "other users can read") {
		t.Errorf("doctor says %+v", found["value keys"])
	}
}

func startAll(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	for _, node := range cluster.Nodes {
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
}

// appendKeys appends the lines of a file to another one, like an operator with an editor.
func appendKeys(t *testing.T, to, from string) {
	t.Helper()
	old, err := os.ReadFile(to)
	more, moreErr := os.ReadFile(from)
	if err := errors.Join(err, moreErr, os.WriteFile(to, append(old, more...), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// found reports which of the two texts is in a file below a path.
func found(t *testing.T, path string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, wanted := range []string{canary, control} {
			found[wanted] = found[wanted] || bytes.Contains(text, []byte(wanted))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
