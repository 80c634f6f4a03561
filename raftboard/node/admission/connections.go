package admission

import (
	"container/heap"
	"container/list"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds of the connections to the HTTP port. A connection costs some tens of kilobytes.
const (
	maxConnections = 4_096 // of callers
	maxStrangers   = 1_024 // connections on which no caller is authenticated
)

// Work that the connections to the HTTP port may cause, a second and for each processor. A unit is a
// frame of HTTP/2: a few microseconds. On two processors one principal alone may send 20,000 frames a
// second, and one address without a caller 2,000.
const (
	callerUnits   = 20_000
	strangerUnits = 2_000
)

// Limits of new connections per second and processor. Hosts with a recently authenticated caller
// have a separate limit, so strangers cannot keep them out. A TLS handshake costs a millisecond, so
// strangers take at most 5 % of a processor. Without access control, no caller is authenticated,
// and all hosts have the limit of known hosts.
const (
	handshakeRate         = 100 // TLS handshakes per second; further ones wait
	strangerHandshakeRate = 50
	acceptRate            = 150 // new TLS connections per second; further ones are closed
)

// entry limits how often hosts open connections.
type entry struct{ accepts, handshakes *meter }

// newEntries are the limits of known hosts and of all others.
func newEntries(apart bool) (known, others entry) {
	rate := int64(handshakeRate)
	if apart {
		rate = strangerHandshakeRate
	}
	return entry{newMeter(acceptRate, entrySpan), newMeter(handshakeRate, entrySpan)}, entry{newMeter(acceptRate, entrySpan), newMeter(rate, entrySpan)}
}

// connections are the connections to the HTTP port, except connections at the socket and of nodes,
// which have no limit. A connection counts for the address of its client until a caller is
// authenticated on it, and then for the principal. Without access control, it always counts for the
// address, as a connection of a caller. Over a limit, the holder with the most connections loses
// one: the connection that is idle longest, or else the oldest.
type connections struct {
	logger hclog.Logger
	log    RefusalLog
	apart  bool // access control: unknown callers have their own pools

	callerWork, strangerWork *meter
	ofKnown, ofOthers        entry
	known                    knownHosts

	mu                 sync.Mutex // guards all fields below
	callers, strangers pool
}

func newConnections(logger hclog.Logger, apart bool) *connections {
	known, others := newEntries(apart)
	return &connections{
		logger: logger, apart: apart, callerWork: newMeter(callerUnits, workSpan), strangerWork: newMeter(strangerUnits, workSpan), ofKnown: known, ofOthers: others,
		callers: pool{limit: maxConnections, holders: make(map[string]*holder)}, strangers: pool{limit: maxStrangers, holders: make(map[string]*holder)},
	}
}

// entryOf returns the limits for new connections of a host.
func (c *connections) entryOf(host string, now time.Time) *entry {
	if c.known.has(host, now) {
		return &c.ofKnown
	}
	return &c.ofOthers
}

// pool is a set of connections with a common limit. Each change costs at most the logarithm of the
// number of holders.
type pool struct {
	limit, count int
	holders      map[string]*holder
	most         byCount
}

const idle, active = 0, 1 // states of a connection

// holder has connections of a pool.
type holder struct {
	name  string
	conns [2]list.List // idle and active ones, in the order of this change: of *clientConn
	at    int          // index in byCount
}

func (h *holder) count() int { return h.conns[idle].Len() + h.conns[active].Len() }

// byCount is a heap of holders; the first has the most connections.
type byCount []*holder

func (b byCount) Len() int           { return len(b) }
func (b byCount) Less(i, j int) bool { return b[i].count() > b[j].count() }
func (b byCount) Swap(i, j int)      { b[i], b[j] = b[j], b[i]; b[i].at, b[j].at = i, j }
func (b *byCount) Push(x any)        { h := x.(*holder); h.at = len(*b); *b = append(*b, h) }
func (b *byCount) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// enter counts a connection for a holder, and drops one if there are too many.
func (c *connections) enter(conn *Conn, p *pool, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.leaveLocked()
	if conn.closed.Load() {
		return
	}
	h := p.holders[name]
	if h == nil {
		h = &holder{name: name}
		p.holders[name] = h
		heap.Push(&p.most, h)
	}
	conn.pool, conn.holder, conn.at = p, h, h.conns[conn.state].PushBack(conn)
	p.count++
	heap.Fix(&p.most, h.at)
	if p.count <= p.limit {
		return
	}
	h = p.most[0]
	oldest := h.conns[idle].Front()
	if oldest == nil {
		oldest = h.conns[active].Front()
	}
	dropped := oldest.Value.(*Conn)
	dropped.leaveLocked()
	_ = dropped.raw.Close()
	c.log.Warn(c.logger, "closed a connection to the HTTP port", dropped.raw.RemoteAddr(), fmt.Errorf("%d connections are open, the limit is %d, and %s has the most connections", p.count+1, p.limit, h.name))
}

// leaveLocked stops counting the connection.
func (c *Conn) leaveLocked() {
	p, h := c.pool, c.holder
	if h == nil {
		return
	}
	h.conns[c.state].Remove(c.at)
	c.holder = nil
	p.count--
	if heap.Fix(&p.most, h.at); h.count() == 0 {
		heap.Remove(&p.most, h.at)
		delete(p.holders, h.name)
	}
}

// changed is called by net/http for each change of a connection's state.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	client, is := conn.(*Conn)
	if !is || state != http.StateIdle && state != http.StateActive {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := client.holder; h != nil {
		h.conns[client.state].Remove(client.at)
		if client.state = idle; state == http.StateActive {
			client.state = active
		}
		client.at = h.conns[client.state].PushBack(client)
	}
}

// listener accepts the connections of clients; config is for TLS, nil: plain text.
type listener struct {
	net.Listener
	all    *connections
	config *tls.Config
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostKey(raw.RemoteAddr().String())
		if !l.admitted(host) {
			_ = raw.Close()
			continue
		}
		conn := &Conn{Conn: raw, raw: &firstByte{Conn: raw}, all: l.all, host: host}
		if l.config != nil {
			conn.secure = tls.Server(conn.raw, l.config)
			conn.Conn = conn.secure
		}
		conn.credit.Store(freeUnits)
		conn.belongTo(conn.host, l.all.apart)
		return conn, nil
	}
}

// admitted reports whether a host may open one connection more now.
func (l *listener) admitted(host string) bool {
	now := time.Now()
	return l.config == nil || l.all.entryOf(host, now).accepts.take(host, 1, now) == 0
}
