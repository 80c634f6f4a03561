package transport_test

import (
	"context"
	"math"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/conductord/conductord/raftboard/node/raftlog/transport"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// A leader waits for a peer that is down, and does not fail. After a failure, raft would back off,
// and ignore the peer for seconds after its return.
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
			tested := transport.NewWaiting(freeAddress(t), func() { dials <- struct{}{} }, row.leading, life)
			defer func() { _ = tested.Close() }()
			ended := make(chan error, 1)
			go func() {
				var answer raft.AppendEntriesResponse
				ended <- tested.AppendEntries("dead.1", raft.ServerAddress(freeAddress(t)), &raft.AppendEntriesRequest{Term: 7}, &answer)
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

// TestHeartbeatsAreSpared: a heartbeat waits until its peer has been quiet. Every other message is
// sent at once, and a message that is no longer needed is not sent.
func TestHeartbeatsAreSpared(t *testing.T) {
	const enough, long = 20 * time.Millisecond, time.Hour
	heartbeat := raft.AppendEntriesRequest{Term: 7}
	commit := raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 3, PrevLogTerm: 7, LeaderCommitIndex: 3}
	for _, row := range []struct {
		name    string
		message raft.AppendEntriesRequest
		enough  time.Duration
		quiet   []time.Duration // quiet time of the peer at each look; the last value repeats
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
			peer := transport.NewWaiting(freeAddress(t), func() {}, true, t.Context())
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
			tested := transport.NewSparing(freeAddress(t), quiet, func() bool { return row.leading }, row.enough, life)
			defer func() { _ = tested.Close() }()
			var answer raft.AppendEntriesResponse
			if err := tested.AppendEntries("peer.1", peer.LocalAddr(), &row.message, &answer); err != nil {
				t.Fatal(err)
			}
			if sent := len(received) == 1; sent != row.sent || answer.Success != row.sent || looks != row.looks {
				t.Errorf("sent: %t, answered: %t, after %d looks; want %t and %d", sent, answer.Success, looks, row.sent, row.looks)
			}
		})
	}
}
