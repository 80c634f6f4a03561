package node

import (
	"context"
	"net"
)

// System is what a node uses of its machine. Tests replace parts of it with faulty
// ones; a nil field is the real thing.
type System struct {
	Listen func(address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	// Log wraps the store of raft's log and votes, beneath its guard.
	Log func(LogEngine) LogEngine
}

// LogEngine keeps raft's log and votes.
type LogEngine = logEngine

func (s System) withDefaults() System {
	if s.Listen == nil {
		s.Listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if s.Dial == nil {
		s.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if s.Log == nil {
		s.Log = func(engine LogEngine) LogEngine { return engine }
	}
	return s
}
