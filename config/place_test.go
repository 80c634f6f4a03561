package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/conductord/conductord/config"
)

// Relative paths in a file are relative to its directory, so the directory can be copied anywhere.
// Relative paths in flags are relative to the working directory.
func TestPathsBelongToTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "n1.toml")
	text := "data_dir = \"data\"\n" + `node = "n1"
backup.directory = "/backups"
[cluster]
id = "shop"
[[cluster.members]]
name = "n1"
raft = "127.0.0.1:7071"
api = "127.0.0.1:7070"
[tls]
ca = "ca.pem"
cert = "../n1.pem"
key = "/keys/n1.key"
[conductor]
handlers = ["handlers", "/usr/lib/steps"]
value_keys = "keys"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, nil, map[string]string{"conductor-value-keys": "flag.keys"})
	if err != nil {
		t.Fatal(err)
	}
	got := append([]string{c.DataDir, c.Backup.Directory, c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.Conductor.ValueKeys}, c.Conductor.Handlers...)
	want := []string{filepath.Join(dir, "data"), "/backups", filepath.Join(dir, "ca.pem"), filepath.Join(filepath.Dir(dir), "n1.pem"), "/keys/n1.key", "flag.keys",
		filepath.Join(dir, "handlers"), "/usr/lib/steps"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A variable with a nearly correct name of a setting is refused, like such a key or flag. Variables
// of clients, handlers, Kubernetes and other programs are ignored.
func TestVariableNames(t *testing.T) {
	flags := map[string]string{"node": "n1", "data-dir": "/data", "cluster-id": "shop", "cluster-members": "n1=127.0.0.1:7071,127.0.0.1:7070"}
	for variable, want := range map[string]string{
		"CONDUCTORD_CONDUCTOR_MAXJOBS":      "environment: CONDUCTORD_CONDUCTOR_MAXJOBS: there is no such variable; did you mean CONDUCTORD_CONDUCTOR_MAX_JOBS?",
		"CONDUCTORD_RAFT_HEARTBEATS":        "environment: CONDUCTORD_RAFT_HEARTBEATS: there is no such variable; did you mean CONDUCTORD_RAFT_HEARTBEAT?",
		"CONDUCTORD_BACKUP_DIR":             "environment: CONDUCTORD_BACKUP_DIR: there is no such variable; did you mean CONDUCTORD_BACKUP_DIRECTORY?",
		"CONDUCTORD_SERVER":                 "",
		"CONDUCTORD_TOPOLOGY":               "",
		"CONDUCTORD_VALUE_KEYS":             "",
		"CONDUCTORD_TOKEN_FILE":             "",
		"CONDUCTORD_KEY":                    "",
		"CONDUCTORD_STEP":                   "",
		"CONDUCTORD_HANDLER":                "",
		"CONDUCTORD_SERVICE_HOST":           "",
		"CONDUCTORD_PORT_7070_TCP_ADDR":     "",
		"CONDUCTORD_CONDUCTOR_MAX_JOBS":     "",
		"CONDUCTORD_RAFT_SERVICE_PORT_RAFT": "",
		"CONDUCTORX_CONDUCTOR_MAXJOBS":      "",
		"OTHER":                             "",
	} {
		_, err := config.Load("", []string{variable + "=4"}, flags)
		if got := fmt.Sprint(err); got != want && !(err == nil && want == "") {
			t.Errorf("%s: %v, want %s", variable, err, want)
		}
	}
}
