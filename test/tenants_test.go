package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	accesscmd "github.com/conductord/conductord/cmd/conductord/cli/access"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
)

// TestSecretsOfTenants: on a cluster with access control, a tenant's own step worker gets the secrets of the tenant's
// boards, and the shared secrets that secrets.boards names for them. The conductor refuses all others by name.
func TestSecretsOfTenants(t *testing.T) {
	t.Parallel()
	dir, handlers, secrets := t.TempDir(), filepath.Join(t.TempDir(), "handlers"), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"all": "SECRET-OF-ALL-BOARDS", "mail": "SECRET-FOR-MAIL", "a/1/own": "SECRET-OF-A", "b/1/own": "SECRET-OF-B", "b/1/db": "SECRET-DB-OF-B"} {
		path := filepath.Join(secrets, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	writeHandler(t, handlers, "steal", `cat >>`+file("stolen")+`; echo 1`)
	var made accesscmd.MadeFiles
	printed(t, &made, "cert", "init", "--dir", dir)
	cluster := newClusterOf(t, 1, func(c *config.Config) {
		printed(t, &made, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: file("ca.pem"), Cert: made.Cert, Key: made.Key}
		c.Conductor.Boards = []string{"a/1"}
		c.Secrets = config.Secrets{Directory: secrets, Environment: "TENANTS_TEST_", Boards: config.PerBoard{"a/*": {"mail"}}}
	})
	if err := errors.Join(os.Setenv("TENANTS_TEST_VARIABLE", "SECRET-OF-THE-ENVIRONMENT"), cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	socket := "--server=unix://" + filepath.Join(cluster.Nodes[0].DataDir, "api.sock")
	ran(t, "token", "create", "tenant", "--grant", "poster=a/*", "--grant", "worker=a/*", "--out", file("token"), socket)
	as := []string{"--server=" + strings.Join(cluster.Endpoints(), ","), "--ca-file=" + file("ca.pem"), "--token-file=" + file("token")}
	worker := exec.CommandContext(t.Context(), binary, append([]string{"worker", "--handlers", handlers, "--boards", "a/1"}, as...)...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = worker.Process.Kill(); _ = worker.Wait() }()
	for _, row := range []struct {
		secret string
		given  bool
	}{{"own", true}, {"mail", true}, {"all", false}, {"variable", false}, {"db", false}} {
		document := file(row.secret + ".toml")
		text := `name = "n"
[[steps]]
name = "s"
handler = "steal"
worker = true
inject = {x = {secret = "` + row.secret + `"}}
`
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run := command(t, "", append([]string{"flow", "run", document, "--board", "a/1", "--wait"}, as...)...)
		refusal := `secret "` + row.secret + `": not allowed: board "a/1" has no permission for it: add it to secrets.boards of the conductor, as in "a/1" = ["` + row.secret + `"]`
		if row.given != (run.code == 0) || !row.given && !strings.Contains(run.out+run.err, refusal) {
			t.Errorf("secret %q: exit code %d: %s%s", row.secret, run.code, run.out, run.err)
		}
	}
	stolen, _ := os.ReadFile(file("stolen"))
	if said := string(stolen); strings.Count(said, "SECRET-") != 2 || !strings.Contains(said, "SECRET-OF-A") || !strings.Contains(said, "SECRET-FOR-MAIL") {
		t.Errorf("the worker was given %s", said)
	}
}

// TestHandlersOfBoardsHaveUsers: a node and a step worker run each handler as the user of its job's board.
func TestHandlersOfBoardsHaveUsers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run handlers as other users")
	}
	handlers, dir := filepath.Join(t.TempDir(), "handlers"), t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	writeHandler(t, handlers, "says", `id -un | sed 's/.*/"&"/'`)
	cluster, err := local.New(local.Options{Nodes: 1, Binary: binary, Dir: dir, Addresses: freeAddresses, Configure: func(c *config.Config) {
		c.Conductor.Handlers, c.Conductor.Boards = []string{handlers}, []string{"a/1", "b/1"}
		c.Handlers.User, c.Handlers.Users = "nobody", config.PerBoard{"a/*": {"daemon"}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	server := "--server=" + strings.Join(cluster.Endpoints(), ",")
	worker := follow(t, "worker", "--handlers", handlers, "--handlers-user", "nobody", "--handlers-users", "a/*=bin", server)
	defer func() { _ = worker.Process.Kill(); _ = worker.Wait() }()
	for _, row := range []struct{ board, worker, want string }{
		{"a/1", "false", "daemon"}, {"b/1", "false", "nobody"}, {"a/1", "true", "bin"}, {"b/1", "true", "nobody"},
	} {
		document := filepath.Join(dir, "flow.toml")
		if err := os.WriteFile(document, []byte("name = \"n\"\n[[steps]]\nname = \"says\"\nprovides = \"user\"\nworker = "+row.worker+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if said := ran(t, "flow", "run", document, "--board", row.board, "--wait", "--timeout", "1m", server); !strings.Contains(said, row.want) {
			t.Errorf("on board %s, by a worker %s, the handler is not %s: %s\n%s", row.board, row.worker, row.want, said, worker.said())
		}
	}
}
