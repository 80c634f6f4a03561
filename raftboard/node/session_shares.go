package node

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxClientSessions bounds the open sessions that one client has opened
	// through a node, and maxForwardedSessions those that one node has forwarded
	// to another. Together they leave room among the sessions of a cluster of up
	// to five nodes, however many nodes one client uses: 5 x 1,000 + 3,000 of 10,000.
	maxClientSessions    = 1_000
	maxForwardedSessions = 3_000
	// openingTime is the longest that an opening may take.
	openingTime = 10 * time.Second
)

// sessionShares keeps one client from opening all sessions of a cluster. A client
// is a principal, or without access control a remote host; a node's own conductor is not a client.
// The counts are kept in memory and begin anew with the process.
type sessionShares struct {
	known func(jobs.SessionID) bool // whether a session is open

	mu     sync.Mutex                              // over all below
	most   int                                     // of a client
	opened map[string]map[jobs.SessionID]time.Time // when, by client
	looked time.Time                               // when ended sessions were last removed
}

// admit counts an opening, or refuses it. One that its caller may not make counts for the caller alone:
// g refuses it before it takes a place of the node that has forwarded it.
func (s *sessionShares) admit(ctx context.Context, g *guard, request *conductordv1.OpenRequest) error {
	client, _ := ctx.Value(clientKey{}).(string)
	id, err := jobs.ParseSessionID(request.GetOpening().GetId())
	if client == "" || err != nil {
		return nil // this process's own conductor, or a bad id, which the state machine refuses
	}
	fromNode, who := ctx.Value(nodeKey{}) != nil, callerOf(ctx)
	switch {
	case fromNode:
		if err := g.allow(ctx, "SessionService/Open", command.Work, request); err != nil {
			return err
		}
		client = "node " + client
	case who != nil:
		client = who.name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.most
	if fromNode {
		limit = maxForwardedSessions
	}
	if s.opened[client] == nil {
		s.opened[client] = map[jobs.SessionID]time.Time{}
	}
	sessions, now := s.opened[client], time.Now()
	if _, again := sessions[id]; again {
		return nil
	}
	if len(sessions) >= limit && now.Sub(s.looked) > time.Second {
		s.looked = now
		maps.DeleteFunc(sessions, func(id jobs.SessionID, at time.Time) bool { // failed openings, and sessions whose end came in a snapshot
			return now.Sub(at) > openingTime && !s.known(id)
		})
	}
	if len(sessions) >= limit {
		return &logbook.LimitError{Field: "sessions of client " + client, Limit: int64(limit), Size: int64(limit) + 1, Unit: "sessions"}
	}
	sessions[id] = now
	return nil
}

// ended releases the shares of sessions that have ended.
func (s *sessionShares) ended(ids []jobs.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for client, sessions := range s.opened {
		for _, id := range ids {
			delete(sessions, id)
		}
		if len(sessions) == 0 {
			delete(s.opened, client)
		}
	}
}

// clientKey is the key of the client in a call's context.
type clientKey struct{}

// hostKey is the host of an address, or for IPv6 the /64 network, which one client usually has to itself.
func hostKey(address string) string {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	host := parsed.Addr().Unmap().WithZone("")
	if network, err := host.Prefix(64); err == nil && host.Is6() {
		return network.String()
	}
	return host.String()
}

// withClient puts a connection and its client into the context of its calls.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	if _, local := conn.(*net.UnixConn); local {
		user := userOf(conn)
		ctx = context.WithValue(ctx, localKey{}, user)
		return context.WithValue(ctx, clientKey{}, localCaller+user)
	}
	client := conn.(*clientConn)
	return context.WithValue(context.WithValue(ctx, connKey{}, client), clientKey{}, client.host)
}
