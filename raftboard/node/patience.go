package node

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// dialPause is how long to wait before a peer that is down is dialled again.
const dialPause = 100 * time.Millisecond

// patientTransport waits for a peer that is down where raft would count a
// failure: raft backs off, in the end for ten seconds, so that a node which
// comes back would get no entries for as long, and with one of three away the
// next stop of another would hold up every write.
type patientTransport struct {
	*raft.NetworkTransport
	// leading tells whether this node still leads in the term.
	leading func(term uint64) bool
	// heard tells for how long a peer has answered nothing that raft has sent it.
	heard func(raft.ServerAddress) time.Duration
	// quiet is for how long that makes a heartbeat superfluous.
	quiet time.Duration
	life  context.Context // of this node
}

// quietShare of the leader's lease may pass without a word from a peer before
// the leader asks: two heartbeats may be late or lost, and it still leads.
const quietShare = 0.4

// AppendEntries replicates entries to a peer, also heartbeats. It waits while
// the peer cannot be dialled, until this node no longer leads or is closed.
//
// A heartbeat waits besides until the peer has been quiet for a while. raft
// sends one twenty times within a heartbeat timeout, beside the messages that
// tell what is committed, which are answered too and count as much on both
// ends: that was most of what an idle leader costs. One that is no longer the
// leader's when its time comes is not sent, since it would keep the peer from
// standing for election.
func (p *patientTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) && !p.awaitQuiet(target, args.Term) {
		return nil
	}
	pause := time.NewTimer(dialPause)
	defer pause.Stop()
	for {
		err := p.NetworkTransport.AppendEntries(id, target, args, resp)
		if !undialled(err) || !p.leading(args.Term) {
			return err
		}
		select {
		case <-pause.C:
			pause.Reset(dialPause)
		case <-p.life.Done():
			return err
		}
	}
}

// awaitQuiet returns when a peer has been quiet for long enough, or false if
// that does not matter any more.
func (p *patientTransport) awaitQuiet(target raft.ServerAddress, term uint64) bool {
	for {
		left := p.quiet - p.heard(target)
		if left <= 0 {
			return true
		}
		pause := time.NewTimer(left)
		select {
		case <-pause.C:
		case <-p.life.Done():
			pause.Stop()
			return false
		}
		if !p.leading(term) {
			return false
		}
	}
}

// isHeartbeat tells a heartbeat from other messages, as raft's transport does.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// undialled tells whether a call failed before there was a connection.
func undialled(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}
