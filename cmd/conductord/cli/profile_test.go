package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

// TestProfiles: values of profiles are used unless flags or environment set them.
func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var options raftboard.Options
	conductord := func(line string, env ...string) clitest.Said {
		options = raftboard.Options{}
		return clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.ConfigDir, p.Env = dir, env
			p.Dial = func(_ context.Context, given raftboard.Options) (cli.Cluster, error) {
				options = given
				return nil, jobs.ErrUnavailable
			}
		}, strings.Fields(line)...)
	}
	for _, row := range []struct {
		line    string
		env     string
		code    int
		said    string // part of the output
		servers string // the dialled servers
		token   string
	}{
		{line: "config profile list", said: "NAME  IN FORCE"},
		{line: "config profile list -o json", said: `"profiles": {}`},
		{line: "job list", code: 6, said: "cannot connect to 127.0.0.1:7070:", servers: "127.0.0.1:7070"},
		{line: "config profile save shop --server a:1,b:2 --token-file " + token, said: "saved profile shop"},
		{line: "config profile save test", env: "CONDUCTORD_SERVER=c:3", said: "saved profile test"},
		{line: "config profile save a\x01", code: 2, said: "profile is invalid"},
		{line: "config profile save test --server \xff", code: 1, said: "cannot write the profiles"},
		{line: "config profile save test --server " + strings.Repeat("x", 1<<20), code: cli.ExitLimit, said: "the limit is 1048576"},
		{line: "config profile use nobody", code: 2, said: `there is no profile "nobody"; the profiles are: shop, test`},
		{line: "job list", code: 6, said: "cannot connect to 127.0.0.1:7070:", servers: "127.0.0.1:7070"},
		{line: "job list --profile shop", code: 6, said: "cannot connect to a:1, b:2 (profile shop): ", servers: "a:1 b:2", token: "secret"},
		{line: "job list", env: "CONDUCTORD_PROFILE=test", code: 6, said: "(profile test)", servers: "c:3"},
		{line: "job list --profile shop", env: "CONDUCTORD_PROFILE=test", code: 6, said: "(profile shop)", servers: "a:1 b:2", token: "secret"},
		{line: "job list --profile nobody", code: 2, said: `there is no profile "nobody"`},
		{line: "config profile use shop", said: "used profile shop"},
		{line: "job list", code: 6, said: "(profile shop)", servers: "a:1 b:2", token: "secret"},
		{line: "job list", env: "CONDUCTORD_TOKEN=other", code: 6, said: "(profile shop)", servers: "a:1 b:2", token: "other"},
		{line: "job list", env: "CONDUCTORD_SERVER=d:4", code: 6, said: "cannot connect to d:4:", servers: "d:4"},
		{line: "job list --server e:5", code: 6, said: "cannot connect to e:5:", servers: "e:5"},
		{line: "job list --server e:5 --profile shop", code: 6, said: "cannot connect to e:5 (profile shop):", servers: "e:5", token: "secret"},
		{line: "config profile list", said: "shop  yes       a:1,b:2  -   -            " + token},
		{line: "config profile list -o json", said: `"current": "shop"`},
		{line: "config profile delete shop", said: "deleted profile shop"},
		{line: "config profile list", said: "test  -         c:3"},
		{line: "job list", code: 6, said: "cannot connect to 127.0.0.1:7070:", servers: "127.0.0.1:7070"},
	} {
		got := conductord(row.line, row.env)
		if got.Code != row.code || !strings.Contains(got.Out+got.Err, row.said) || strings.Join(options.Endpoints, " ") != row.servers || options.Token != row.token {
			t.Errorf("%s %.200s: %+v, dialled %q with token %q", row.env, row.line, got, options.Endpoints, options.Token)
		}
	}
	path := filepath.Join(dir, "conductord", "profiles.toml")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("files are left behind: %v", entries)
	}
	for text, want := range map[string]string{
		"profiles = [":                     "cannot read the profiles",
		"#" + strings.Repeat("x", 1<<20):   "the limit is 1048576",
		"current = 'gone'":                 `there is no profile "gone"; the profiles are: -`,
		"current = 'x'\n[profiles.x]\na=1": "line 3",
		"curent = 'x'":                     "the key \"curent\" is unknown",
		"[profiles.x]\nservers = 'a:1'":    "the key \"profiles.x.servers\" is unknown",
	} {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := conductord("job list"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, want) {
			t.Errorf("%.20q: %+v", text, got)
		}
	}
}

// TestStatusNamesProfile: cluster status names the profile in use.
func TestStatusNamesProfile(t *testing.T) {
	dir, cluster := t.TempDir(), clitest.Open(t)
	cluster.Statuses = []raftboard.NodeStatus{{Endpoint: "e", Status: raftboard.Status{Node: "n", Leader: "n", Ready: true}}}
	for _, row := range []struct{ line, err string }{
		{"config profile save shop --server a:1", ""},
		{"cluster status", ""},
		{"config profile use shop", ""},
		{"cluster status", "conductord: profile shop\n"},
		{"cluster status -o json", ""},
		{"cluster status --server b:2", ""},
	} {
		got := clitest.RunWith(t, t.Context(), cluster, func(p *cli.Program) { p.ConfigDir = dir }, strings.Fields(row.line)...)
		if got.Code != 0 || got.Err != row.err {
			t.Errorf("%s: %+v", row.line, got)
		}
	}
}

// FuzzProfiles: a readable file is written unchanged, and a refusal names a line or a key.
func FuzzProfiles(f *testing.F) {
	f.Add("current = 'shop'\n[profiles.shop]\nserver = 'a:1,b:2'\ntoken_file = '/t'\n", "a", "b:3")
	f.Add("[profiles.\"a b\"]\nca_file = \"\\u0001\\n\"\n[profiles.c]\n", "", "\xff")
	f.Add("profiles = {x = {server = 1}}", "x.y", "\u2028\"'")
	f.Add("[profiles]\nx = 'a'", "é", strings.Repeat("x", 1<<20))
	f.Fuzz(func(t *testing.T, text, name, server string) {
		saved, err := cli.ParseProfiles([]byte(text))
		if err != nil {
			if said := err.Error(); !strings.Contains(said, "line") && !strings.Contains(said, "key") && !strings.Contains(said, "limit") {
				t.Fatalf("%q is refused without a place: %s", text, said)
			}
			return
		}
		same := func(saved cli.Profiles) bool {
			text, err := saved.Text()
			if err != nil {
				return false
			}
			again, err := cli.ParseProfiles(text)
			if err != nil || !reflect.DeepEqual(again, saved) {
				t.Fatalf("%+v is read back as %+v, %v, from %q", saved, again, err, text)
			}
			return true
		}
		if !same(saved) {
			t.Fatalf("%q can be read and not be written", text)
		}
		saved.Profiles[name] = map[string]string{"server": server}
		if usual := logbook.MaxLimits.CheckName("profile", name) == nil && utf8.ValidString(server); !same(saved) && usual && len(server) < 1<<17 && len(text) < 1<<17 {
			t.Fatalf("profile %q with server %q is refused", name, server)
		}
	})
}
