package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
)

// TestSecretsStayOutOfTheCluster is the section "Secrets" of docs/security.md: handlers are given
// secrets from a file, the environment and a command, and print them wherever they can. Then no
// file of the cluster has one: no data directory, log or backup, and no command prints one.
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
	// It fails once, says "not yet" once, and says all it knows each time.
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
