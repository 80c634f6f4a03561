package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
)

// All members have the same checksums while jobs are posted, even a member that started from a
// snapshot. No member is left out, even during a second parallel comparison.
func TestMembersAreCompared(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 3, 4)
	client := c.client(0, 1, 2)
	stop := c.load(client)
	for range 200 {
		posted(t, client)
	}
	if err := c.join(client, 3, membership.Join{}); err != nil {
		t.Fatal(err)
	}
	c.awaitMembers("n1 n2 n3 n4", "")
	var comparing sync.WaitGroup
	for range 2 {
		comparing.Go(func() {
			for range 5 {
				comparison, err := client.Verify(t.Context())
				if err != nil || len(comparison.Members) != 4 || slices.ContainsFunc(comparison.Members, func(m raftboard.MemberCheck) bool { return !m.Same }) {
					t.Errorf("compared: %+v: %v", comparison, err)
				}
			}
		})
	}
	comparing.Wait()
	stop()
}

// A node whose state differs stops, names the table, keeps its state, and does not start
// again; the others continue.
func TestMemberThatDiffersStops(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 3, 3)
	leader := c.leader()
	client := c.client(leader)
	posted(t, client)
	for round, wrong := range []int{c.others(leader)[0], leader} { // a follower, and the leader itself
		same(t, c.cluster)
		if err := node.Diverge(c.nodes[wrong], c.nodes[leader]); err != nil {
			t.Fatal(err)
		}
		comparison, err := client.Verify(t.Context())
		if round == 0 && err != nil {
			t.Fatal(err)
		}
		for _, member := range comparison.Members {
			if same := member.Name != c.options[wrong].Name; member.Same != same && member.Error == "" || !same && !strings.Contains(member.Differs, "table drain") {
				t.Errorf("compared: %+v", member)
			}
		}
		if fault := c.fault(); !strings.Contains(fault.Error(), "differs from the majority, in") || !strings.Contains(fault.Error(), "table drain") {
			t.Errorf("it stops with %v", fault)
		}
		c.stop(wrong)
		evidence := filepath.Join(c.options[wrong].DataDir, "differs")
		for _, name := range []string{"state", "sums"} {
			if file, err := os.Stat(filepath.Join(evidence, name)); err != nil || file.Size() == 0 {
				t.Errorf("the evidence: %v", err)
			}
		}
		c.refused(c.options[wrong], "differed from the majority")
		if round > 0 {
			return
		}
		if err := os.RemoveAll(c.options[wrong].DataDir); err != nil {
			t.Fatal(err)
		}
		if err := c.join(client, wrong, membership.Join{Replaces: c.options[wrong].Name}); err != nil {
			t.Fatal(err)
		}
		c.awaitMembers("n1 n2 n3", "")
	}
}
