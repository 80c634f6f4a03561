package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conductord/conductord/config"
)

// good is a minimal valid file of 16 lines.
const good = `node = "n1"
data_dir = "/var/lib/conductord"

[cluster]
id = "shop"

[[cluster.members]]
name = "n1"
raft = "127.0.0.1:7071"
api = "127.0.0.1:7070"

[[cluster.members]]
name = "n2"
raft = "127.0.0.2:7071"
api = "127.0.0.2:7070"

`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node1.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func goodConfig() config.Config {
	c := config.Default()
	c.Node, c.DataDir = "n1", "/var/lib/conductord"
	c.Cluster.ID, c.Cluster.Members = "shop", []config.Member{
		{Name: "n1", Raft: "127.0.0.1:7071", API: "127.0.0.1:7070"},
		{Name: "n2", Raft: "127.0.0.2:7071", API: "127.0.0.2:7070"},
	}
	return c
}

func TestGoodFiles(t *testing.T) {
	for _, row := range []struct {
		name, text string
		change     func(*config.Config)
	}{
		{"the least", good, func(*config.Config) {}},
		{"a duration", good + "[sessions]\nttl = \"6s\"", func(c *config.Config) { c.Sessions.TTL = 6 * time.Second }},
		{"a number", good + "[conductor]\nmax_jobs = 3", func(c *config.Config) { c.Conductor.MaxJobs = 3 }},
		{"another log store", "log_store = \"wal\"\n" + good, func(c *config.Config) { c.LogStore = "wal" }},
		{"a truth", good + "[log]\njson = true", func(c *config.Config) { c.Log.JSON = true }},
		{"a list", good + "[conductor]\nhandlers = [\n  '/a', # one\n  '/b']", func(c *config.Config) { c.Conductor.Handlers = []string{"/a", "/b"} }},
		{"an empty list", good + "[conductor]\nenabled = false\nboards = []", func(c *config.Config) {
			c.Conductor.Enabled, c.Conductor.Boards = false, []string{}
		}},
		{"listening elsewhere, in plain text", "raft_listen = \":9000\"\napi_listen = \"0.0.0.0:9001\"\ninsecure = true\n" + good, func(c *config.Config) {
			c.RaftListen, c.APIListen, c.Insecure = ":9000", "0.0.0.0:9001", true
		}},
		{"names for boards", good + "[secrets.boards]\n\"a/*\" = ['db', 'mail-*']\nb = 'key'\n[handlers]\nusers = {'*' = 'tenant'}", func(c *config.Config) {
			c.Secrets.Boards = config.PerBoard{"a/*": {"db", "mail-*"}, "b": {"key"}}
			c.Handlers.Users = config.PerBoard{"*": {"tenant"}}
		}},
		{"an IPv6 member", strings.ReplaceAll(good, "127.0.0.1:", "[::1]:"), func(c *config.Config) {
			c.Cluster.Members[0] = config.Member{Name: "n1", Raft: "[::1]:7071", API: "[::1]:7070"}
		}},
		{"no access control, in plain text", "access_control = false\n" + good, func(c *config.Config) { c.AccessControl = false }},
		{"TLS", strings.ReplaceAll(good, "127.0.0.1:", "10.0.0.1:") + "[tls]\nca = '/a'\ncert = '/b'\nkey = '/c'", func(c *config.Config) {
			c.Cluster.Members[0] = config.Member{Name: "n1", Raft: "10.0.0.1:7071", API: "10.0.0.1:7070"}
			c.TLS = config.TLS{CA: "/a", Cert: "/b", Key: "/c"}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := goodConfig()
			row.change(&want)
			got, err := config.Load(write(t, row.text), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       []string // one fault each, as "line: key: part of the message"
	}{
		{"unknown key", "colour = 1\n" + good, []string{"1: colour: there is no such key"}},
		{"misspelt key", "datadir = 1\n" + good, []string{`1: datadir: there is no such key; did you mean "data_dir"?`}},
		{"misspelt table", good + "[sesions]\nttl = 1", []string{`17: sesions: there is no such key; did you mean "sessions"?`}},
		{"unknown table", good + "[colours]\nred = 1", []string{"17: colours: there is no such key"}},
		{"unknown key in a table", good + "[raft]\nhartbeat = \"1s\"", []string{`18: raft.hartbeat: there is no such key; did you mean "raft.heartbeat"?`}},
		{"key in the wrong table", good + "[raft]\nttl = \"1s\"", []string{"18: raft.ttl: there is no such key; is it sessions.ttl?"}},
		{"unknown key of a member", good + "role = \"voter\"", []string{"17: cluster.members[1].role: unknown key: the keys of a member are"}},
		{"table that is a value", "raft = 3\n" + good, []string{"1: raft: must be a table: [raft]"}},
		{"number for a string", strings.Replace(good, `"n1"`, "1", 1), []string{`1: node: must be a string, not the number 1`}},
		{"string for a number", good + "[limits]\nsteps = \"many\"", []string{`18: limits.steps: must be a whole number, not the string "many"`}},
		{"fraction for a number", good + "[limits]\nsteps = 1.5", []string{`18: limits.steps: must be a whole number, not the number 1.5`}},
		{"number for a duration", good + "[sessions]\nttl = 4", []string{`18: sessions.ttl: must be a duration such as`}},
		{"no duration", good + "[sessions]\nttl = \"soon\"", []string{`18: sessions.ttl: must be a duration such as`}},
		{"string for a truth", good + "[log]\njson = \"yes\"", []string{`18: log.json: must be true or false`}},
		{"string for a list", good + "[conductor]\nboards = \"a\"", []string{`18: conductor.boards: must be a list of strings`}},
		{"list of numbers", good + "[conductor]\nboards = [1]", []string{`18: conductor.boards: must be a list of strings, but contains the number 1`}},
		{"names for no boards", good + "[secrets]\nboards = \"db\"", []string{`18: secrets.boards: must be a table such as {"a/*" = "NAME"}, not the string "db"`}},
		{"number for names", good + "[secrets.boards]\n\"a\" = 1", []string{`17: secrets.boards: "a" must be a string, not the number 1`}},
		{"no names", good + "[secrets.boards]\n\"a\" = []", []string{`17: secrets.boards: has 0 names for "a"; it must have 1 to 256`}},
		{"a * within boards", good + "[secrets.boards]\n\"a*b\" = \"db\"", []string{`17: secrets.boards: must be the name of a board, or a prefix of names with * at the end, not "a*b"`}},
		{"two users", good + "[handlers]\nuser = \"u\"\nusers = {\"a\" = [\"b\", \"c\"]}", []string{`19: handlers.users: has 2 names for "a"; it must have 1 to 1`}},
		{"users for some boards", good + "[handlers]\nusers = {\"a/*\" = \"b\"}", []string{"18: handlers.users: requires handlers.user: without it, the handlers of all other boards"}},
		{"members no tables", "node=\"n1\"\ndata_dir=\"/d\"\n[cluster]\nid=\"c\"\nmembers = \"n1\"", []string{`5: cluster.members: must be a list of tables`}},
		{"below the range", good + "[conductor]\nmax_jobs = 0", []string{"18: conductor.max_jobs: is 0; it must be 1 to 256"}},
		{"above the range", good + "[limits]\nname = 256", []string{"18: limits.name: is 256; it must be 32 to 255"}},
		{"duration above the range", good + "[sessions]\nttl = \"61m\"", []string{"18: sessions.ttl: is 1h1m; it must be 500ms to 1h"}},
		{"lease over heartbeat", good + "[raft]\nleader_lease = \"600ms\"", []string{"18: raft.leader_lease: is 600ms; the maximum is raft.heartbeat, 500ms"}},
		{"election under heartbeat", good + "[raft]\nelection = \"400ms\"", []string{"18: raft.election: is 400ms; the minimum is raft.heartbeat"}},
		{"too few trailing logs", good + "[raft]\ntrailing_logs = 32767", []string{"18: raft.trailing_logs: is 32767; the minimum is twice"}},
		{"session shorter than an election", good + "[sessions]\nttl = \"1999ms\"", []string{"18: sessions.ttl: is 1.999s; the minimum is twice"}},
		{"no time to hand over", good + "[sessions]\nttl = \"2s\"\ngrace = \"0s\"\ncool_down = \"99ms\"", []string{"19: sessions.grace: is too short"}},
		{"values too small to be encrypted", good + "[limits]\nvalue = 65_535\n[conductor]\nvalue_keys = \"/k\"", []string{"18: limits.value: is 65535; the minimum is 65536 with conductor.value_keys"}},
		{"values larger than commands", good + "[limits]\ncommand = 500_000", []string{"0: limits.value: is 262144; the maximum is half"}},
		{"log store", "log_store = \"WAL\"\n" + good, []string{`1: log_store: must be bolt or wal, not "WAL"`}},
		{"log level", good + "[log]\nlevel = \"loud\"", []string{`18: log.level: must be trace, debug`}},
		{"node is no member", strings.Replace(good, `"n1"`, `"n3"`, 1), []string{`1: node: "n3" is not in cluster.members`}},
		{"node's name", strings.ReplaceAll(good, "n1", "n 1"), []string{"1: node: must start with a letter", "8: cluster.members[0].name: must start with a letter"}},
		{"member's name twice", strings.Replace(good, `"n2"`, `"n1"`, 1), []string{`13: cluster.members[1].name: there is another member "n1"`}},
		{"member's address twice", strings.ReplaceAll(good, "127.0.0.2:7071", "127.0.0.1:7070"), []string{"14: cluster.members[1].raft: is also the address of cluster.members[0].api"}},
		{"member without a port", strings.ReplaceAll(good, "127.0.0.2:7071", "127.0.0.2"), []string{`14: cluster.members[1].raft: must be HOST:PORT, not "127.0.0.2"`}},
		{"member's port", strings.ReplaceAll(good, "127.0.0.2:7071", "127.0.0.2:70710"), []string{`14: cluster.members[1].raft: must have a port from 1 to 65535`}},
		{"member anywhere", strings.ReplaceAll(good, "127.0.0.2:7071", "0.0.0.0:7071"), []string{`14: cluster.members[1].raft: must be the host`}},
		{"member without API", strings.ReplaceAll(good, `api = "127.0.0.2:7070"`, ""), []string{`12: cluster.members[1].api: must be set`}},
		{"plain text that others hear", strings.ReplaceAll(good, "127.0.0.1:7070", "10.0.0.1:7070"), []string{
			"0: tls.cert: must be set, with tls.key and tls.ca: the API port listens on 10.0.0.1:7070, which other machines can reach"}},
		{"plain text on every address", "raft_listen = \":7071\"\n" + good, []string{"0: tls.cert: must be set, with tls.key and tls.ca: the raft port listens on :7071"}},
		{"a part of TLS", good + "[tls]\ncert = '/b'", []string{"0: tls.ca: must be set, because the other files", "0: tls.key: must be set, because the other files"}},
		{"a part of an issuer", good + "[jwt]\nkeys = 'keys.json'", []string{
			"18: jwt.keys: must be an absolute path or an https URL", "0: jwt.issuer: must be set", "0: jwt.audience: must be set"}},
		{"an issuer without TLS", good + "[jwt]\nissuer = 'i'\naudience = 'a'\nkeys = '/keys.json'", []string{"18: jwt.issuer: requires tls"}},
		{"access control without TLS", "access_control = true\n" + good, []string{
			"1: access_control: requires tls.ca, tls.cert and tls.key: with plain text, every caller can do everything; set the three files (see conductord cert), or remove access_control"}},
		{"secrets", good + "[secrets]\ndirectory = 'secrets'\ncommand = 'vault'\nenvironment = 'SECRET'", []string{
			`18: secrets.directory: must be an absolute path, not "secrets"`, `19: secrets.command: must be an absolute path, not "vault"`,
			`20: secrets.environment: must be 2 to 64 capital letters, digits and underscores, and end with an underscore, not "SECRET"`}},
		{"traces", good + "[traces]\nendpoint = 'collector:4318'\nheaders = 'headers'\none_in = 0", []string{
			`18: traces.endpoint: must be an http or https URL without user and query, not "collector:4318"`, `19: traces.headers: must be an absolute path, not "headers"`,
			`20: traces.one_in: is 0; it must be 1 to 1000000`}},
		{"one port for both", "api_listen = \"127.0.0.1:7071\"\n" + good, []string{"1: api_listen: is also the address of the raft port"}},
		{"a label twice", good + "[conductor]\nlabels = [\"a\", \"a\"]", []string{`18: conductor.labels: contains "a" twice`}},
		{"a board twice", good + "[conductor]\nboards = [\"a\", \"a\"]", []string{`18: conductor.boards: contains "a" twice`}},
		{"conductor without boards", good + "[conductor]\nboards = []", []string{`18: conductor.boards: must name a board`}},
		{"nothing", "", []string{"0: node: must be set", "0: cluster.id: must be set", "0: data_dir: must be set", "0: cluster.members: must list"}},
		{"syntax", good + "[raft\n", []string{"18: expected"}},
		{"a key twice", good + "[log]\njson = true\njson = true", []string{"19: log.json: is defined twice; delete one of the two lines"}},
		{"a section twice", good + "[traces]\none_in = 2\n[log]\njson = true\n[traces]\n", []string{"21: traces: is defined twice; merge the two sections [traces] into one"}},
		{"several at once", "colour = 1\nnode = 3\n[log]\nlevel = \"loud\"\njson = 1\n", []string{
			"1: colour: ", "2: node: must be a string", "4: log.level: ", "5: log.json: ", "0: cluster.id: ", "0: data_dir: ", "0: cluster.members: ",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := write(t, row.text)
			_, err := config.Load(path, nil, nil)
			got := faultLines(t, path, err)
			if len(got) != len(row.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(row.want), strings.Join(got, "\n"))
			}
			for _, want := range row.want {
				if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("no fault %q in:\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// faultLines returns each fault as "line: key: message", and checks that its text begins with the
// file.
func faultLines(t *testing.T, path string, err error) []string {
	t.Helper()
	var faults config.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want faults", err)
	}
	var texts []string
	for _, fault := range faults {
		rest, found := strings.CutPrefix(fault.Error(), path+":")
		if !found {
			t.Errorf("%q does not name the file", fault)
		}
		if fault.Line == 0 {
			rest = "0:" + rest
		}
		texts = append(texts, rest)
	}
	return texts
}

func TestPrecedence(t *testing.T) {
	file := write(t, good+"[log]\nlevel = \"warn\"\n")
	env := []string{"CONDUCTORD_LOG_LEVEL=error"}
	flags := map[string]string{"log-level": "debug"}
	for _, row := range []struct {
		name  string
		path  string
		env   []string
		flags map[string]string
		want  string
	}{
		{"default", write(t, good), nil, nil, "info"},
		{"file", file, nil, nil, "warn"},
		{"environment over file", file, env, nil, "error"},
		{"flag over environment", file, env, flags, "debug"},
		{"an empty variable says nothing", file, []string{"CONDUCTORD_LOG_LEVEL="}, nil, "warn"},
		{"other variables are not ours", file, []string{"CONDUCTORD_COLOUR=1", "LOG_LEVEL=error", "CONDUCTORD_SERVER=x"}, nil, "warn"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := config.Load(row.path, row.env, row.flags)
			if err != nil {
				t.Fatal(err)
			}
			if got.Log.Level != row.want {
				t.Errorf("got %q, want %q", got.Log.Level, row.want)
			}
		})
	}
}

// TestWithoutFile sets everything with flags, and then with variables.
func TestWithoutFile(t *testing.T) {
	want := goodConfig()
	want.Conductor.Handlers, want.Log.JSON, want.Sessions.TTL, want.Limits.Steps = []string{"/a", "/b"}, true, 5*time.Second, 7
	want.Secrets.Boards = config.PerBoard{"a/*": {"db", "mail-*"}, "b": {"key"}}
	given := map[string]string{
		"node": "n1", "data-dir": "/var/lib/conductord", "cluster-id": "shop",
		"cluster-members":    "n1=127.0.0.1:7071,127.0.0.1:7070; n2=127.0.0.2:7071,127.0.0.2:7070",
		"conductor-handlers": "/a, /b", "log-json": "true", "sessions-ttl": "5s", "limits-steps": "7",
		"secrets-boards": "a/*=db, mail-*; b=key",
	}
	var env []string
	for name, value := range given {
		env = append(env, "CONDUCTORD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
	}
	for name, load := range map[string]func() (config.Config, error){
		"flags":       func() (config.Config, error) { return config.Load("", nil, given) },
		"environment": func() (config.Config, error) { return config.Load("", env, nil) },
	} {
		got, err := load()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

func TestFaultsElsewhere(t *testing.T) {
	for _, row := range []struct {
		name  string
		env   []string
		flags map[string]string
		want  string
	}{
		{"a variable", []string{"CONDUCTORD_LIMITS_STEPS=x"}, nil, `environment: CONDUCTORD_LIMITS_STEPS: must be a whole number, not "x"`},
		{"a flag", nil, map[string]string{"sessions-ttl": "x"}, `flags: --sessions-ttl: must be a duration`},
		{"a flag out of range", nil, map[string]string{"limits-steps": "0"}, `flags: --limits-steps: is 0; it must be 1 to 10000`},
		{"an unknown flag", nil, map[string]string{"colour": "1"}, `flags: --colour: there is no such flag`},
		{"members", nil, map[string]string{"cluster-members": "n1"}, `flags: --cluster-members: must be NAME=RAFT_HOST:PORT,API_HOST:PORT, not "n1"`},
		{"one member", nil, map[string]string{"cluster-members": "n1=localhost:1,localhost:2;n2=h:0,h:3"}, `flags: --cluster-members: members[1].raft: must have a port`},
		{"access control without TLS", []string{"CONDUCTORD_ACCESS_CONTROL=true"}, nil, `environment: CONDUCTORD_ACCESS_CONTROL: requires tls.ca, tls.cert and tls.key`},
		{"no truth", []string{"CONDUCTORD_LOG_JSON=perhaps"}, nil, `environment: CONDUCTORD_LOG_JSON: must be true or false`},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := config.Load(write(t, good), row.env, row.flags)
			var faults config.Faults
			if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), row.want) {
				t.Errorf("got %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestUnreadableFiles(t *testing.T) {
	for name, path := range map[string]string{
		"missing":   filepath.Join(t.TempDir(), "none.toml"),
		"directory": t.TempDir(),
		"too large": write(t, good+"#"+strings.Repeat("x", 1<<20)),
	} {
		_, err := config.Load(path, nil, nil)
		var faults config.Faults
		if err == nil || errors.As(err, &faults) || !strings.HasPrefix(err.Error(), "cannot read the configuration: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestValidateInCode(t *testing.T) {
	c := goodConfig()
	if err := c.Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	c.Raft.LeaderLease = time.Second
	if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "raft.leader_lease: is 1s") {
		t.Errorf("got %v", err)
	}
}

func TestOwnAddresses(t *testing.T) {
	c := goodConfig()
	if got := []string{c.RaftAddress(), c.APIAddress(), c.ConductorName()}; !slices.Equal(got, []string{"127.0.0.1:7071", "127.0.0.1:7070", "n1"}) {
		t.Errorf("from the member: %v", got)
	}
	c.RaftListen, c.APIListen, c.Conductor.Name = ":1", ":2", "c"
	if got := []string{c.RaftAddress(), c.APIAddress(), c.ConductorName()}; !slices.Equal(got, []string{":1", ":2", "c"}) {
		t.Errorf("said apart: %v", got)
	}
}

// TestExample loads the example file, unchanged and with every commented-out default active: both
// configurations must be equal.
func TestExample(t *testing.T) {
	want := goodConfig()
	want.DataDir = "/var/lib/conductord/n1"
	want.TLS = config.TLS{CA: "/a", Cert: "/b", Key: "/c"} // an explicit access_control = true requires TLS
	example := config.WriteCommented(want)
	hidden := regexp.MustCompile(`(?m)^#([a-z_]+ = )`)
	full := hidden.ReplaceAllString(example, "$1")
	if full == example {
		t.Fatal("the example hides no default")
	}
	for name, text := range map[string]string{"as it is": example, "in full": full} {
		got, err := config.Load(write(t, text), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if len(got.Conductor.Handlers) == 0 {
			got.Conductor.Handlers = nil
		}
		if len(got.Conductor.Labels) == 0 {
			got.Conductor.Labels = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
	for _, setting := range config.Settings() {
		if !strings.Contains(example, setting.Doc) && setting.Key != "cluster.members" {
			t.Errorf("the example does not explain %s", setting.Key)
		}
	}
}

// TestSettings checks that every field of Config has a key, and that defaults
// are within their own ranges.
func TestSettings(t *testing.T) {
	settings := config.Settings()
	if want := countFields(reflect.TypeFor[config.Config]()); len(settings) != want {
		t.Errorf("%d settings for %d fields", len(settings), want)
	}
	env := []string{}
	for _, setting := range settings {
		if setting.Doc == "" || strings.HasSuffix(setting.Doc, ".") {
			t.Errorf("%s: the doc %q", setting.Key, setting.Doc)
		}
		env = append(env, setting.Env+"="+setting.Default)
	}
	want := goodConfig()
	want.TLS = config.TLS{CA: "/a", Cert: "/b", Key: "/c"} // an explicit access_control = true requires TLS
	got, err := config.Load(write(t, good+"[tls]\nca = '/a'\ncert = '/b'\nkey = '/c'"), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults as text say something else: %+v", got)
	}
}

func countFields(of reflect.Type) int {
	count := 0
	for i := range of.NumField() {
		if field := of.Field(i); field.Type.Kind() == reflect.Struct {
			count += countFields(field.Type)
		} else {
			count++
		}
	}
	return count
}

// TestLines puts faults after constructs that could confuse a line counter.
func TestLines(t *testing.T) {
	for _, row := range []struct {
		name, before string
	}{
		{"comments", "# [raft]\n#node = 1 \"\n"},
		{"windows line ends", "\r\n\r\n"},
		{"quoted keys", "\"data_dir\" = \"/x # no comment\"\n"},
		{"several lines of text", "data_dir = \"\"\"\n[raft]\nfoo = 1 \\\"\"\"\"\n"},
		{"several lines of raw text", "data_dir = '''\n'[raft]''\nfoo = 1'''\n"},
		{"quotes at the end", "data_dir = \"\"\"\nx\"\"\"\"\"\n"},
		{"brackets in strings", "data_dir = \"[[{\"\napi_listen = '}]' # ]\n"},
		{"escaped quotes", "data_dir = \"a\\\"[\\\\\"\n"},
		{"inline tables", "log = { level = \"info\", json = false }\n"},
		{"lists of lists", "data_dir = [\n [1,\n 2], # ]\n [\"]\"]\n]\n"},
		{"dotted keys", "raft . heartbeat = \"1s\"\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := row.before + "colour = 1\n"
			path := write(t, text)
			_, err := config.Load(path, nil, nil)
			want := strings.Count(row.before, "\n") + 1
			for _, line := range faultLines(t, path, err) {
				if strings.Contains(line, ": colour: ") {
					if got := regexp.MustCompile(`^\d+`).FindString(line); got != strconv.Itoa(want) {
						t.Errorf("got line %s, want %d", got, want)
					}
					return
				}
			}
			t.Errorf("the fault was not found: %v", err)
		})
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(good)
	f.Add("a = '''\n'''\n[b]\n[[c.d]]\n\"e\".f = {g = [1, \"]\"]}")
	f.Add("x = \"\\")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := config.Load(write(t, text), nil, nil) // must return for every text
		var faults config.Faults
		if errors.As(err, &faults) {
			lines := strings.Count(text, "\n") + 1
			for _, fault := range faults {
				if fault.Line < 0 || fault.Line > lines {
					t.Errorf("a fault on line %d of %d: %v", fault.Line, lines, fault)
				}
			}
		}
	})
}
