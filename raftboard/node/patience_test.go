package node_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node"
)

// A leader waits for a peer that is down, and does not fail: raft would back
// off, and leave the peer alone for seconds after it has come back.
func TestLeaderWaitsForADeadPeer(t *testing.T) {
	for _, row := range []struct {
		name    string
		leading bool
	}{
		{"leading", true},
		{"no longer leading", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dials := make(chan struct{}, 100)
			life, end := context.WithCancel(t.Context())
			defer end()
			transport := node.NewPatientTransport(freeAddresses(t, 1)[0], func() { dials <- struct{}{} }, row.leading, life)
			defer func() { _ = transport.Close() }()
			ended := make(chan error, 1)
			go func() {
				var answer raft.AppendEntriesResponse
				ended <- transport.AppendEntries("dead.1", raft.ServerAddress(freeAddresses(t, 1)[0]), &raft.AppendEntriesRequest{Term: 7}, &answer)
			}()
			if row.leading {
				for range 3 {
					select {
					case <-dials:
					case err := <-ended:
						t.Fatalf("it gave up: %v", err)
					case <-time.After(patience):
						t.Fatal("it does not dial again")
					}
				}
				end()
			}
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a dead peer has answered")
				}
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
		})
	}
}

// TestHeartbeatsAreSpared: a heartbeat waits until its peer has been quiet, every
// other message goes at once, and one that nobody needs any more is not sent.
func TestHeartbeatsAreSpared(t *testing.T) {
	const enough, long = 20 * time.Millisecond, time.Hour
	heartbeat := raft.AppendEntriesRequest{Term: 7}
	commit := raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 3, PrevLogTerm: 7, LeaderCommitIndex: 3}
	for _, row := range []struct {
		name    string
		message raft.AppendEntriesRequest
		enough  time.Duration
		quiet   []time.Duration // of the peer, each time it is looked at; then the last
		leading bool
		closed  bool
		sent    bool
		looks   int
	}{
		{"to a peer that was never heard", heartbeat, enough, []time.Duration{math.MaxInt64}, true, false, true, 1},
		{"to a quiet peer", heartbeat, enough, []time.Duration{enough}, true, false, true, 1},
		{"to a peer that was just heard", heartbeat, enough, []time.Duration{0, enough}, true, false, true, 2},
		{"to a peer that is heard again and again", heartbeat, enough, []time.Duration{0, 0, enough / 2, enough}, true, false, true, 4},
		{"of a leader that no longer leads", heartbeat, enough, []time.Duration{0}, false, false, false, 1},
		{"of a node that is closed", heartbeat, long, []time.Duration{0}, true, true, false, 1},
		{"what is committed, to a peer that was just heard", commit, long, []time.Duration{0}, true, false, true, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			peer := node.NewPatientTransport(freeAddresses(t, 1)[0], func() {}, true, t.Context())
			defer func() { _ = peer.Close() }()
			received := make(chan struct{}, 1)
			peer.SetHeartbeatHandler(func(rpc raft.RPC) {
				received <- struct{}{}
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			})
			served := make(chan struct{})
			defer func() { <-served }()
			over := make(chan struct{})
			defer close(over)
			go func() {
				defer close(served)
				select {
				case rpc := <-peer.Consumer():
					received <- struct{}{}
					rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				case <-over:
				}
			}()
			life, end := context.WithCancel(t.Context())
			defer end()
			looks := 0
			if row.closed {
				end()
			}
			quiet := func() time.Duration {
				looks++
				return row.quiet[min(looks, len(row.quiet))-1]
			}
			transport := node.NewCalmTransport(freeAddresses(t, 1)[0], quiet, func() bool { return row.leading }, row.enough, life)
			defer func() { _ = transport.Close() }()
			var answer raft.AppendEntriesResponse
			if err := transport.AppendEntries("peer.1", peer.LocalAddr(), &row.message, &answer); err != nil {
				t.Fatal(err)
			}
			if sent := len(received) == 1; sent != row.sent || answer.Success != row.sent || looks != row.looks {
				t.Errorf("sent: %t, answered: %t, after %d looks; want %t and %d", sent, answer.Success, looks, row.sent, row.looks)
			}
		})
	}
}

// TestLeaderHearsItsPeers: a leader knows for how long each peer has been silent,
// which is what spares heartbeats to those that are not, and goes on leading.
func TestLeaderHearsItsPeers(t *testing.T) {
	c := newCluster(t, 3).startAll()
	leader := c.leader()
	const heartbeat = 300 * time.Millisecond // as newCluster has it
	peer := func(i int) raft.ServerAddress { return raft.ServerAddress(c.options[i].Members[i].Raft) }
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
	eventually(t, "it still hears the other one", func() bool { return node.Heard(c.nodes[leader], peer(others[1])) < heartbeat })
	if !c.nodes[leader].Leading() {
		t.Error("it does not lead any more")
	}
}
