package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const MaxHandshake = maxHandshake

// Alone is the identity of a node that knows no other node.
type Alone struct{}

func (Alone) Self() Hello {
	return Hello{Cluster: "test", Name: "n1", Incarnation: FirstIncarnation, Generation: 1}
}

// AnswerHandshake is the listener's half of a handshake, for a single node.
func AnswerHandshake(conn net.Conn) error { return AnswerHandshakeOf(conn, nil, func() {}) }

// AnswerHandshakeOf is the listener's half for a node with a member list.
func AnswerHandshakeOf(conn net.Conn, roster Roster, disagreed func()) error {
	port := &Port{
		options: Options{
			Identity: Alone{}, Roster: roster, Logger: hclog.NewNullLogger(), Disagreed: func(Hello, error) { disagreed() },
			Admit: func(Hello) error { return errors.New("not a member") }, Present: func() []raft.ServerID { return nil },
		},
		starts: map[raft.ServerID]Hello{}, joined: make(chan struct{}),
	}
	_, _, err := port.answer(conn)
	return err
}

// ReadHello reads a frame.
func ReadHello(r io.Reader) (Hello, error) {
	var from Hello
	err := readFrame(r, &from)
	return from, err
}

// NewWaiting makes a leader's transport over a listener, to peers without any answer so far.
// dialled is called at every dial.
func NewWaiting(listen string, dialled func(), leading bool, life context.Context) *Transport {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		panic(err)
	}
	stream := &countingStream{Listener: listener, dialled: dialled}
	return &Transport{
		NetworkTransport: raft.NewNetworkTransport(stream, 1, time.Second, io.Discard),
		self:             raft.ServerAddress(listener.Addr().String()),
		leading:          func(uint64) bool { return leading },
		listed:           func(raft.ServerAddress) bool { return true },
		heard:            func(raft.ServerAddress) time.Duration { return time.Hour },
		life:             life,
	}
}

// NewSparing makes a transport that spares heartbeats. quiet returns the time since the peer was
// last heard.
func NewSparing(listen string, quiet func() time.Duration, leading func() bool, enough time.Duration, life context.Context) *Transport {
	made := NewWaiting(listen, func() {}, true, life)
	made.heard = func(raft.ServerAddress) time.Duration { return quiet() }
	made.leading = func(uint64) bool { return leading() }
	made.quiet = enough
	return made
}

// NewPipeline opens a pipeline over a transport, for a node that ends with life.
func NewPipeline(inner *raft.NetworkTransport, life context.Context) (raft.AppendPipeline, error) {
	return (&Transport{NetworkTransport: inner, life: life}).AppendEntriesPipeline("peer.1", "peer")
}

type countingStream struct {
	net.Listener
	dialled func()
}

func (s *countingStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	s.dialled()
	return net.DialTimeout("tcp", string(address), timeout)
}

// Places are the limited places for connections without a completed handshake.
type Places struct{ *places }

func NewPlaces() Places { return Places{newPlaces()} }

// Take returns the connection with its place; nil: no place.
func (p Places) Take(conn net.Conn) net.Conn {
	if taken := p.take(conn); taken != nil {
		return taken
	}
	return nil
}
func (p Places) Leave(conn net.Conn)       { p.leave(conn.(*place)) }
func (p Places) Remember(address net.Addr) { p.remember(address) }
func (p Places) Held() int                 { return len(p.taken) }
func (p Places) Addresses() int            { return len(p.addresses) }

// MaxMemberAddresses limits the remembered addresses of members.
const MaxMemberAddresses = maxMemberAddresses
