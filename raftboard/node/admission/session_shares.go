package admission

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxClientSessions limits the open sessions that one client has opened through a node.
	// maxForwardedSessions limits the open sessions that one node has forwarded to another. Even if
	// a client uses all nodes, sessions remain for others in a cluster of up to five nodes: 5 x
	// 1,000 + 3,000 of 10,000.
	maxClientSessions    = 1_000
	maxForwardedSessions = 3_000
	// openingTime is the maximum duration of an opening.
	openingTime = 10 * time.Second
)

// SessionShares keeps one client from opening all sessions of a cluster. A client is a principal,
// or without access control a remote host; a node's own conductor is not a client. The counts are
// in memory, and start at zero with the process.
type SessionShares struct {
	known func(jobs.SessionID) bool // reports whether a session is open
	Most  atomic.Int64              // of a client

	mu     sync.Mutex                              // guards all fields below
	opened map[string]map[jobs.SessionID]time.Time // time of the opening, by client
	looked time.Time                               // when ended sessions were last removed
}

// NewSessionShares makes the shares for sessions that are open while known returns true.
func NewSessionShares(known func(jobs.SessionID) bool) *SessionShares {
	s := &SessionShares{known: known, opened: make(map[string]map[jobs.SessionID]time.Time)}
	s.Most.Store(maxClientSessions)
	return s
}

// Admit counts the opening of a session by its id, or refuses it. If allow refuses the opening, it
// counts only for the caller, and not for the node that forwarded it.
func (s *SessionShares) Admit(ctx context.Context, opening string, allow func() error) error {
	client, _ := ctx.Value(clientKey{}).(string)
	id, err := jobs.ParseSessionID(opening)
	if client == "" || err != nil {
		return nil // this process's own conductor, or an invalid id, which the state machine refuses
	}
	fromNode, who := ctx.Value(nodeKey{}) != nil, CallerOf(ctx)
	switch {
	case fromNode:
		if err := allow(); err != nil {
			return err
		}
		client = "node " + client
	case who != nil:
		client = who.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := int(s.Most.Load())
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
		maps.DeleteFunc(sessions, func(id jobs.SessionID, at time.Time) bool { // failed openings, and sessions whose end arrived in a snapshot
			return now.Sub(at) > openingTime && !s.known(id)
		})
	}
	if len(sessions) >= limit {
		return &logbook.LimitError{Field: "sessions of client " + client, Limit: int64(limit), Size: int64(limit) + 1, Unit: "sessions"}
	}
	sessions[id] = now
	return nil
}

// Ended releases the shares of sessions that have ended.
func (s *SessionShares) Ended(ids []jobs.SessionID) {
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
