package node_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/raftboard/node"
)

var rewrite = flag.Bool("rewrite", false, "write the table of calls in docs/protocol.md anew")

// TestCallsAreDocumented compares the table of calls in docs/protocol.md with the table that the
// node serves.
func TestCallsAreDocumented(t *testing.T) {
	const path, begin, end = "../../docs/protocol.md", "<!-- calls -->\n", "<!-- end of calls -->\n"
	var table strings.Builder
	table.WriteString("| Call | Permission |\n|---|---|\n")
	calls := node.Calls()
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(&table, "| `%s` | %s |\n", name, calls[name])
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), begin)
	written, after, closed := strings.Cut(rest, end)
	switch {
	case !opened || !closed:
		t.Fatalf("%s has no place for the table of calls", path)
	case written == table.String():
	case *rewrite:
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of calls in %s is out of date; run this test with -rewrite. It should be\n%s", path, table.String())
	}
}
