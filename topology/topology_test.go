package topology_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/topology"
)

const three = `
default = "main"

[clusters.main]
servers = ["10.0.0.1:7070", "10.0.0.2:7070"]
[clusters.a]
id = "prod-a"
servers = ["https://a.example.org:7070"]
[clusters.b]
srv = "_conductord._tcp.b.example.org"

[boards]
"mail" = "a"
"orders/*" = "b"
"orders/vip/*" = "a"
"events/*" = ["main", "a", "b"]
`

func parse(t *testing.T, text string) *topology.Topology {
	t.Helper()
	parsed, err := topology.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestRoutes(t *testing.T) {
	parsed := parse(t, three)
	for _, row := range []struct{ board, cluster, rule string }{
		{"mail", "a", "mail"}, {"mail2", "main", ""}, {"", "main", ""}, {"default", "main", ""},
		{"orders", "main", ""}, {"orders/", "b", "orders/*"}, {"orders/7", "b", "orders/*"}, {"orders/vip", "b", "orders/*"},
		{"orders/vip/7", "a", "orders/vip/*"}, {"events/0", "main", "events/*"}, {"events/1", "main", "events/*"},
	} {
		if got := parsed.Route(row.board); got != (topology.Route{Cluster: row.cluster, Rule: row.rule}) {
			t.Errorf("board %q: got %+v, want cluster %s by %q", row.board, got, row.cluster, row.rule)
		}
	}
	if name, found := parsed.NameOf("prod-a"); !found || name != "a" {
		t.Errorf("the cluster with the id prod-a: got %q", name)
	}
	if name, found := parsed.NameOf("b"); !found || name != "b" {
		t.Errorf("the cluster whose id is its name: got %q", name)
	}
}

// TestSpreadIsPinned checks the hash: clients of other versions and languages must find the
// same cluster.
func TestSpreadIsPinned(t *testing.T) {
	var got strings.Builder
	for i := range 24 {
		got.WriteString(topology.Spread([]string{"a", "b", "c"}, fmt.Sprintf("events/%d", i)))
	}
	if want := "cbbaabbabaaaacbcacccbbaa"; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

// TestAddedClusterMovesFewBoards checks that boards move to a cluster that is added, none between
// the others, and that the order of the list does not count.
func TestAddedClusterMovesFewBoards(t *testing.T) {
	const boards = 3_000
	moved := 0
	for i := range boards {
		board := fmt.Sprintf("events/%d", i)
		before, after := topology.Spread([]string{"a", "b", "c"}, board), topology.Spread([]string{"d", "c", "b", "a"}, board)
		switch {
		case before != after && after != "d":
			t.Fatalf("board %s moved from %s to %s", board, before, after)
		case before != after:
			moved++
		}
	}
	if moved < boards/5 || moved > boards*3/10 {
		t.Errorf("%d of %d boards moved, and about a quarter should", moved, boards)
	}
}

func TestDigestIsOfTheMeaning(t *testing.T) {
	same := "# a comment\n" + strings.ReplaceAll(three, `"mail" = "a"`, `"mail" = ["a"]`)
	if got, want := parse(t, same).Digest(), parse(t, three).Digest(); got != want {
		t.Errorf("a file that says the same has digest %s, and not %s", got, want)
	}
	other := strings.ReplaceAll(three, `"mail" = "a"`, `"mail" = "b"`)
	if parse(t, other).Digest() == parse(t, three).Digest() {
		t.Error("a file with another rule has the same digest")
	}
}

// TestBadTopologies has each fault with the words that name it.
func TestBadTopologies(t *testing.T) {
	many := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format+"\n", i, i)
		}
		return text.String()
	}
	const good = "default = \"a\"\n[clusters.a]\nservers = [\"a:1\"]\n[clusters.b]\nservers = [\"b:1\"]\n[boards]\n"
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"default is invalid: missing"}},
		{"no TOML", "default", []string{"not TOML of the expected form"}},
		{"a rule twice", good + "x = \"a\"\nx = \"b\"\n", []string{"x"}},
		{"an unknown default", "default = \"z\"\n", []string{`default is invalid: there is no cluster "z"`}},
		{"unknown keys", good + "[cluster]\nx = 1\n", []string{"cluster.x is invalid: unknown"}},
		{"no servers", "default = \"a\"\n[clusters.a]\n", []string{"clusters.a is invalid: has no servers"}},
		{"servers and srv", "default = \"a\"\n[clusters.a]\nservers = [\"a:1\"]\nsrv = \"x\"\n", []string{"both servers and srv"}},
		{"bad addresses", "default = \"a\"\n[clusters.a]\nservers = [\"a\", \"b:0\", \":1\"]\n", []string{`"a" is not HOST:PORT`, `"b:0" is not`, `":1" is not`}},
		{"a bad srv", "default = \"a\"\n[clusters.a]\nsrv = \"x:7\"\n", []string{"clusters.a.srv"}},
		{"a server of two", "default = \"a\"\n[clusters.a]\nservers = [\"a:1\"]\n[clusters.b]\nservers = [\"a:1\"]\n", []string{"a:1 also belongs to clusters.a"}},
		{"an id of two", "default = \"a\"\n[clusters.a]\nservers = [\"a:1\"]\n[clusters.b]\nid = \"a\"\nservers = [\"b:1\"]\n", []string{"id a also belongs to clusters.a"}},
		{"a long name", "default = \"a\"\n[clusters.a]\nservers = [\"a:1\"]\n[clusters." + strings.Repeat("x", 256) + "]\nservers = [\"b:1\"]\n", []string{"256"}},
		{"an unknown cluster", good + "\"x\" = \"z\"\n\"y/*\" = [\"a\", \"q\"]\n", []string{`no cluster "z"`, `no cluster "q"`}},
		{"a cluster twice", good + "\"y/*\" = [\"a\", \"a\"]\n", []string{`names cluster "a" twice`}},
		{"no cluster", good + "\"y/*\" = []\n", []string{"has no cluster"}},
		{"a spread name", good + "\"y\" = [\"a\", \"b\"]\n", []string{"only a prefix can have several"}},
		{"stars", good + "\"*\" = \"a\"\n\"a*b\" = \"a\"\n", []string{"use the key default", "only at the end"}},
		{"no name", good + "\"x\" = 7\n", []string{"neither the name of a cluster nor a list"}},
		{"many rules", good + many(topology.MaxRules+1, "x%d = \"a\" # %d"), []string{"boards", "4096", "4097"}},
		{"many clusters", "default = \"c0\"\n" + many(topology.MaxClusters+1, "clusters.c%d.servers = [\"c:%d1\"]"), []string{"clusters", "64", "65"}},
		{"many servers", "default = \"a\"\n[clusters.a]\nservers = [" + many(topology.MaxServers+1, "\"s%d:%d1\",") + "]\n", []string{"clusters.a.servers", "64", "65"}},
		{"many bytes", strings.Repeat("#", topology.MaxBytes+1), []string{"262144", "262145"}},
	} {
		_, err := topology.Parse([]byte(row.text))
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", row.name, err, want)
			}
		}
		if err != nil && row.name != "no TOML" && row.name != "a rule twice" && !errors.Is(err, jobs.ErrInvalid) && !errors.Is(err, logbook.ErrLimit) {
			t.Errorf("%s: %v is no kind of error that a caller can tell", row.name, err)
		}
	}
}
