package node_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/raftboard/node"
	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// A caller that is not a member gets a reason and nothing else.
func TestHandshakeRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3).startAll()
	ours := node.HelloOf(c.nodes[1])
	for _, row := range []struct {
		name   string
		change func(*transport.Hello)
		reason string // empty: accepted
	}{
		{"a member", func(*transport.Hello) {}, ""},
		{"another cluster", func(h *transport.Hello) { h.Cluster = "other" }, `belongs to cluster "other"`},
		{"another generation", func(h *transport.Hello) { h.Generation = 2 }, "generation 2"},
		{"a stranger", func(h *transport.Hello) { h.Name = "n9" }, "not a member"},
		{"a member without its past", func(h *transport.Hello) { h.Instance = uuid.New() }, "lost its disk"},
		{"a namesake", func(h *transport.Hello) { h.Name = "n1" }, `another node also has the name "n1"`},
		{"nobody", func(h *transport.Hello) { *h = transport.Hello{} }, "cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			conn := dialRaft(t, c.options[0].Members[0].Raft)
			from := ours
			row.change(&from)
			welcome, err := transport.Greet(conn, transport.PurposeProbe, from)
			name, refusal := welcome.Name, welcome.Refusal
			if err != nil || name != "n1" || (refusal == "") != (row.reason == "") || !strings.Contains(refusal, row.reason) {
				t.Errorf("%q says %q, %v; want %q", name, refusal, err, row.reason)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection stays open")
			}
		})
	}
}

func dialRaft(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// More silent connections than the limit are dropped, the oldest first. The node continues with
// active connections, and its end waits for no silent one.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1).startAll()
	first := dialRaft(t, c.options[0].Members[0].Raft)
	for range transport.MaxHandshaking {
		dialRaft(t, c.options[0].Members[0].Raft)
	}
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection keeps its place")
	}
	welcome, err := transport.Greet(dialRaft(t, c.options[0].Members[0].Raft), transport.PurposeProbe, node.HelloOf(c.nodes[0]))
	if err != nil || welcome.Refusal != "" {
		t.Errorf("a node of ours is not heard beside them: %+v, %v", welcome, err)
	}
	// A handshake has two seconds. A busy machine can need this time for one end of a node, but not
	// for each.
	took := time.Hour
	for tries := 0; tries < 3 && took > time.Second; tries++ {
		if tries > 0 {
			c.startAll()
		}
		dialRaft(t, c.options[0].Members[0].Raft)
		began := time.Now()
		c.stop(0)
		took = time.Since(began)
	}
	if took > time.Second {
		t.Errorf("the end waited %v for a connection that said nothing", took)
	}
}

// TestLeaderHearsItsPeers: a leader knows how long each peer has been silent. It sends no heartbeat
// to peers that were heard recently, and keeps the leadership.
func TestLeaderHearsItsPeers(t *testing.T) {
	c := newCluster(t, 3).startAll()
	leader := c.leader()
	const heartbeat = 300 * time.Millisecond // as in newCluster
	peer := func(i int) string { return c.options[i].Name }
	var others []int
	for i := range c.nodes {
		if i != leader {
			others = append(others, i)
			eventually(t, "the leader hears a peer", func() bool { return node.Heard(c.nodes[leader], peer(i)) < heartbeat })
		}
	}
	c.stop(others[0])
	eventually(t, "the leader hears nothing of a peer that has stopped", func() bool {
		return node.Heard(c.nodes[leader], peer(others[0])) > 2*heartbeat
	})
	eventually(t, "it still gets messages of the other one", func() bool { return node.Heard(c.nodes[leader], peer(others[1])) < heartbeat })
	if !c.nodes[leader].Leading() {
		t.Error("it is no longer the leader")
	}
}
