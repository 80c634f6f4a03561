package node

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

// Bounds of the connections to the HTTP port. Each costs some tens of kilobytes.
const (
	maxConnections  = 4_096 // of callers
	maxStrangers    = 1_024 // connections on which no caller is authenticated
	maxHostStranger = 256   // such connections of one address
)

// Work that the connections to the HTTP port may cause, a second and for each processor. A unit is a
// frame of HTTP/2: a few microseconds. On two processors one principal alone may send 20,000 frames a
// second, and one address without a caller 2,000.
const (
	callerUnits   = 20_000
	strangerUnits = 2_000
	handshakeRate = 100 // TLS handshakes: a millisecond each; others wait
	acceptRate    = 300 // connections with TLS; others are closed at once
)

// connections are the connections to the HTTP port, except those by the socket and those of
// nodes, which have no bound. A connection counts for the address of its client until a caller is
// authenticated on it, then for the principal. Without access control it always counts for the
// address, as one of a caller. Over a bound, the holder that has most loses the connection that
// is idle longest, or its oldest.
type connections struct {
	logger hclog.Logger
	log    refusalLog
	apart  bool // access control: strangers have pools of their own

	callerWork, strangerWork, handshakes, accepts *meter

	mu                 sync.Mutex // over all below
	callers, strangers pool
}

func newConnections(logger hclog.Logger, apart bool) *connections {
	return &connections{
		logger: logger, apart: apart, callerWork: newMeter(callerUnits), strangerWork: newMeter(strangerUnits),
		handshakes: newMeter(handshakeRate), accepts: newMeter(acceptRate),
		callers:   pool{limit: maxConnections, each: maxConnections, holders: make(map[string]*holder)},
		strangers: pool{limit: maxStrangers, each: maxHostStranger, holders: make(map[string]*holder)},
	}
}

// pool is connections that have a bound together. Each change costs at most the logarithm of its holders.
type pool struct {
	limit, each, count int // each: of one holder
	holders            map[string]*holder
	most               byCount
}

// holder has connections of a pool.
type holder struct {
	name         string
	idle, active list.List // of *clientConn, since they are so
	at           int       // in byCount
}

func (h *holder) count() int { return h.idle.Len() + h.active.Len() }

func (h *holder) listOf(active bool) *list.List {
	if active {
		return &h.active
	}
	return &h.idle
}

// byCount is a heap of holders; the first has most.
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

// enter counts a connection for a holder, and drops one if they are too many.
func (c *connections) enter(conn *clientConn, p *pool, name string) {
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
	conn.pool, conn.holder, conn.at = p, h, h.listOf(conn.active).PushBack(conn)
	p.count++
	heap.Fix(&p.most, h.at)
	switch {
	case h.count() > p.each:
		c.dropLocked(h, h.count(), p.each)
	case p.count > p.limit:
		c.dropLocked(p.most[0], p.count, p.limit)
	}
}

// dropLocked closes a connection of a holder.
func (c *connections) dropLocked(h *holder, open, limit int) {
	oldest := h.idle.Front()
	if oldest == nil {
		oldest = h.active.Front()
	}
	conn := oldest.Value.(*clientConn)
	conn.leaveLocked()
	_ = conn.raw.Close()
	c.log.warn(c.logger, "closed a connection to the HTTP port", conn.raw.RemoteAddr(), fmt.Errorf("%s has the most, %d are open, and the limit is %d", h.name, open, limit))
}

// leaveLocked counts the connection no more.
func (c *clientConn) leaveLocked() {
	p, h := c.pool, c.holder
	if h == nil {
		return
	}
	h.listOf(c.active).Remove(c.at)
	c.holder = nil
	p.count--
	if heap.Fix(&p.most, h.at); h.count() == 0 {
		heap.Remove(&p.most, h.at)
		delete(p.holders, h.name)
	}
}

// changed is called by net/http for each change of a connection's state.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	client, is := conn.(*clientConn)
	if !is || state != http.StateIdle && state != http.StateActive {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := client.holder; h != nil {
		h.listOf(client.active).Remove(client.at)
		client.active = state == http.StateActive
		client.at = h.listOf(client.active).PushBack(client)
	}
}

// listener accepts the connections of clients; config is for TLS, nil: none.
type listener struct {
	net.Listener
	all    *connections
	config *tls.Config
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	var raw net.Conn
	var host string
	for wait := time.Duration(1); wait > 0; {
		if raw != nil {
			_ = raw.Close()
		}
		var err error
		if raw, err = l.Listener.Accept(); err != nil {
			return nil, err
		}
		if host, wait = hostKey(raw.RemoteAddr().String()), 0; l.config != nil {
			wait = l.all.accepts.take(host, 1, time.Now())
		}
	}
	conn := &clientConn{Conn: raw, raw: raw, all: l.all, host: host}
	if l.config != nil {
		conn.secure = tls.Server(raw, l.config)
		conn.Conn = conn.secure
	}
	conn.credit.Store(freeUnits)
	if l.all.apart {
		conn.payer.Store(&payer{l.all.strangerWork, conn.host, true})
		l.all.enter(conn, &l.all.strangers, conn.host)
	} else {
		conn.payer.Store(&payer{l.all.callerWork, conn.host, false})
		l.all.enter(conn, &l.all.callers, conn.host)
	}
	return conn, nil
}
