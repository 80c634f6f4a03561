package node

import (
	"context"
	"net"

	"github.com/conductord/conductord/raftboard/node/raftlog/logstore"
)

// System is a node's access to its machine. Tests replace parts of it with faulty parts; a nil
// field means the real part.
type System struct {
	Listen func(address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	// Log wraps the store of raft's log and votes, below the checks of logstore.Log; nil: no
	// wrapper.
	Log func(logstore.Engine) logstore.Engine
}

func (s System) withDefaults() System {
	if s.Listen == nil {
		s.Listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if s.Dial == nil {
		s.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return s
}
