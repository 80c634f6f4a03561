// Package admission limits the cost of clients for a node. It shares memory, disk and processors
// among principals, and among addresses for strangers.
//
// The nouns: a Caller is the authenticated sender of a call, and the holder that the call counts
// for. A Server is the HTTP port: it limits connections, requests, bodies and answers. A Budget
// limits the amounts that holders have at one time, and a meter limits the work of holders per
// time. Memory and Disk refuse new work while they are short. SessionShares and Watchers count
// sessions, watches and long polls, which last longer than a call.
//
// No holder gets more than is left for the others, so a flood from one holder leaves room for a
// newcomer. Nodes of the cluster, and operators at the socket, have no limit of their own.
//
// The package assumes that its user authenticates callers and reports them, with WithCaller and
// Conn.Authenticated, and that package wire limits messages.
package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Limits of the HTTP port.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxStreams        = 1_000 // parallel calls on one HTTP/2 connection: a client's long polls share one
	stopPatience      = 2 * time.Second
)

// Server is the HTTP port. Its methods may be called concurrently.
type Server struct {
	exchanges   *exchanges
	connections *connections
	requestRate atomic.Int64       // of each connection; see Tune
	server      *http.Server       // nil: not opened
	stopCalls   context.CancelFunc // ends long polls and watches
}

// NewServer makes the server of a node with a budget of memory, in bytes. apart: strangers have
// separate limits.
func NewServer(logger hclog.Logger, memory int64, apart bool) *Server {
	a := &Server{exchanges: newExchanges(logger, memory, apart), connections: newConnections(logger, apart)}
	a.requestRate.Store(maxRequestRate)
	return a
}

// Bound wraps a handler so that its calls have limits, after the given checks of their headers.
func (a *Server) Bound(next http.Handler, checks ...func(*http.Request) error) http.Handler {
	return a.exchanges.bound(next, checks...)
}

// Listener accepts the connections of clients, with TLS if there is a config.
func (a *Server) Listener(raw net.Listener, config *tls.Config) net.Listener {
	return &listener{Listener: raw, all: a.connections, config: config}
}

// Serve answers calls at the listeners until Stop, which also ends its goroutines.
func (a *Server) Serve(listeners []net.Listener, handler http.Handler, routines *sync.WaitGroup, fatal func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	a.server = &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: ClientPatience},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(&httpErrors{logger: a.exchanges.logger}, "", 0),
		ConnState:         a.connections.changed,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return a.withPace(withClient(ctx, conn), conn)
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	a.server.RegisterOnShutdown(cancel) // long polls and watches end, so that Shutdown can end
	a.stopCalls = cancel
	routines.Go(func() { a.exchanges.run(ctx) })
	for _, listener := range listeners {
		routines.Go(func() {
			if err := a.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				fatal(fmt.Errorf("the API at %s has stopped: %w", listener.Addr(), err))
			}
		})
	}
}

// Stop ends all calls, and gives each a short time to answer. It can be called on a server that
// never served.
func (a *Server) Stop() error {
	if a.server == nil {
		return nil
	}
	a.stopCalls()
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		return a.server.Close()
	}
	return nil
}

// httpErrors receives net/http's log lines about connections, and limits their rate.
type httpErrors struct {
	logger hclog.Logger
	log    RefusalLog
}

// Write implements io.Writer.
func (h *httpErrors) Write(line []byte) (int, error) {
	h.log.Warn(h.logger, "a connection to the HTTP port has failed", "", errors.New(strings.TrimSpace(string(line))))
	return len(line), nil
}

// Bounds are the limits of a server that tests can change while it serves.
type Bounds struct {
	Patience                   time.Duration // wait for a client that must send or read
	BodyBytes                  int64         // of all calls
	Rate                       int64         // requests per second on each new connection
	Callers, Strangers         int           // connections
	CallerUnits, StrangerUnits int64         // of work in workSpan
}

// Tune changes the limits, and clears the debts of holders.
func (a *Server) Tune(change func(*Bounds)) {
	x, c := a.exchanges, a.connections
	for _, mu := range []sync.Locker{&x.mu, &x.bodies.mu, &c.mu, &c.callerWork.mu, &c.strangerWork.mu} {
		mu.Lock()
		defer mu.Unlock()
	}
	b := Bounds{x.patience, x.bodies.total, a.requestRate.Load(), c.callers.limit, c.strangers.limit, c.callerWork.total / meterParts, c.strangerWork.total / meterParts}
	change(&b)
	x.patience, x.bodies.total, c.callers.limit, c.strangers.limit, c.callerWork.total, c.strangerWork.total = b.Patience, b.BodyBytes, b.Callers, b.Strangers, b.CallerUnits*meterParts, b.StrangerUnits*meterParts
	a.requestRate.Store(b.Rate)
	clear(c.callerWork.used)
	clear(c.strangerWork.used)
}

// Load is the current use of a server.
type Load struct {
	Waiting     int            // calls that wait for their clients
	Bytes       int64          // of bodies and unread answers
	Connections int            // of callers and unknown callers
	Strangers   map[string]int // connections of unknown callers, by address
}

// Load returns the current use of the server.
func (a *Server) Load() Load {
	x, c := a.exchanges, a.connections
	for _, mu := range []sync.Locker{&x.mu, &x.bodies.mu, &c.mu} {
		mu.Lock()
		defer mu.Unlock()
	}
	held := Load{len(x.waiting), x.bodies.used + x.answers, c.callers.count + c.strangers.count, map[string]int{}}
	for name, holder := range c.strangers.holders {
		held.Strangers[name] = holder.count()
	}
	return held
}
