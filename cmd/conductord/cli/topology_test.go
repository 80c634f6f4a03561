package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/cmd/conductord/cli/clitest"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/topology"
)

const topologyText = `default = "main"
[clusters.main]
servers = ["m:1"]
[clusters.a]
id = "prod-a"
servers = ["a:1", "a:2"]
[boards]
"mail" = "a"
"orders/*" = ["main", "a"]
`

// writeTopology writes the file above, and returns its path and digest.
func writeTopology(t *testing.T) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "topology.toml")
	if err := os.WriteFile(path, []byte(topologyText), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := topology.Parse([]byte(topologyText))
	if err != nil {
		t.Fatal(err)
	}
	return path, read.Digest()
}

func TestTopologyIsShown(t *testing.T) {
	path, digest := writeTopology(t)
	for _, row := range []struct {
		args string
		code int
		want string // the whole output, in single spaces
	}{
		{"topology show", 0, "digest " + digest + " CLUSTER ID SERVERS a prod-a a:1,a:2 main main m:1 BOARDS CLUSTERS mail a orders/* main,a all others main"},
		{"topology route mail default orders/1", 0, "BOARD CLUSTER RULE SERVERS mail a mail a:1,a:2 default main default m:1 orders/1 main orders/* m:1"},
		{"topology route mail -o json", 0, `{ "routes": [ { "board": "mail", "cluster": "a", "rule": "mail", "servers": [ "a:1", "a:2" ] } ] }`},
		{"topology route", cli.ExitUsage, "conductord: BOARD is missing conductord: usage: conductord topology route BOARD… [flags]; `conductord topology route --help` shows details"},
	} {
		got := clitest.Run(t, nil, append(strings.Fields(row.args), "--topology", path)...)
		if said := strings.Join(strings.Fields(got.Out+got.Err), " "); got.Code != row.code || said != row.want {
			t.Errorf("%s: code %d\n got %s\nwant %s", row.args, got.Code, said, row.want)
		}
	}
	if got := clitest.Run(t, nil, "topology", "show", "-o", "json", "--topology", path); got.Code != 0 || !strings.Contains(got.Out, `"digest": "`+digest+`"`) || !strings.Contains(got.Out, `"default": "main"`) {
		t.Errorf("as JSON: %+v", got)
	}
	if got := clitest.Run(t, nil, "topology", "show"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "pass its file with --topology") {
		t.Errorf("without a file: %+v", got)
	}
	if got := clitest.Run(t, nil, "topology", "show", "--topology", "examples.txt"); got.Code != cli.ExitUsage || !strings.Contains(got.Err, "cannot use the topology in examples.txt") {
		t.Errorf("another file: %+v", got)
	}
}

// TestRoutesNeedNoDNS: topology route shows the clusters of all boards, also of a cluster without known servers.
func TestRoutesNeedNoDNS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topology.toml")
	text := strings.Replace(topologyText, `servers = ["a:1", "a:2"]`, `srv = "_conductord._tcp.none.invalid"`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"topology route mail default":         "BOARD CLUSTER RULE SERVERS mail a mail srv _conductord._tcp.none.invalid default main default m:1",
		"topology route mail default -o json": `"cluster": "a", "rule": "mail", "servers": [] }, { "board": "default", "cluster": "main",`,
	} {
		got := clitest.Run(t, nil, append(strings.Fields(args), "--topology", path)...)
		if said := strings.Join(strings.Fields(got.Out), " "); got.Code != cli.ExitUnavailable || !strings.Contains(said, want) ||
			!strings.Contains(got.Err, "_conductord._tcp.none.invalid") || !strings.Contains(got.Err, "resolver") || strings.Contains(got.Err, "conductord dev") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestCommandsGoToTheClusterOfTheirBoard checks which servers a command calls under a topology.
func TestCommandsGoToTheClusterOfTheirBoard(t *testing.T) {
	path, _ := writeTopology(t)
	handlers := t.TempDir()
	if err := os.WriteFile(filepath.Join(handlers, "resize"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args, env string
		want      string // the called servers; empty: the command line is refused
		says      string
	}{
		{"board show mail", "", "a:1 a:2", `cannot connect to a:1, a:2: cluster "a" of the topology: `},
		{"board show other", "", "m:1", ""},
		{"job list --board mail", "", "a:1 a:2", ""},
		{"job post --kind k --board mail", "", "a:1 a:2", ""},
		{"job post --kind k", "", "m:1", ""}, // the default board
		{"job post --kind k --board mail", "CONDUCTORD_SERVER=z:1", "a:1 a:2", ""},
		{"job post --kind k --board mail --server y:1", "", "y:1", ""},
		{"events --board mail,default", "", "", `board "mail" is in cluster "a", and board "default" in cluster "main"`},
		{"events --board other,default", "", "m:1", ""},
		{"worker --handlers " + handlers + " --boards mail", "", "a:1 a:2", ""},
		{"worker --handlers " + handlers + " --boards mail,default", "", "", "use two commands"},
		{"worker --handlers " + handlers, "", "", "has no board or id"},
		{"conductor run --handlers " + handlers + " --boards mail", "", "a:1 a:2", ""},
		{"conductor run --handlers " + handlers, "", "", "has no board or id"},
		{"job list", "", "", "has no board or id"},
		{"session list", "CONDUCTORD_SERVER=z:1", "", "`conductord topology show`"},
		{"session list --server y:1", "", "y:1", ""},
		{"job move 01890000-0000-7000-8000-000000000001 mail", "", "a:1 a:2", ""},
	} {
		var called []string
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.Env = []string{"CONDUCTORD_TOPOLOGY=" + path, row.env}
			p.Dial = func(_ context.Context, options raftboard.Options) (cli.Cluster, error) {
				called = options.Endpoints
				return nil, jobs.ErrUnavailable
			}
		}, strings.Fields(row.args)...)
		code := cli.ExitUnavailable
		if row.want == "" {
			code = cli.ExitUsage
		}
		if strings.Join(called, " ") != row.want || got.Code != code || !strings.Contains(got.Err, row.says) {
			t.Errorf("%s: called %v, %+v", row.args, called, got)
		}
	}
}

// forwarder is a cluster that forwards postings to another one, which does not answer.
type forwarder struct{ cli.Cluster }

func (forwarder) Post(_ context.Context, postings ...jobs.Posting) ([]jobs.Posted, error) {
	posted := make([]jobs.Posted, len(postings))
	for i := range posted {
		posted[i].Err = fmt.Errorf("cluster \"b\": %w", jobs.ErrUnavailable)
	}
	return posted, nil
}

// TestHintNamesTheOtherCluster: the message does not blame the node that has answered.
func TestHintNamesTheOtherCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(`{"kind": "k"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--kind", "k"}, {"--from", path}} {
		got := clitest.Run(t, forwarder{clitest.Open(t)}, append([]string{"job", "post"}, args...)...)
		if got.Code != cli.ExitUnavailable || !strings.Contains(got.Err, "`conductord topology check` checks the nodes") || strings.Contains(got.Err, "is a server running") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestCommandsGoToTheClusterOfTheirID: a command with a whole or short id goes to the cluster that
// has the id. Rows also check the messages if no cluster or several have it, or if one does not
// answer.
func TestCommandsGoToTheClusterOfTheirID(t *testing.T) {
	path, _ := writeTopology(t)
	clusters := map[string]*clitest.Cluster{"m:1": clitest.Open(t), "a:1": clitest.Open(t)}
	const inMain, inA, silent = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002", "0222"
	for endpoint, ids := range map[string][]string{"m:1": {inMain}, "a:1": {inA, "02220000-0000-7000-8000-000000000001"}} {
		for _, id := range ids {
			if got := clitest.Run(t, clusters[endpoint], "job", "post", "--kind", "k", "--id", id); got.Code != 0 {
				t.Fatalf("%+v", got)
			}
		}
	}
	for _, row := range []struct {
		args string
		down string // the cluster that does not answer
		code int
		says string
	}{
		{"job get " + inMain, "", 0, inMain},
		{"job get " + inA, "", 0, inA},
		{"job cancel " + inA, "m:1", 0, inA},
		{"job get " + silent, "", 0, "02220000"},
		{"job get " + silent, "m:1", cli.ExitUnavailable, "cannot find 0222 in the other clusters of the topology: cluster \"main\": "},
		{"claim list --job " + inA, "", 0, ""},
		{"job get 0189", "", cli.ExitUsage, "ids in the clusters a, main start with 0189"},
		{"job get 0333", "", cli.ExitNotFound, "no cluster of the topology has an id that starts with 0333"},
		{"job get " + inA, "a:1", cli.ExitUnavailable, `cluster "a": `},
	} {
		got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
			p.Env = []string{"CONDUCTORD_TOPOLOGY=" + path}
			p.Dial = func(_ context.Context, options raftboard.Options) (cli.Cluster, error) {
				if options.Endpoints[0] == row.down {
					return nil, jobs.ErrUnavailable
				}
				return clusters[options.Endpoints[0]], nil
			}
		}, strings.Fields(row.args)...)
		if got.Code != row.code || !strings.Contains(got.Out+got.Err, row.says) {
			t.Errorf("%s, without %q: %+v", row.args, row.down, got)
		}
	}
}

// TestTopologyCheck checks that differences from the file are reported for each cluster.
func TestTopologyCheck(t *testing.T) {
	path, digest := writeTopology(t)
	node := func(endpoint, cluster, digest string) raftboard.NodeStatus {
		return raftboard.NodeStatus{Endpoint: endpoint, Status: raftboard.Status{Node: endpoint, Cluster: cluster, TopologyDigest: digest}}
	}
	main := node("m:1", "main", digest)
	silent := raftboard.NodeStatus{Endpoint: "a:2", Err: jobs.ErrUnavailable}
	for _, row := range []struct {
		name    string
		a, main []raftboard.NodeStatus // nil: no node answers
		code    int
		want    []string // parts of the output, with single spaces
	}{
		{"all the same", []raftboard.NodeStatus{node("a:1", "prod-a", digest), node("a:2", "prod-a", digest)}, []raftboard.NodeStatus{main}, 0,
			[]string{"a same 2 of 2 " + digest, "main same 1 of 1 " + digest}},
		{"another file", []raftboard.NodeStatus{node("a:1", "prod-a", digest), node("a:2", "prod-a", "0123")}, []raftboard.NodeStatus{main}, cli.ExitFailed,
			[]string{"a differs 2 of 2 " + digest + ",0123", "cluster a: a:2 uses another topology: digest 0123", "1 of 2 clusters do not use this topology"}},
		{"no file", []raftboard.NodeStatus{node("a:1", "prod-a", digest)}, []raftboard.NodeStatus{node("m:1", "main", "")}, cli.ExitFailed,
			[]string{"main differs 1 of 1 -", "m:1 uses no topology: set topology.file"}},
		{"a node of another cluster", []raftboard.NodeStatus{node("a:1", "main", digest)}, []raftboard.NodeStatus{main}, cli.ExitFailed,
			[]string{`a:1 is a node of the cluster with the id "main", not "prod-a"`}},
		{"a silent node", []raftboard.NodeStatus{node("a:1", "prod-a", digest), silent}, []raftboard.NodeStatus{main}, cli.ExitFailed,
			[]string{"a unreachable 1 of 2", "cluster a: a:2 does not answer"}},
		{"a silent cluster", nil, []raftboard.NodeStatus{main}, cli.ExitFailed, []string{"a unreachable 0 of 2 -", "main same 1 of 1"}},
	} {
		for _, output := range []string{"table", "json"} {
			got := clitest.RunWith(t, t.Context(), nil, func(p *cli.Program) {
				p.Dial = func(_ context.Context, options raftboard.Options) (cli.Cluster, error) {
					nodes := row.a
					if options.Endpoints[0] == "m:1" {
						nodes = row.main
					}
					if nodes == nil {
						return nil, jobs.ErrUnavailable
					}
					return &clitest.Cluster{Statuses: nodes}, nil
				}
			}, "topology", "check", "--topology", path, "-o", output)
			said := strings.Join(strings.Fields(got.Out+got.Err), " ")
			if got.Code != row.code {
				t.Errorf("%s: code %d: %s", row.name, got.Code, said)
			}
			for _, want := range row.want {
				if output == "table" && !strings.Contains(said, want) {
					t.Errorf("%s: no %q in %s", row.name, want, said)
				}
			}
			if output == "json" && !strings.HasPrefix(said, `{ "clusters": [ { "cluster": "a",`) {
				t.Errorf("%s: %s", row.name, said)
			}
		}
	}
}
