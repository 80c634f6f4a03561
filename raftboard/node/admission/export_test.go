package admission

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Internals that the tests of this package use.

// Meter is shared by holders.
type Meter struct{ *meter }

func NewBudget(total, each int64) *Budget { return &Budget{total: total, each: each} }

func (b *Budget) Take(holder string, n int64) bool { return b.take(holder, n, 0) }
func (b *Budget) Give(holder string, n int64)      { b.give(holder, n) }

// NewMeter makes a meter that allows a number of units per span.
func NewMeter(total int64) Meter {
	return Meter{&meter{span: workSpan, total: total * meterParts, used: map[string]int64{}}}
}

func (m Meter) Take(holder string, n int64, now time.Time) time.Duration {
	return m.take(holder, n, now)
}

const (
	MeterSpan = workSpan
	Preface   = preface
)

// CountFrames counts the sent frames, in reads of a given size.
func CountFrames(sent []byte, size int) (n int64) {
	var f frames
	for ; len(sent) > 0; sent = sent[min(size, len(sent)):] {
		n += f.count(sent[:min(size, len(sent))])
	}
	return n
}

// FloodConnections returns how long so many connections take beyond a bound.
func FloodConnections(limit, more int) time.Duration {
	c := newConnections(hclog.NewNullLogger(), true)
	c.strangers.limit = limit
	enter := func(i int) {
		near, _ := net.Pipe()
		c.enter(&Conn{Conn: near, raw: &firstByte{Conn: near}, all: c}, &c.strangers, fmt.Sprint(i%1_000))
	}
	for i := range limit {
		enter(i)
	}
	began := time.Now()
	for i := range more {
		enter(i)
	}
	return time.Since(began)
}

// BodyWithoutRoom lets a call read a body for which there is no memory, and returns the memory that
// the call took.
func BodyWithoutRoom(request *http.Request) (taken int, err error) {
	var body bytes.Buffer
	e := &exchange{all: newExchanges(hclog.NewNullLogger(), 0, false), request: request}
	err = e.read(&body)
	return body.Cap(), err
}

// NewRefusalLog returns a function that logs a refused connection.
func NewRefusalLog(logger hclog.Logger) func(remote string, reason error) {
	var log RefusalLog
	return func(remote string, reason error) { log.Warn(logger, "refused", remote, reason) }
}

// Limits of the log of refused connections.
const (
	RefusalLines   = refusalLines
	RefusalPeriod  = refusalPeriod
	MaxRefusalText = maxRefusalText
)

// KnownHosts are hosts from which callers were authenticated.
type KnownHosts = knownHosts

// Note notes a host, and Has reports whether it is known.
func (k *knownHosts) Note(host string, now time.Time)     { k.note(host, now) }
func (k *knownHosts) Has(host string, now time.Time) bool { return k.has(host, now) }

// Limits of the known hosts.
const (
	MaxKnownHosts = maxKnownHosts
	KnownFor      = knownFor
)

// Entries limits the connections and handshakes that each host can start.
type Entries struct{ all *connections }

// NewEntries makes the Entries of a node with access control.
func NewEntries() Entries { return Entries{newConnections(hclog.NewNullLogger(), true)} }

// Authenticated notes that a caller was authenticated at a host.
func (e Entries) Authenticated(host string, now time.Time) { e.all.known.note(host, now) }

// Shake reports whether a host may start a handshake.
func (e Entries) Shake(host string, now time.Time) bool {
	return e.all.entryOf(host, now).handshakes.take(host, 1, now) == 0
}

// HandshakesOfSilent is the number of handshakes that are counted for a host whose connection ends
// before it sends a byte.
func HandshakesOfSilent() int64 {
	all := newConnections(hclog.NewNullLogger(), true)
	near, far := net.Pipe()
	_ = far.Close()
	conn := &Conn{Conn: near, raw: &firstByte{Conn: near}, all: all, host: "silent"}
	conn.secure = tls.Server(conn.raw, &tls.Config{})
	_, _ = conn.Read(make([]byte, 1))
	return all.ofOthers.handshakes.used["silent"] / meterParts
}
