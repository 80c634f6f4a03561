package node

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
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
// is a principal, or without access control a remote host; a node's own conductor is not a client. The counts are kept in
// memory and begin anew with the process.
type sessionShares struct {
	known func(jobs.SessionID) bool // whether a session is open

	mu     sync.Mutex                              // over all below
	most   int                                     // of a client
	opened map[string]map[jobs.SessionID]time.Time // when, by client
	looked time.Time                               // when ended sessions were last removed
}

// counted makes openings count. One that is refused counts only while it is under way.
func (s *sessionShares) counted(answers func(call) unary[conductordv1.OpenRequest, conductordv1.OpenResponse]) func(call) unary[conductordv1.OpenRequest, conductordv1.OpenResponse] {
	return func(row call) unary[conductordv1.OpenRequest, conductordv1.OpenResponse] {
		open := answers(row)
		return func(ctx context.Context, request *connect.Request[conductordv1.OpenRequest]) (*connect.Response[conductordv1.OpenResponse], error) {
			client, _ := ctx.Value(clientKey{}).(string)
			id, err := jobs.ParseSessionID(request.Msg.GetOpening().GetId())
			if client == "" || err != nil {
				return open(ctx, request) // of this process's own conductor, or with a bad id, which the state machine refuses
			}
			limit := 0
			if who := callerOf(ctx); ctx.Value(nodeKey{}) != nil {
				client, limit = "node "+client, maxForwardedSessions
			} else if who != nil {
				client = who.name
			}
			added, err := s.admit(client, limit, id)
			if err != nil {
				return nil, wire.ErrorToConnect(err)
			}
			answer, err := open(ctx, request)
			if err != nil && added && !errors.Is(wire.ErrorFromConnect(err), jobs.ErrUncertain) {
				s.refused(client, id)
			}
			return answer, err
		}
	}
}

// admit counts an opening, and reports whether it is a new one, or refuses it. A limit of 0 is that of clients.
func (s *sessionShares) admit(client string, limit int, id jobs.SessionID) (added bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit == 0 {
		limit = s.most
	}
	if s.opened[client] == nil {
		s.opened[client] = map[jobs.SessionID]time.Time{}
	}
	sessions, now := s.opened[client], time.Now()
	if _, again := sessions[id]; again {
		return false, nil
	}
	if len(sessions) >= limit && now.Sub(s.looked) > time.Second {
		s.looked = now
		maps.DeleteFunc(sessions, func(id jobs.SessionID, at time.Time) bool { // failed openings, and sessions whose end came in a snapshot
			return now.Sub(at) > openingTime && !s.known(id)
		})
	}
	if len(sessions) >= limit {
		return false, &logbook.LimitError{Field: "sessions of client " + client, Limit: int64(limit), Size: int64(limit) + 1, Unit: "sessions"}
	}
	sessions[id] = now
	return true, nil
}

// refused releases the share of a session that was not opened.
func (s *sessionShares) refused(client string, id jobs.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.opened[client], id); len(s.opened[client]) == 0 {
		delete(s.opened, client)
	}
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
