package cluster_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network is a network in memory between places: the machines of the nodes, and
// cluster.Outside. A direction between two places can be cut; then bytes wait, as with TCP
// retransmission.
type network struct {
	latency time.Duration

	mu        sync.Mutex
	listeners map[string]*listener
	cuts      map[[2]int]bool
	frozen    map[int]bool // no traffic leaves or enters these places
	off       map[int]bool // machines without power: they answer nothing
	conns     map[*pipe]struct{}
	changed   chan struct{} // closed and replaced after each change above
}

func newNetwork(latency time.Duration) *network {
	return &network{
		latency: latency, listeners: map[string]*listener{}, cuts: map[[2]int]bool{}, frozen: map[int]bool{},
		off: map[int]bool{}, conns: map[*pipe]struct{}{}, changed: make(chan struct{}),
	}
}

// change changes the cuts between places, and wakes everything that waits for them.
func (n *network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// stalled reports whether no traffic passes from one place to another, and returns a channel that
// is closed when this may have changed.
func (n *network) stalled(from, to int) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from == to {
		return n.frozen[from], n.changed
	}
	return n.cuts[[2]int{from, to}] || n.frozen[from] || n.frozen[to] || n.off[from] || n.off[to], n.changed
}

// listen opens a port of a place.
func (n *network) listen(place int, where string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[where] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	}
	const backlog = 1_000
	l := &listener{network: n, place: place, where: where, queue: make(chan net.Conn, backlog), closed: make(chan struct{})}
	n.listeners[where] = l
	return l, nil
}

// dial connects a place to a port. A port without a listener refuses; a port behind a cut does not
// answer.
func (n *network) dial(ctx context.Context, from, to int, where string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(where), Err: err}
	}
	for {
		there, _ := n.stalled(from, to)
		back, changed := n.stalled(to, from)
		if !there && !back {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
	if from != to {
		select {
		case <-time.After(2 * n.latency):
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[where]
	if l == nil {
		return fail(syscall.ECONNREFUSED)
	}
	one, other := newPipe(n, from, to), newPipe(n, to, from)
	n.conns[one], n.conns[other] = struct{}{}, struct{}{}
	select {
	case l.queue <- &conn{in: one, out: other, local: address(where), remote: "client:0"}:
		return &conn{in: other, out: one, local: "client:0", remote: address(where)}, nil
	default:
		return fail(syscall.ECONNREFUSED)
	}
}

// end ends all connections and ports of the programs at a place. It notifies the other ends;
// without power, it does not until answer.
func (n *network) end(place int) {
	n.mu.Lock()
	var ended []*pipe
	for p := range n.conns {
		if p.from == place || p.to == place {
			ended = append(ended, p)
		}
	}
	var ports []*listener
	for _, l := range n.listeners {
		if l.place == place {
			ports = append(ports, l)
		}
	}
	n.mu.Unlock()
	for _, l := range ports {
		_ = l.Close()
	}
	for _, p := range ended {
		if p.to == place {
			p.abandon(syscall.ECONNRESET)
		} else {
			p.finish(syscall.ECONNRESET)
		}
	}
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// listener is a port.
type listener struct {
	network *network
	place   int
	where   string
	queue   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-l.queue:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		if l.network.listeners[l.where] == l {
			delete(l.network.listeners, l.where)
		}
		l.network.mu.Unlock()
		for {
			select {
			case conn := <-l.queue:
				_ = conn.Close()
				continue
			default:
			}
			return
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.where) }

// window is the number of bytes that can wait in one direction before the writer blocks.
const window = 256 << 10

// chunk is the data of one write.
type chunk struct {
	data []byte
	at   time.Time // time of arrival
	end  error     // io.EOF, or a reset; nil: data
}

// pipe is one direction of a connection.
type pipe struct {
	network  *network
	from, to int

	mu     sync.Mutex
	chunks []chunk
	size   int
	broken error         // the reader's error, after which it reads no more
	ended  bool          // writes are no longer read
	wake   chan struct{} // closed and replaced after each change
}

func newPipe(n *network, from, to int) *pipe {
	return &pipe{network: n, from: from, to: to, wake: make(chan struct{})}
}

func (p *pipe) wakeLocked() {
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *pipe) arrival() time.Time {
	if p.from == p.to {
		return time.Now()
	}
	return time.Now().Add(p.network.latency)
}

// finish sends the end of the stream.
func (p *pipe) finish(end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		p.chunks = append(p.chunks, chunk{at: p.arrival(), end: end})
		p.wakeLocked()
	}
}

// abandon ends the reader's use of the pipe at once.
func (p *pipe) abandon(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		p.broken, p.ended, p.chunks = err, true, nil
		p.wakeLocked()
	}
}

// look takes the arrived bytes, or returns what to wait for: a time, and channels.
func (p *pipe) look(b []byte) (read int, until time.Time, wake, changed <-chan struct{}, err error) {
	stalled, changed := p.network.stalled(p.from, p.to)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken != nil:
		return 0, until, nil, nil, p.broken
	case len(p.chunks) == 0 || stalled:
		return 0, until, p.wake, changed, nil
	case time.Until(p.chunks[0].at) > 0:
		return 0, p.chunks[0].at, p.wake, changed, nil
	}
	for len(p.chunks) > 0 && read < len(b) && time.Until(p.chunks[0].at) <= 0 {
		first := &p.chunks[0]
		if first.end != nil {
			if read == 0 {
				err = first.end
			}
			break
		}
		n := copy(b[read:], first.data)
		read, first.data = read+n, first.data[n:]
		if len(first.data) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	p.size -= read
	p.wakeLocked()
	return read, until, nil, nil, err
}

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote address
	reading       deadline
	writing       deadline
	closed        atomic.Bool
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		deadline := c.reading.changes()
		if c.reading.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		n, until, wake, changed, err := c.in.look(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		var timer <-chan time.Time
		if !until.IsZero() {
			t := time.NewTimer(time.Until(until))
			defer t.Stop()
			timer = t.C
		}
		select {
		case <-wake:
		case <-changed:
		case <-timer:
		case <-deadline:
		}
	}
}

func (c *conn) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		deadline := c.writing.changes()
		if c.writing.passed() {
			return written, os.ErrDeadlineExceeded
		}
		if c.closed.Load() {
			return written, net.ErrClosed
		}
		p := c.out
		p.mu.Lock()
		if p.ended {
			p.mu.Unlock()
			return len(b), nil
		}
		wake := p.wake
		if room := window - p.size; room > 0 {
			part := b[written:min(len(b), written+room)]
			p.chunks = append(p.chunks, chunk{data: append([]byte(nil), part...), at: p.arrival()})
			p.size += len(part)
			written += len(part)
			p.wakeLocked()
			p.mu.Unlock()
			continue
		}
		p.mu.Unlock()
		select {
		case <-wake:
		case <-deadline:
		}
	}
	return written, nil
}

// Close closes this end: the other end reads the data in flight, and then the end of the stream.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.out.finish(io.EOF)
	c.in.abandon(net.ErrClosed)
	c.reading.set(time.Time{})
	c.writing.set(time.Time{})
	n := c.in.network
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c.in)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writing.set(t)
	return nil
}
func (c *conn) SetReadDeadline(t time.Time) error  { c.reading.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.writing.set(t); return nil }

// deadline is a time after which calls fail.
type deadline struct {
	mu     sync.Mutex
	at     time.Time
	timer  *time.Timer
	change chan struct{} // closed when the deadline changes or passes; nil: no waiter
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	d.wakeLocked()
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wakeLocked()
		})
	}
}

func (d *deadline) wakeLocked() {
	if d.change != nil {
		close(d.change)
		d.change = nil
	}
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.at.IsZero() && time.Until(d.at) <= 0
}

func (d *deadline) changes() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.change == nil {
		d.change = make(chan struct{})
	}
	return d.change
}
