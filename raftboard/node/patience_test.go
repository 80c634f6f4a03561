package node_test

import (
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
			dials, closed := make(chan struct{}, 100), make(chan struct{})
			transport := node.NewPatientTransport(freeAddresses(t, 1)[0], func() { dials <- struct{}{} }, row.leading, closed)
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
				close(closed)
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
