package transport

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// raftTimeout limits a call of raft's.
	raftTimeout = 10 * time.Second
	// maxPooled limits the idle connections to a peer.
	maxPooled = 3
	// dialPause is the time between two attempts to dial a peer that is down.
	dialPause = 100 * time.Millisecond
	// quietShare is the share of the leader's lease that may pass without a message from a
	// peer before the leader sends a heartbeat. Two heartbeats may be late or lost, and the
	// leader still leads.
	quietShare = 0.4
)

// Transport waits for a peer that is down, where raft would count a failure. raft backs off,
// finally for ten seconds, and a returning node would get no entries in that time. In a cluster
// of three, the next stop of another node would then block every write. Transport implements
// raft.Transport.
type Transport struct {
	*raft.NetworkTransport
	self    raft.ServerAddress                     // of this node
	leading func(term uint64) bool                 // reports whether this node still leads in the term
	listed  func(raft.ServerAddress) bool          // reports whether a member has the address
	heard   func(raft.ServerAddress) time.Duration // time since a peer last answered a raft message
	quiet   time.Duration                          // a peer that was heard within this time needs no heartbeat
	life    context.Context                        // of this node
}

// New returns raft's transport over a port. self is this node's own address. leading reports
// whether this node leads in a term, and listed whether a member has an address; both may be
// called concurrently. lease is the leader's.
func New(port *Port, self raft.ServerAddress, logger hclog.Logger, leading func(term uint64) bool, listed func(raft.ServerAddress) bool, lease time.Duration) *Transport {
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: port, MaxPool: maxPooled, Timeout: raftTimeout, Logger: logger,
		}),
		self: self, leading: leading, listed: listed, heard: port.Quiet, life: port.life, quiet: time.Duration(quietShare * float64(lease)),
	}
}

// LocalAddr is raft's address of this node for other nodes.
func (p *Transport) LocalAddr() raft.ServerAddress { return p.self }

// AppendEntries replicates entries to a peer, and sends heartbeats. While the peer cannot be
// dialled, AppendEntries waits. It stops waiting when this node no longer leads or is closed, or
// when the peer is removed or has another address.
//
// A heartbeat also waits until the peer has been quiet for a while. raft sends twenty heartbeats
// within a heartbeat timeout, in addition to the messages with the commit index. Those messages are
// also answered, and count as heartbeats on both ends, so heartbeats were most of an idle leader's
// cost. If this node no longer leads after the wait, it does not send the heartbeat, which would
// delay the peer's election.
func (p *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if isHeartbeat(args) && !p.awaitQuiet(target, args.Term) {
		return nil
	}
	pause := time.NewTimer(dialPause)
	defer pause.Stop()
	for {
		err := p.NetworkTransport.AppendEntries(id, target, args, resp)
		if !Undialled(err) || !p.leading(args.Term) || !p.listed(target) {
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

// awaitQuiet returns true when a peer has been quiet for long enough, or false if the heartbeat is
// no longer necessary.
func (p *Transport) awaitQuiet(target raft.ServerAddress, term uint64) bool {
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
		if !p.leading(term) || !p.listed(target) {
			return false
		}
	}
}

// isHeartbeat reports whether a message is a heartbeat, as raft's transport decides it.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// Undialled reports whether a call failed before there was a connection.
func Undialled(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}
