// Package transport carries raft's messages between the nodes of a cluster.
//
// A Port is a node's raft port. Each connection starts with a handshake. Both ends show that they
// are members of one cluster, with one member list, and that neither runs from a copy of a data
// directory. The Purpose of the connection is then raft, a question for a peer's Standing
// (Asker), or nothing more than the handshake. A Transport is raft's own transport over a Port.
// It removes two effects of raft's: backing off from a peer that restarts, and blocking on a peer
// that refuses an entry.
//
// Guarantees: no byte of raft is exchanged with a node that the handshake refuses, and none with
// any node before Join. Messages of a node that is removed later are ignored. Connections,
// handshakes and questions in progress are limited. Close ends all connections and goroutines.
//
// Assumed: no node forges another's handshake, which Options.Certified ensures; without it the
// network is private. Methods may be called concurrently.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Options configures a port. Its functions may be called concurrently, and before Open returns.
type Options struct {
	Address  string // listening address
	Identity Identity
	Roster   Roster    // the members with which the cluster started
	Run      uuid.UUID // of this process
	// Settled is the time from which this node agrees with its own member list: it has then
	// listened long enough to have heard of other lists.
	Settled time.Time

	Listen func(address string) (net.Listener, error)
	// Secure makes an accepted connection a TLS connection, whose first read does the handshake.
	// nil: plain text
	Secure func(net.Conn) net.Conn
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	// Certified returns an error unless the other end of a connection has proven that it is the
	// named node. nil: names are not proven
	Certified func(conn net.Conn, name string) error
	Logger    hclog.Logger

	// Refused is called for a connection that was not accepted.
	Refused func(remote net.Addr, reason error)
	// Greeted is called with the outcome of every handshake that this node started.
	Greeted func(peer string, other Hello, err error)
	// Admit returns an error for a node that is not a member of this cluster now, or that was met
	// before as another instance.
	Admit func(other Hello) error
	// Hears reports whether messages of an admitted node are still accepted. It is called for each
	// message, because a member can be removed while its connection is open.
	Hears func(id raft.ServerID) bool
	// Present are the current members known to this node.
	Present func() []raft.ServerID
	// Disagreed is called for each node of this cluster with another first member list.
	Disagreed func(other Hello, err error)
	// Mute reports whether this node must not lead; raft then sends nothing.
	Mute func() bool
	// Standing answers the questions of other nodes. Hear gets the cluster's time that comes with
	// a question, in Unix nanoseconds, or 0.
	Standing func() Standing
	Hear     func(told int64)
}

// Port is the raft port: it performs handshakes and forwards each connection by its purpose. It
// implements raft.StreamLayer.
type Port struct {
	options  Options
	listener net.Listener
	joined   chan struct{} // closed by Join

	accepted chan net.Conn   // raft connections after their handshake, for Accept
	places   *places         // of handshakes in progress
	life     context.Context // ends with Close, and ends each dial
	end      context.CancelFunc
	closing  sync.Once
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[*trackedConn]struct{}         // connections that Close must end; guarded by mu
	starts  map[raft.ServerID]Hello           // the latest heard process of each node; guarded by mu
	answers map[raft.ServerAddress]*lastHeard // when peers were last heard on raft's own connections to them; guarded by mu
}

// Open starts to listen. Its goroutines end with Close.
func Open(options Options) (*Port, error) {
	listener, err := options.Listen(options.Address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the raft port: %w", err)
	}
	p := &Port{
		options: options, listener: listener, joined: make(chan struct{}),
		accepted: make(chan net.Conn), places: newPlaces(),
		conns: map[*trackedConn]struct{}{}, starts: map[raft.ServerID]Hello{}, answers: map[raft.ServerAddress]*lastHeard{},
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.serving.Go(p.listen)
	return p, nil
}

// Join makes this node take part in raft. Call it once.
func (p *Port) Join() { close(p.joined) }

// Joined reports whether this node takes part in raft.
func (p *Port) Joined() bool {
	select {
	case <-p.joined:
		return true
	default:
		return false
	}
}

// Agreed reports whether this node has listened long enough to agree with its own member list.
func (p *Port) Agreed() bool { return time.Now().After(p.options.Settled) }

// Probe makes a handshake with a member; Options.Greeted gets the outcome.
func (p *Port) Probe(address raft.ServerAddress, timeout time.Duration) error {
	conn, err := p.dial(address, PurposeProbe, timeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Asker returns an asker of the member at an address, with its own connection. told is the
// cluster's time that goes with each question; nil: none.
func (p *Port) Asker(address raft.ServerAddress, timeout time.Duration, told func() int64) *Asker {
	dial := func() (net.Conn, error) { return p.dial(address, PurposeStanding, timeout) }
	return &Asker{Address: address, Dial: dial, Timeout: timeout, Told: told}
}

// lastHeard is a time, as a duration since began.
type lastHeard struct {
	began time.Time
	after atomic.Int64 // nanoseconds; 0: never
}

func (l *lastHeard) now() { l.after.Store(int64(time.Since(l.began))) }

// ago returns the time since the last message; a very long time if there was none.
func (l *lastHeard) ago() time.Duration {
	after := l.after.Load()
	if after == 0 {
		return math.MaxInt64
	}
	return time.Since(l.began) - time.Duration(after)
}

// Quiet is the time since a peer last answered raft.
func (p *Port) Quiet(address raft.ServerAddress) time.Duration {
	return p.answersOf(address).ago()
}

func (p *Port) answersOf(address raft.ServerAddress) *lastHeard {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := p.answers[address]
	if heard == nil {
		heard = &lastHeard{began: time.Now()}
		p.answers[address] = heard // few: one per member during this run
	}
	return heard
}

func (p *Port) listen() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			select {
			case <-p.life.Done():
				return
			case <-time.After(100 * time.Millisecond): // for example, no free descriptors: retry after a pause
				p.options.Logger.Warn("cannot accept connections on the raft port", "error", err)
				continue
			}
		}
		taken := p.places.take(conn)
		if taken == nil {
			p.options.Refused(conn.RemoteAddr(), fmt.Errorf("%d connections of members have not completed the handshake yet", MaxHandshaking))
			_ = conn.Close()
			continue
		}
		conn = taken
		if p.options.Secure != nil {
			conn = p.options.Secure(taken)
		}
		accepted := p.tracked(conn)
		p.serving.Go(func() { p.greet(accepted, taken) })
	}
}

// greet answers one handshake and forwards the connection.
func (p *Port) greet(conn *trackedConn, taken *place) {
	what, other, err := p.answer(conn)
	p.places.leave(taken)
	if taken.lost.Load() {
		err = fmt.Errorf("a newer connection has replaced this connection: %d connections have not completed the handshake yet", MaxHandshaking)
	}
	if err != nil {
		p.options.Refused(conn.RemoteAddr(), err)
		_ = conn.Close()
		return
	}
	p.places.remember(conn.RemoteAddr())
	conn.shaken(other, true)
	switch what {
	case PurposeStanding:
		AnswerQuestions(conn, p.options.Hear, p.options.Standing)
		_ = conn.Close()
	case PurposeRaft:
		select {
		case p.accepted <- conn:
		case <-p.life.Done():
			_ = conn.Close()
		}
	default:
		_ = conn.Close()
	}
}

// tracked makes Close end the connection. raft's transport itself does not close accepted
// connections.
func (p *Port) tracked(conn net.Conn) *trackedConn {
	kept := &trackedConn{Conn: conn, port: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.life.Done():
		_ = conn.Close()
	default:
		p.conns[kept] = struct{}{}
	}
	return kept
}

// DropUnheard closes connections with nodes whose messages are no longer accepted.
func (p *Port) DropUnheard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if conn.other != "" && !p.options.Hears(conn.other) {
			conn.cut()
		}
	}
}

// trackedConn is a connection that the port tracks until it is closed.
type trackedConn struct {
	net.Conn
	port     *Port
	peer     *lastHeard    // records each read; nil: not a connection made by raft
	other    raft.ServerID // the node at the other end; empty until the handshake has ended; guarded by port.mu
	accepted bool          // the other end sends first
}

// shaken records the node at the other end.
func (c *trackedConn) shaken(other raft.ServerID, accepted bool) {
	c.port.mu.Lock()
	defer c.port.mu.Unlock()
	c.other, c.accepted = other, accepted
}

// cut ends the connection at once, because TLS would first send a message that the other end may
// not read.
func (c *trackedConn) cut() {
	under := c.Conn
	if secure, ok := under.(*tls.Conn); ok {
		under = secure.NetConn()
	}
	_ = under.Close()
}

// Read returns io.EOF, and no other error, when the node ends or when the other node's
// membership ends.
func (c *trackedConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if c.accepted && !c.port.options.Hears(c.other) {
		return 0, io.EOF
	}
	if n > 0 && c.peer != nil {
		c.peer.now()
	}
	if err != nil && c.port.life.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// errMute refuses raft's messages while the disk hangs, because followers that hear them would not
// elect another leader.
var errMute = errors.New("the disk of this node hangs, so the node sends no messages that keep it the leader")

// Write writes, except raft's messages while the node is mute.
func (c *trackedConn) Write(from []byte) (int, error) {
	if c.peer != nil && c.port.options.Mute() {
		return 0, errMute
	}
	return c.Conn.Write(from)
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.port.mu.Lock()
	delete(c.port.conns, c)
	c.port.mu.Unlock()
	return c.Conn.Close()
}

// Dial makes a raft connection. It implements raft.StreamLayer.
func (p *Port) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return p.dial(address, PurposeRaft, timeout)
}

func (p *Port) dial(address raft.ServerAddress, what Purpose, timeout time.Duration) (net.Conn, error) {
	peer, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(p.life, timeout)
	dialed, err := p.options.Dial(dialing, peer.Raft)
	cancel()
	if err != nil {
		return nil, err
	}
	conn := p.tracked(dialed)
	other, err := p.introduce(conn, peer, what, timeout)
	p.options.Greeted(peer.Name, other, err)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	p.places.remember(conn.RemoteAddr())
	conn.shaken(peer.ID(), false)
	if what == PurposeRaft {
		conn.peer = p.answersOf(address)
	}
	return conn, nil
}

// Accept waits for a raft connection. It implements net.Listener. Before this node has joined,
// Accept returns no connection, because the node must not vote in a cluster of other members.
func (p *Port) Accept() (net.Conn, error) {
	select {
	case <-p.joined:
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
}

// Close stops listening and ends every connection, including raft's. It may be called more than
// once.
func (p *Port) Close() error {
	var err error
	p.closing.Do(func() {
		p.mu.Lock()
		p.end()
		for conn := range p.conns {
			_ = conn.Conn.Close()
		}
		clear(p.conns)
		p.mu.Unlock()
		err = p.listener.Close()
		p.serving.Wait()
	})
	return err
}

// Addr is the address of the port.
func (p *Port) Addr() net.Addr { return p.listener.Addr() }
