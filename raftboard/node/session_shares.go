package node

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// maxClientSessions bounds the open sessions that one client has opened
	// through a node, and maxForwardedSessions those that one node has forwarded
	// to another. Together they leave room among the sessions of a cluster of up
	// to five nodes, whichever nodes one client uses: 5 x 1,000 + 3,000 of 10,000.
	maxClientSessions    = 1_000
	maxForwardedSessions = 3_000
	// openingTime is how long an opening may be under way.
	openingTime = 10 * time.Second
)

// sessionShares keeps one client from opening all the sessions that a cluster
// may have. A client is a remote host, until there are better principals; a
// node's own conductor is none. The counts are this process's: they begin anew
// with it.
type sessionShares struct {
	known func(jobs.SessionID) bool // whether a session is open

	mu     sync.Mutex                              // over all below
	opened map[string]map[jobs.SessionID]time.Time // when, by client
	looked time.Time                               // when sessions that are gone were last looked for
}

// admit counts an opening, or refuses it.
func (s *sessionShares) admit(ctx context.Context, header http.Header, opening *conductordv1.Opening) error {
	client, _ := ctx.Value(clientKey{}).(string)
	id, err := jobs.ParseSessionID(opening.GetId())
	if client == "" || err != nil {
		return nil // this process's own, or a bad id, which the state machine refuses
	}
	limit := maxClientSessions
	if header.Get(wire.HeaderHops) != "" {
		client, limit = "node "+client, maxForwardedSessions
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[client] == nil {
		s.opened[client] = map[jobs.SessionID]time.Time{}
	}
	sessions, now := s.opened[client], time.Now()
	if _, again := sessions[id]; again {
		return nil
	}
	if len(sessions) >= limit && now.Sub(s.looked) > time.Second {
		s.looked = now
		maps.DeleteFunc(sessions, func(id jobs.SessionID, at time.Time) bool { // openings that failed, and ends in a snapshot
			return now.Sub(at) > openingTime && !s.known(id)
		})
	}
	if len(sessions) >= limit {
		return &logbook.LimitError{Field: "sessions of client " + client, Limit: int64(limit), Size: int64(limit) + 1, Unit: "sessions"}
	}
	sessions[id] = now
	return nil
}

// ended is told of sessions that have ended.
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

// clientKey is under which a call's context has its client.
type clientKey struct{}

// withClient notes whose calls come on a connection: a host, or for IPv6 a
// network of the size that one client usually has.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	client := conn.RemoteAddr().String()
	if address, err := netip.ParseAddrPort(client); err == nil {
		host := address.Addr().Unmap()
		client = host.String()
		if network, err := host.Prefix(64); err == nil && host.Is6() {
			client = network.String()
		}
	}
	return context.WithValue(ctx, clientKey{}, client)
}

// OpenSession opens a session for the daemon's own conductor, which no client
// can keep out.
func (n *Node) OpenSession(ctx context.Context, opening jobs.Opening) (jobs.Session, error) {
	request := connect.NewRequest(&conductordv1.OpenRequest{Opening: command.OpeningToProto(&opening)})
	answer, err := (&sessionService{n}).Open(ctx, request)
	if err != nil {
		return jobs.Session{}, wire.ErrorFromConnect(err)
	}
	return command.SessionFromProto(answer.Msg.GetSession())
}
