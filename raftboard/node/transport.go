package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
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

// The raft port speaks one small handshake before anything else, so that a
// node of another cluster, of an older generation or with a forgotten past
// never gets as far as a vote.
//
//	dialer  → magic, purpose, length, hello (JSON)
//	listener→ length, welcome (JSON); a refusal says why, and the connection ends
const (
	handshakeMagic   = "CDR1"
	handshakeTimeout = 5 * time.Second
	maxHandshake     = 16 << 10 // bytes of a hello or welcome: a refusal holds two member lists
	maxHandshaking   = 64       // connections that have not completed the handshake
)

// purpose says what a connection to the raft port is for.
type purpose byte

const (
	purposeRaft  purpose = 'R' // hashicorp/raft's own protocol
	purposeTerms purpose = 'T' // rounds of term questions, see terms.go
	purposeProbe purpose = 'P' // nothing: the handshake is the question
)

type hello struct {
	Cluster    string    `json:"cluster"`
	Generation uint64    `json:"generation"`
	Name       string    `json:"name"`
	Instance   uuid.UUID `json:"instance"`
	// Start counts the starts of the node, and Run is drawn at each. They tell a
	// copy of a data directory from its original.
	Start uint64    `json:"start"`
	Run   uuid.UUID `json:"run"`
	// Members is the list in the node's configuration. Agreed: the node has
	// listened for an election timeout and found no other list. Joined: its raft
	// log begins with the list.
	Members roster `json:"members"`
	Agreed  bool   `json:"agreed"`
	Joined  bool   `json:"joined"`
	// Peers are the instances of the other nodes that this one has met.
	Peers map[string]uuid.UUID `json:"peers"`
}

type welcome struct {
	hello
	Refusal string `json:"refusal,omitempty"`
}

// refusedError is what a dialer gets from a listener that does not want it.
type refusedError struct {
	peer   string
	reason string
	from   uuid.UUID // instance of the listener
}

func (e *refusedError) Error() string { return fmt.Sprintf("node %q refuses us: %s", e.peer, e.reason) }

// streamLayer is the raft port: it carries out handshakes and hands the
// connections to whom they are for. It implements raft.StreamLayer.
type streamLayer struct {
	system   System
	listener net.Listener
	identity *identityStore
	members  map[raft.ServerAddress]Member
	logger   hclog.Logger
	// serveTerms answers the questions of one connection; it returns when the
	// connection ends.
	serveTerms func(net.Conn)
	refusals   refusalLog
	// greeted is called with the outcome of every handshake that this node began.
	greeted func(peer string, other hello, err error)
	// disagreed is called for each node of this cluster with another member list.
	disagreed func(other hello, err error)
	// mute reports whether this node must not lead; raft then sends nothing.
	mute    func() bool
	run     uuid.UUID     // of this process
	roster  roster        // the members, as this node's configuration lists them
	settled time.Time     // when this node has listened for long enough to know of other lists
	joined  chan struct{} // closed when this node takes part in raft: until then Accept gives nothing

	accepted chan net.Conn   // handshaken raft connections, for Accept
	slots    chan struct{}   // bounds handshakes under way
	life     context.Context // ends with Close, and with it what is being dialled
	end      context.CancelFunc
	closing  sync.Once
	serving  sync.WaitGroup

	// answers are when peers were last heard on raft's own connections to them;
	// the map does not change.
	answers map[raft.ServerAddress]*lastHeard

	mu     sync.Mutex
	conns  map[*trackedConn]struct{} // what Close must end; under mu
	starts map[string]hello          // the latest process of each node that was heard; under mu
}

// lastHeard is a moment, as the time that had passed since began.
type lastHeard struct {
	began time.Time
	after atomic.Int64 // nanoseconds; 0: never
}

func (l *lastHeard) now() { l.after.Store(int64(time.Since(l.began))) }

// ago is how long ago that was; very long if never.
func (l *lastHeard) ago() time.Duration {
	after := l.after.Load()
	if after == 0 {
		return math.MaxInt64
	}
	return time.Since(l.began) - time.Duration(after)
}

// heard tells for how long a peer has answered nothing to raft.
func (s *streamLayer) heard(address raft.ServerAddress) time.Duration {
	if answers := s.answers[address]; answers != nil {
		return answers.ago()
	}
	return math.MaxInt64
}

// openStreamLayer listens. Its goroutine ends with Close.
func openStreamLayer(listen string, layer *streamLayer) (*streamLayer, error) {
	listener, err := layer.system.Listen(listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the raft port: %w", err)
	}
	layer.listener = listener
	layer.accepted = make(chan net.Conn)
	layer.slots = make(chan struct{}, maxHandshaking)
	layer.life, layer.end = context.WithCancel(context.Background())
	layer.conns, layer.starts = map[*trackedConn]struct{}{}, map[string]hello{}
	layer.answers = make(map[raft.ServerAddress]*lastHeard, len(layer.members))
	for address := range layer.members {
		layer.answers[address] = &lastHeard{began: time.Now()}
	}
	layer.serving.Go(layer.listen)
	return layer, nil
}

func (s *streamLayer) listen() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			select {
			case <-s.life.Done():
				return
			case <-time.After(100 * time.Millisecond): // out of descriptors, say: try again, calmly
				s.logger.Warn("cannot accept on the raft port", "error", err)
				continue
			}
		}
		select {
		case s.slots <- struct{}{}:
			s.serving.Go(func() { s.greet(s.tracked(conn)) })
		default:
			s.refusals.warn(s.logger, "refused a connection to the raft port", conn.RemoteAddr(),
				fmt.Errorf("%d connections have not completed the handshake yet", maxHandshaking))
			_ = conn.Close()
		}
	}
}

// greet answers one handshake and hands the connection over.
func (s *streamLayer) greet(conn net.Conn) {
	what, err := s.answer(conn)
	<-s.slots
	if err != nil {
		s.refusals.warn(s.logger, "refused a connection to the raft port", conn.RemoteAddr(), err)
		_ = conn.Close()
		return
	}
	switch what {
	case purposeTerms:
		s.serveTerms(conn)
		_ = conn.Close()
	case purposeRaft:
		select {
		case s.accepted <- conn:
		case <-s.life.Done():
			_ = conn.Close()
		}
	default:
		_ = conn.Close()
	}
}

// tracked sees to it that Close ends the connection, whoever holds it then:
// raft's transport leaves the connections that it was given to the other end.
func (s *streamLayer) tracked(conn net.Conn) *trackedConn {
	kept := &trackedConn{Conn: conn, layer: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.life.Done():
		_ = conn.Close()
	default:
		s.conns[kept] = struct{}{}
	}
	return kept
}

// trackedConn is a connection that the layer knows until it is closed.
type trackedConn struct {
	net.Conn
	layer *streamLayer
	peer  *lastHeard // notes each read; nil: not a connection that raft has made
}

// Read reads. The end of the node is the end of the stream, and no fault.
func (c *trackedConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && c.peer != nil {
		c.peer.now()
	}
	if err != nil && c.layer.life.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// errMute refuses raft's messages while the disk hangs: followers that hear them
// would not elect another leader.
var errMute = errors.New("the disk of this node hangs: it sends nothing that keeps it the leader")

// Write writes, except raft's messages while the layer is mute.
func (c *trackedConn) Write(from []byte) (int, error) {
	if c.peer != nil && c.layer.mute() {
		return 0, errMute
	}
	return c.Conn.Write(from)
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}

// answer is the listener's half of the handshake.
func (s *streamLayer) answer(conn net.Conn) (purpose, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return 0, err
	}
	head := make([]byte, len(handshakeMagic)+1)
	if _, err := io.ReadFull(conn, head); err != nil {
		return 0, fmt.Errorf("no handshake: %w", err)
	}
	if string(head[:len(handshakeMagic)]) != handshakeMagic {
		return 0, fmt.Errorf("not a conductord node: its first bytes are %q", head)
	}
	var from hello
	if err := readFrame(conn, &from); err != nil {
		return 0, fmt.Errorf("bad handshake: %w", err)
	}
	refusal := s.judge(from)
	reply := welcome{hello: s.hello()}
	if refusal != nil {
		reply.Refusal = refusal.Error()
	}
	if err := writeFrame(conn, nil, reply); err != nil {
		return 0, err
	}
	if refusal != nil {
		return 0, refusal
	}
	return purpose(head[len(handshakeMagic)]), conn.SetDeadline(time.Time{})
}

// Dial makes a raft connection. It implements raft.StreamLayer.
func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.dial(address, purposeRaft, timeout)
}

func (s *streamLayer) dial(address raft.ServerAddress, what purpose, timeout time.Duration) (net.Conn, error) {
	dialing, cancel := context.WithTimeout(s.life, timeout)
	dialed, err := s.system.Dial(dialing, string(address))
	cancel()
	if err != nil {
		return nil, err
	}
	conn := s.tracked(dialed)
	peer := s.members[address].Name
	other, err := s.introduce(conn, peer, what, timeout)
	s.greeted(peer, other, err)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if what == purposeRaft {
		conn.peer = s.answers[address]
	}
	return conn, nil
}

// introduce is the dialer's half of the handshake.
func (s *streamLayer) introduce(conn net.Conn, peer string, what purpose, timeout time.Duration) (hello, error) {
	var reply welcome
	if timeout <= 0 || timeout > handshakeTimeout {
		timeout = handshakeTimeout
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return reply.hello, err
	}
	if err := writeFrame(conn, append([]byte(handshakeMagic), byte(what)), s.hello()); err != nil {
		return reply.hello, fmt.Errorf("no handshake with node %q: %w", peer, err)
	}
	if err := readFrame(conn, &reply); err != nil {
		return reply.hello, fmt.Errorf("no handshake with node %q: %w", peer, err)
	}
	if reply.Refusal != "" {
		_ = s.sameCluster(reply.hello) // calls disagreed; the refusal has the same reason
		return reply.hello, &refusedError{peer: peer, reason: reply.Refusal, from: reply.Instance}
	}
	if reply.Name != peer {
		return reply.hello, fmt.Errorf("the address of node %q is that of node %q", peer, reply.Name)
	}
	if err := s.judge(reply.hello); err != nil {
		return reply.hello, err
	}
	return reply.hello, conn.SetDeadline(time.Time{})
}

// Accept waits for a raft connection. It implements net.Listener. Before this
// node has joined it returns none: it must not vote in a cluster of other members.
func (s *streamLayer) Accept() (net.Conn, error) {
	select {
	case <-s.joined:
	case <-s.life.Done():
		return nil, net.ErrClosed
	}
	select {
	case conn := <-s.accepted:
		return conn, nil
	case <-s.life.Done():
		return nil, net.ErrClosed
	}
}

// Close stops listening and ends every connection, also those in raft's
// hands. It may be called more than once.
func (s *streamLayer) Close() error {
	var err error
	s.closing.Do(func() {
		s.mu.Lock()
		s.end()
		for conn := range s.conns {
			_ = conn.Conn.Close()
		}
		clear(s.conns)
		s.mu.Unlock()
		err = s.listener.Close()
		s.serving.Wait()
	})
	return err
}

// Addr is where the layer listens.
func (s *streamLayer) Addr() net.Addr { return s.listener.Addr() }

func writeFrame(w io.Writer, head []byte, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > maxHandshake {
		return fmt.Errorf("handshake of %d bytes is over the limit of %d", len(body), maxHandshake)
	}
	frame := binary.BigEndian.AppendUint16(head, uint16(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

func readFrame(r io.Reader, message any) error {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint16(size[:])
	if length > maxHandshake {
		return fmt.Errorf("handshake of %d bytes is over the limit of %d", length, maxHandshake)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return errors.New("the handshake is not what a node says")
	}
	return nil
}
