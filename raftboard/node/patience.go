package node

import (
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
	closed  <-chan struct{}
}

// AppendEntries replicates entries to a peer, also heartbeats. It waits while
// the peer cannot be dialled, until this node no longer leads or is closed.
func (p *patientTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
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
		case <-p.closed:
			return err
		}
	}
}

// undialled tells whether a call failed before there was a connection.
func undialled(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}
