package admission

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

const (
	// freeUnits is the number of units that a new connection can use at once. It lets a client
	// authenticate even if other clients of its address have used all units. maxCredit limits the
	// credit that a connection earns with answers.
	freeUnits, maxCredit = 32, 1_024
	// bytesOfUnit is the number of bytes of a stranger's input, or of a header, that cost one unit.
	// writtenUnit is the number of answer bytes that earn one unit: the caller's frames report how
	// much it has read.
	bytesOfUnit, writtenUnit = 256, 1 << 10
	// refusedUnits is the cost of a caller's refused call, in addition to its frames.
	// strangerRequest is the cost of a request without a caller. These costs keep floods of such
	// requests from using up the processors.
	refusedUnits, strangerRequest = 64, 16
	// LookUnits is the cost of one search of a watch for new events.
	LookUnits = 10
	// eventsOfUnit is the number of events that a watch reads for one unit. Each decoded event
	// costs one additional unit.
	eventsOfUnit = 64
)

// Conn is a connection to the HTTP port. It does the TLS handshake itself, so that it can count the
// frames of HTTP/2. It pays for everything that it reads: while its payer is in debt, it reads
// nothing.
type Conn struct {
	net.Conn // in plain text
	raw      *firstByte
	secure   *tls.Conn            // nil: without TLS
	shaken   *tls.ConnectionState // after the handshake
	failed   error                // of the handshake: nothing is read after it
	all      *connections
	host     string

	payer  atomic.Pointer[payer] // nil: no payment
	credit atomic.Int64          // units that it can use in spite of debts
	closed atomic.Bool
	noted  atomic.Int64 // time of the last note of the host as known, in Unix seconds
	frames frames       // of the read bytes

	// Guarded by all.mu:
	pool   *pool
	holder *holder // nil: not counted
	at     *list.Element
	state  int // idle or active
}

// firstByte is a connection that can wait for its first byte before the reader needs it.
type firstByte struct {
	net.Conn
	first [1]byte
	has   bool // first is a byte that was not read yet
}

// await waits for the first byte.
func (f *firstByte) await() error {
	n, err := f.Conn.Read(f.first[:])
	f.has = n > 0
	return err
}

// Read implements net.Conn.
func (f *firstByte) Read(into []byte) (int, error) {
	if f.has && len(into) > 0 {
		f.has = false
		return copy(into, f.first[:]), nil
	}
	return f.Conn.Read(into)
}

// payer is the holder that pays for the work of a connection.
type payer struct {
	meter    *meter
	name     string
	stranger bool
}

// connKey is the key of the connection in a call's context.
type connKey struct{}

// ConnOf is the connection of a call; nil: it came through the socket, or from this process.
func ConnOf(ctx context.Context) *Conn {
	conn, _ := ctx.Value(connKey{}).(*Conn)
	return conn
}

// Authenticated counts the connection for a caller that was authenticated on it.
func (c *Conn) Authenticated(who *Caller) {
	if c == nil {
		return
	}
	c.noteHost()
	switch {
	case who.Trusted():
		c.trust()
	default:
		if p := c.payer.Load(); p != nil && (p.stranger || p.name != who.Name) {
			c.belongTo(who.Name, false)
		}
	}
}

// noteHost records the host as known, because a caller was authenticated there.
func (c *Conn) noteHost() {
	now := time.Now()
	if now.Unix()-c.noted.Load() > int64(renoteHost/time.Second) {
		c.noted.Store(now.Unix())
		c.all.known.note(c.host, now)
	}
}

func (c *Conn) belongTo(name string, stranger bool) {
	if stranger {
		c.payer.Store(&payer{c.all.strangerWork, name, true})
		c.all.enter(c, &c.all.strangers, name)
		return
	}
	c.credit.Store(0) // the free units were for the authentication
	c.payer.Store(&payer{c.all.callerWork, name, false})
	c.all.enter(c, &c.all.callers, name)
}

// trust removes all limits from the connection.
func (c *Conn) trust() {
	if c == nil {
		return
	}
	c.noteHost()
	if c.payer.Swap(nil) == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.leaveLocked()
}

// Trusted reports whether the connection belongs to a node, and so has no limits.
func (c *Conn) Trusted() bool { return c != nil && c.payer.Load() == nil }

// Read implements net.Conn.
func (c *Conn) Read(into []byte) (int, error) {
	if c.secure != nil && c.shaken == nil {
		if c.failed == nil {
			c.failed = c.shakeHands()
		}
		if c.failed != nil {
			return 0, c.failed
		}
	}
	if c.credit.Load() <= 0 {
		if err := c.Turn(0); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(into)
	c.pay(c.frames.count(into[:n]), n)
	return n, err
}

// shakeHands performs the TLS handshake when the client's host has units left. A client that has
// sent nothing uses no unit.
func (c *Conn) shakeHands() error {
	now := time.Now()
	err := c.raw.await()
	if err == nil {
		err = c.await(c.all.entryOf(c.host, now).handshakes, c.host, 1, now.Add(readHeaderTimeout))
	}
	if err == nil {
		err = c.secure.Handshake()
	}
	if err != nil {
		c.all.log.Warn(c.all.logger, "a TLS handshake at the HTTP port has failed", c.raw.RemoteAddr(), err)
		return err
	}
	state := c.secure.ConnectionState()
	c.shaken = &state
	return nil
}

// await waits until the meter allows n units, but not longer than until. Zero: without limit.
func (c *Conn) await(m *meter, name string, n int64, until time.Time) error {
	for {
		now := time.Now()
		wait := m.take(name, n, now)
		switch {
		case c.closed.Load():
			return net.ErrClosed
		case !until.IsZero() && now.After(until):
			return os.ErrDeadlineExceeded
		case wait == 0:
			return nil
		}
		time.Sleep(wait)
	}
}

// Turn waits until the payer can use n units of work.
func (c *Conn) Turn(n int64) error {
	if c != nil {
		if p := c.payer.Load(); p != nil {
			return c.await(p.meter, p.name, n, time.Time{})
		}
	}
	return nil
}

// pay charges the payer for units, and an unknown caller also for the read bytes. It does not wait.
func (c *Conn) pay(units int64, read int) {
	p := c.payer.Load()
	if p == nil {
		return
	}
	if p.stranger {
		units += int64(read / bytesOfUnit)
	}
	if units > 0 && c.credit.Add(-units) < 0 {
		p.meter.add(p.name, -c.credit.Swap(0))
	}
}

// PayEvents pays for the events that a watch has read, and for the decoded events. It does not
// wait; the next Turn does.
func (c *Conn) PayEvents(read, decoded int) {
	if c == nil {
		return
	}
	if p := c.payer.Load(); p != nil {
		p.meter.add(p.name, int64(read/eventsOfUnit+decoded))
	}
}

// payRequest pays for a request of a stranger.
func (c *Conn) payRequest() {
	if c == nil {
		return
	}
	if p := c.payer.Load(); p != nil && p.stranger {
		c.pay(strangerRequest, 0)
	}
}

// PayRefusal pays for a call if it was refused.
func (c *Conn) PayRefusal(err error) {
	switch kind := wire.ErrorFromConnect(err); {
	case c == nil || err == nil:
	case errors.Is(kind, jobs.ErrLimit), errors.Is(kind, jobs.ErrOverloaded), errors.Is(kind, jobs.ErrNotAllowed):
		c.pay(refusedUnits, 0)
	}
}

// Write implements net.Conn.
func (c *Conn) Write(data []byte) (int, error) {
	if p := c.payer.Load(); p != nil && !p.stranger && c.credit.Load() < maxCredit {
		c.credit.Add(int64(len(data) / writtenUnit))
	}
	return c.Conn.Write(data)
}

// CloseWrite sends the client the end of the stream. With it, net/http lets the client read an
// answer before the connection closes.
func (c *Conn) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.closed.Store(true)
	c.all.mu.Lock()
	c.leaveLocked()
	c.all.mu.Unlock()
	return c.Conn.Close()
}

const headersFrame, continuationFrame = 1, 9

// preface is the first line that a client sends on an HTTP/2 connection.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frames counts the HTTP/2 frames in a client's input.
type frames struct {
	begun int  // received bytes of the preface
	plain bool // not HTTP/2
	head  [9]byte
	have  int // received bytes of head
	left  int // remaining bytes of the payload
}

// count returns the units of the frames that start in the next bytes: one per frame, and more for
// headers.
func (f *frames) count(data []byte) (units int64) {
	for len(data) > 0 && !f.plain {
		switch {
		case f.begun < len(preface):
			f.plain = data[0] != preface[f.begun]
			f.begun++
			data = data[1:]
		case f.left > 0:
			part := min(f.left, len(data))
			f.left -= part
			data = data[part:]
		default:
			part := copy(f.head[f.have:], data)
			f.have += part
			data = data[part:]
			if f.have == len(f.head) {
				f.have, f.left = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
				units++
				if kind := f.head[3]; kind == headersFrame || kind == continuationFrame {
					units += int64(f.left / bytesOfUnit)
				}
			}
		}
	}
	return units
}
