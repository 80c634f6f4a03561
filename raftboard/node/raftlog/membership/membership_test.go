package membership_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/conductord/conductord/raftboard/node/raftlog/membership"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A starting node does not know yet which members joined after the first election. It admits them,
// because a refusal would stop them. It refuses a known name with another disk.
func TestNodeThatStartsAdmitsWhomItHasMet(t *testing.T) {
	joined := transport.Hello{Name: "n3", Incarnation: "0123abcd", Instance: uuid.New()}
	unknown, wiped := joined, joined
	unknown.Incarnation, wiped.Instance = "4567cdef", uuid.New()
	if err := membership.AdmitAtStart(joined, joined); err != nil {
		t.Errorf("a known node: %v", err)
	}
	if err := membership.AdmitAtStart(joined, unknown); err != nil {
		t.Errorf("an unknown node: %v", err)
	}
	if err := membership.AdmitAtStart(joined, wiped); err == nil || !strings.Contains(err.Error(), "lost its disk") {
		t.Errorf("one with another disk: %v", err)
	}
}

// TestWarningsAboutTheFile: a node ignores the other members in an outdated file, but listens at its
// own addresses there.
func TestWarningsAboutTheFile(t *testing.T) {
	cluster := []transport.Member{{Name: "n1", Raft: "h1:1", API: "h1:2"}, {Name: "n2", Raft: "h2:1", API: "h2:2"}}
	moved := transport.Member{Name: "n1", Raft: "h1:8", API: "h1:9"}
	other := `[WARN]  outdated cluster.members: only this node's addresses are used: difference="`
	own := `[WARN]  the cluster does not know this node's addresses: raft=h1:8 api=h1:9 known_raft=h1:1 known_api=h1:2 ` +
		`advice="restore the addresses in cluster.members, or run conductord cluster move if the node has moved"` + "\n"
	for _, row := range []struct {
		name string
		file []transport.Member
		want string
	}{
		{"equal", cluster, ""},
		{"without another member", cluster[:1], other + "it lacks n2\"\n"},
		{"with other addresses of the node", []transport.Member{moved, cluster[1]}, other + "n1 is at h1:1 and h1:2\"\n" + own},
	} {
		if got := membership.WarningsAboutFile(cluster, row.file); got != row.want {
			t.Errorf("%s: got %s\nwant %s", row.name, got, row.want)
		}
	}
}
