package test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
)

// TestDialByEnvironment checks that a Go program without arguments reaches the cluster that the
// variables of the command line name. It is not parallel: it sets them.
func TestDialByEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ran(t, "cert", "init", "--dir", dir)
	cluster := newClusterOf(t, 1, func(c *config.Config) {
		ran(t, "cert", "issue", "node", c.Node, "--cluster", "local", "--host", "127.0.0.1,localhost", "--dir", dir)
		c.TLS = config.TLS{CA: file("ca.pem"), Cert: file(c.Node + ".pem"), Key: file(c.Node + ".key")}
	})
	if err := errors.Join(cluster.Start(), cluster.WaitReady(within(t))); err != nil {
		t.Fatal(err)
	}
	one := cluster.Nodes[0]
	open, hidden := file("open"), file("hidden")
	if err := errors.Join(os.WriteFile(open, []byte("cdt_x"), 0o644), os.WriteFile(hidden, []byte("cdt_x\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	certificates := map[string]string{
		"CONDUCTORD_SERVER": " " + one.API + ", " + one.API, "CONDUCTORD_CA_FILE": file("ca.pem"),
		"CONDUCTORD_CERT_FILE": file(one.Name + ".pem"), "CONDUCTORD_KEY_FILE": file(one.Name + ".key"),
	}
	for _, row := range []struct {
		name string
		set  map[string]string
		with map[string]string
		want string // part of the error
	}{
		{"certificates and a list", nil, certificates, ""},
		{"a missing file", map[string]string{"CONDUCTORD_CA_FILE": file("none")}, certificates, "no such file"},
		{"a key without its certificate", map[string]string{"CONDUCTORD_CERT_FILE": ""}, certificates, "key"},
		{"a token that others can read", map[string]string{"CONDUCTORD_TOKEN_FILE": open}, certificates, "chmod 600"},
		{"a token file before a token", map[string]string{"CONDUCTORD_TOKEN_FILE": hidden, "CONDUCTORD_TOKEN": "cdt_y", "CONDUCTORD_SERVER": "127.0.0.1:1"}, nil, "plain text"},
		{"a token in plain text", map[string]string{"CONDUCTORD_TOKEN": "cdt_x", "CONDUCTORD_SERVER": "127.0.0.1:1"}, nil, "plain text"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, value := range row.with {
				t.Setenv(name, value)
			}
			for name, value := range row.set {
				t.Setenv(name, value)
			}
			client, err := raftboard.Dial(within(t))
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%v, want %q", err, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			job, err := jobs.PostOne(within(t), client, jobs.NewPlainPosting("k", "details"))
			if want := "job " + job.ID.String() + " on board default, k: claimable"; err != nil || job.String() != want {
				t.Errorf("posted %v, %v; want %s", job, err, want)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		options, err := raftboard.FromEnvironment()
		if err != nil || len(options.Endpoints) != 1 || options.Endpoints[0] != raftboard.DefaultEndpoint || options.Token != "" || options.Credentials != nil {
			t.Errorf("%+v, %v", options, err)
		}
	})
}

// TestHandlersGetNoVariableOfClients: no environment variable of a handler is a setting of the
// command line or the client libraries, such as an access token.
func TestHandlersGetNoVariableOfClients(t *testing.T) {
	read := func(pattern string) (text string) {
		paths, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			if content, err := os.ReadFile(path); err != nil {
				t.Fatal(err)
			} else if !strings.HasSuffix(path, "_test.go") {
				text += string(content)
			}
		}
		return text
	}
	given := regexp.MustCompile(`"(CONDUCTORD_[A-Z_]+)=`).FindAllStringSubmatch(read("flow/handler/process.go"), -1)
	if len(given) < 10 {
		t.Fatalf("the variables of handlers are %q", given)
	}
	for _, clients := range []string{"raftboard/environment.go", "cmd/conductord/cli/*.go", "cmd/conductord/cli/*/*.go", "clients/python/conductord/*.py", "clients/typescript/src/*.ts"} {
		text := read(clients)
		for _, variable := range given {
			if strings.Contains(text, `"`+variable[1]+`"`) {
				t.Errorf("%s reads %s, which handlers are given", clients, variable[1])
			}
		}
	}
}
