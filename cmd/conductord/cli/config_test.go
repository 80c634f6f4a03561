package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/raftboard/credentials"
)

// configFile writes a configuration of a cluster of one.
func configFile(t *testing.T, head, node string) string {
	t.Helper()
	c := config.Default()
	c.Node, c.DataDir, c.Cluster.ID = node, "/data", "shop"
	c.Cluster.Members = []config.Member{{Name: "n1", Raft: "127.0.0.1:7071", API: "127.0.0.1:7070"}}
	path := filepath.Join(t.TempDir(), node+".toml")
	if err := os.WriteFile(path, []byte(head+config.Write(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckConfig(t *testing.T) {
	good, bad := configFile(t, "", "n1"), configFile(t, "colour = 1\n", "n2")
	for _, row := range []struct {
		name string
		args []string
		code int
		out  string
		err  []string
	}{
		{"good", []string{good}, 0, good + ": node n1 of cluster shop (n1): good\n", nil},
		{"by --config, with a flag", []string{"--config", good, "--log-json", "--limits-steps", "7"}, 0, good + ": node n1 of cluster shop (n1): good\n", nil},
		{"a bad flag", []string{"--config", good, "--limits-steps", "0"}, 2, "", []string{"flags: --limits-steps: is 0"}},
		{"good and bad", []string{good, bad}, 2, good + ": node n1 of cluster shop (n1): good\n", []string{bad + ":1: colour: there is no such key", `"n2" is not in cluster.members`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := clitest.Run(t, nil, append([]string{"config", "check"}, row.args...)...)
			if got.Code != row.code || got.Out != row.out {
				t.Errorf("got %+v", got)
			}
			for _, want := range row.err {
				if !strings.Contains(got.Err, want) {
					t.Errorf("no %q in %s", want, got.Err)
				}
			}
		})
	}
}

// TestShowConfig: each value is shown with the source that set it.
func TestShowConfig(t *testing.T) {
	path := configFile(t, "log_store = \"wal\"\ndisk_reserve = 2000000\n", "n1")
	args := []string{"config", "show", "--config", path, "--sessions-ttl", "8s", "--tls-ca=a", "--tls-cert=b", "--tls-key=c",
		"--jwt-issuer=i", "--jwt-audience=a", "--jwt-keys=https://me:s3cret@keys.example"}
	env := func(p *cli.Program) {
		p.Env = []string{"CONDUCTORD_DISK_RESERVE=3000000", "CONDUCTORD_SESSIONS_TTL=9s"}
	}
	want := map[string]config.Value{
		"log_store":      {Value: "wal", Default: "bolt", Origin: path + ":1"},
		"disk_reserve":   {Value: "3000000", Default: "268435456", Origin: "CONDUCTORD_DISK_RESERVE"},
		"sessions.ttl":   {Value: "8s", Default: "4s", Origin: "--sessions-ttl"},
		"sessions.grace": {Value: "1s", Default: "1s", Origin: "default"},
		"api_listen":     {Origin: "default"},
		"jwt.keys":       {Value: "https://me:xxxxx@keys.example", Origin: "--jwt-keys"},
	}
	var shown struct{ Settings []config.Value }
	got := clitest.RunWith(t, t.Context(), nil, env, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(got.Out), &shown); err != nil || len(shown.Settings) != len(config.Settings()) {
		t.Fatalf("%v in %+v", err, got)
	}
	table := clitest.RunWith(t, t.Context(), nil, env, args...).Out
	for _, s := range shown.Settings {
		expected, known := want[s.Key]
		if expected.Key = s.Key; known && s != expected {
			t.Errorf("got %+v, want %+v", s, expected)
		}
		value := s.Value
		if value == "" {
			value = "-"
		}
		if row := s.Key + " " + value + " " + s.Origin + "\n"; !strings.Contains(regexp.MustCompile(` +`).ReplaceAllString(table, " "), row) {
			t.Errorf("no %q in\n%s", row, table)
		}
	}
	if got := clitest.Run(t, nil, "config", "show", "--log-level", "loud"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "--log-level: must be") {
		t.Errorf("got %+v", got)
	}
}

// TestInitConfig: the files that init writes belong together, and explain every key.
func TestInitConfig(t *testing.T) {
	for _, row := range []struct {
		args, members, data string // DIR is replaced by the directory
	}{
		{"", "node1=127.0.0.1:7080,127.0.0.1:7070", "DIR/data/node1"},
		{"--nodes 3 --data-dir /srv", "node1=127.0.0.1:7280,127.0.0.1:7270;node2=127.0.0.1:7281,127.0.0.1:7271;node3=127.0.0.1:7282,127.0.0.1:7272", "/srv/node1"},
		{"--port 9000", "node1=127.0.0.1:9010,127.0.0.1:9000", "DIR/data/node1"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		args := append([]string{"config", "init", dir, "--cluster-id", "shop", "--conductor-handlers", "handlers", "--conductor-value-keys", "keys"}, strings.Fields(row.args)...)
		got := clitest.Run(t, nil, args...)
		paths := strings.Fields(got.Out)
		members := strings.Split(row.members, ";")
		if got.Code != 0 || len(paths) != len(members) || strings.Count(got.Err, " --init\n") != len(paths) {
			t.Fatalf("%s: %+v", row.args, got)
		}
		for i, path := range paths {
			c, err := config.Load(path, nil, nil)
			if err != nil || membersText(c.Cluster.Members) != row.members || !strings.HasPrefix(members[i], c.Node+"=") {
				t.Errorf("%s: %v, %+v", row.args, err, c)
			}
			if want := strings.ReplaceAll(row.data, "DIR", dir); i == 0 && c.DataDir != want || !filepath.IsAbs(c.Conductor.Handlers[0]) || !filepath.IsAbs(c.Conductor.ValueKeys) || c.TLS.CA != "" || c.Cluster.ID != "shop" {
				t.Errorf("%s: data in %s, want %s; %+v", row.args, c.DataDir, want, c)
			}
		}
		text, _ := os.ReadFile(paths[0])
		for _, s := range config.Settings() {
			if _, key, _ := strings.Cut("."+s.Key, "."); s.Key != "cluster.members" && !strings.Contains(string(text), key[strings.LastIndex(key, ".")+1:]+" = ") {
				t.Errorf("%s is not in the file", s.Key)
			}
		}
		if again := clitest.Run(t, nil, args...); again.Code != cli.ExitUsage || !strings.Contains(again.Err, paths[0]+" exists, and nothing was written") {
			t.Errorf("again: %+v", again)
		}
	}
	for args, want := range map[string]string{
		"--nodes 2":             "--nodes must be 1, 3, 5 or 7",
		"--host a --tls-ca ca":  "each node has its own certificate; replace the files",
		"--node x":              "not allowed: init names",
		"--nodes 3 --host a":    "none of the others can be",
		"--log-level loud":      "flags: --log-level: must be",
		"--host a,a --insecure": "is also the address of cluster.members[0]",
	} {
		got := clitest.Run(t, nil, append([]string{"config", "init", t.TempDir()}, strings.Fields(args)...)...)
		if got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) || got.Out != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestInitConfigForMachines checks that each directory of init can be copied to its machine: its
// configuration, certificates and handlers fit each other and the node, wherever the copy is.
func TestInitConfigForMachines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	got := clitest.Run(t, nil, "config", "init", dir, "--cluster-id", "shop", "--host", "10.0.0.1,b.example.org", "--port", "9000")
	paths := []string{filepath.Join(dir, "node1", "conductord.toml"), filepath.Join(dir, "node2", "conductord.toml")}
	if got.Code != 0 || got.Out != strings.Join(paths, "\n")+"\n" || !strings.Contains(got.Err, "scp -r "+filepath.Join(dir, "node2")+" root@b.example.org:/etc/conductord\n") {
		t.Fatalf("%+v", got)
	}
	moved := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(filepath.Join(dir, "node2"), moved); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(moved, "conductord.toml")
	c, err := config.Load(file, nil, nil)
	if err != nil || membersText(c.Cluster.Members) != "node1=10.0.0.1:9010,10.0.0.1:9000;node2=b.example.org:9010,b.example.org:9000" ||
		c.DataDir != "/var/lib/conductord/node2" || !slices.Equal(c.Conductor.Handlers, []string{filepath.Join(moved, "handlers")}) {
		t.Errorf("%v, %+v", err, c)
	}
	if got := clitest.Run(t, nil, "config", "check", paths[0], file); got.Code != 0 || !strings.HasSuffix(got.Out, "node node2 of cluster shop (node1, node2): good\n") {
		t.Errorf("%+v", got)
	}
	store, err := credentials.Open(credentials.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}, func(error) {})
	if err != nil || store.Check("shop", "node2") != nil {
		t.Errorf("%v, %v", err, store.Check("shop", "node2"))
	}
	if got := clitest.Run(t, nil, "config", "init", dir, "--host", "a,b", "--cluster-id", "shop"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "exists, and nothing was written") {
		t.Errorf("%+v", got)
	}
	into := t.TempDir()
	if got := clitest.Run(t, nil, "config", "init", into, "--host", "node1,node2", "--cluster-id", "shop"); got.Code != 0 {
		t.Errorf("%+v", got)
	}
	// A configuration that the start would refuse is a fault.
	if err := os.Rename(filepath.Join(into, "node1", "node.pem"), filepath.Join(into, "node2", "node.pem")); err != nil {
		t.Fatal(err)
	}
	got = clitest.Run(t, nil, "config", "check", filepath.Join(into, "node1", "conductord.toml"), filepath.Join(into, "node2", "conductord.toml"))
	if got.Code != cli.ExitUsage || !strings.Contains(got.Err, "node1/conductord.toml: certificates: ") || !strings.Contains(got.Err, "node2/conductord.toml: certificates: ") || got.Out != "" {
		t.Errorf("%+v", got)
	}
}

func membersText(members []config.Member) string {
	var texts []string
	for _, m := range members {
		texts = append(texts, m.Name+"="+m.Raft+","+m.API)
	}
	return strings.Join(texts, ";")
}

// TestNoConfiguration: a command without its required configuration names the flag.
func TestNoConfiguration(t *testing.T) {
	for _, command := range []string{"doctor", "server"} {
		got := clitest.Run(t, nil, command)
		want := "conductord: \"conductord " + command + "\" requires the configuration of a node: pass the file with --config FILE; without the file:\n" +
			"conductord: node: must be set\n"
		if got.Code != cli.ExitUsage || !strings.HasPrefix(got.Err, want) {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
