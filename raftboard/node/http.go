package node

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/conductord/conductord/raftboard/wire"
)

// Bounds of the HTTP port.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxStreams        = 1_000 // calls at once on one HTTP/2 connection: a client's long polls share one
	stopPatience      = 2 * time.Second
)

// Pages that are answered to everybody.
const (
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

const metricsPath = "/metrics"

// apiServer is the HTTP port.
type apiServer struct {
	exchanges   *exchanges
	connections *connections
	requestRate atomic.Int64       // of each connection; tests lower it
	server      *http.Server       // nil: not opened
	stopCalls   context.CancelFunc // ends long polls and watches
	address     net.Addr
}

func newAPIServer(o Options) *apiServer {
	logger := o.Logger.Named("http")
	a := &apiServer{exchanges: newExchanges(logger, o.Memory, o.AccessControl), connections: newConnections(logger, o.AccessControl)}
	a.requestRate.Store(maxRequestRate)
	return a
}

// serve answers calls at the listeners until stop. Its goroutines end then.
func (a *apiServer) serve(listeners []net.Listener, handler http.Handler, logger hclog.Logger, routines *sync.WaitGroup, fatal func(error)) {
	a.address = listeners[0].Addr()
	ctx, cancel := context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	a.server = &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: clientPatience},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(&httpErrors{logger: logger}, "", 0),
		ConnState:         a.connections.changed,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return a.withPace(withClient(ctx, conn), conn)
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	a.server.RegisterOnShutdown(cancel) // long polls and watches end, so that Shutdown can
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

func (a *apiServer) stop() error {
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

// httpErrors gets what net/http logs of connections, a line each, and bounds its rate.
type httpErrors struct {
	logger hclog.Logger
	log    refusalLog
}

// Write implements io.Writer.
func (h *httpErrors) Write(line []byte) (int, error) {
	h.log.warn(h.logger, "a connection to the HTTP port has failed", "", errors.New(strings.TrimSpace(string(line))))
	return len(line), nil
}

// handler serves the API, health and metrics.
func (s *services) handler(metrics *nodeMetrics, registry *prometheus.Registry, panics *panics) http.Handler {
	options := append(wire.HandlerOptions(), panics.option(), connect.WithInterceptors(&observing{metrics, s.router.leader}))
	mux := http.NewServeMux()
	calls := s.calls()
	for _, c := range calls {
		mux.Handle(wire.Prefix+c.name, c.handler(options...))
	}
	watch := connect.NewServerStreamHandler(wire.Prefix+watchCall, s.watches.Watch, options...)
	mux.Handle(wire.Prefix+watchCall, s.watches.lines(watch))
	mux.Handle(wire.Prefix+backupCall, s.backups.file(connect.NewServerStreamHandler(wire.Prefix+backupCall, s.backups.Backup, options...)))
	path, streams := s.streams(calls, metrics, panics).Handler(options...)
	mux.Handle(path, s.router.guard.whileKnown(streams))
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := s.router.ready.check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET "+metricsPath, s.router.guard.page(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	return mux
}

// withPages has what is below a path answered by the handler of pages, and a browser that asks
// for the root sent there. Everything else goes to the API.
func (a *apiServer) withPages(api http.Handler, g *guard, o Options) http.Handler {
	if o.Pages == nil {
		return api
	}
	path, shown := o.PagesPath, g.recognized(o.PageToken, a.exchanges.bound(o.Pages(api)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, path):
			shown.ServeHTTP(w, r)
		case r.Method == http.MethodGet && (r.URL.Path == "/" || r.URL.Path+"/" == path) && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, path, http.StatusFound)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// observing puts the leader's address on every answer and counts the calls.
type observing struct {
	metrics *nodeMetrics
	leader  *leaderState
}

// WrapUnary counts a call with one answer, and adds the leader's address to it.
func (o *observing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		answer, err := next(ctx, request)
		o.metrics.called(request.Spec().Procedure, time.Since(began), err)
		connOf(ctx).payRefusal(err)
		leader, known := o.leader.known()
		if !known {
			return answer, err
		}
		var failed *connect.Error
		switch {
		case err == nil:
			answer.Header().Set(wire.HeaderLeader, leader.API)
		case errors.As(err, &failed):
			failed.Meta().Set(wire.HeaderLeader, leader.API)
		}
		return answer, err
	}
}

// WrapStreamingClient is not used by a server.
func (o *observing) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler counts streams.
func (o *observing) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		began := time.Now()
		err := next(ctx, conn)
		o.metrics.called(conn.Spec().Procedure, time.Since(began), err)
		connOf(ctx).payRefusal(err)
		return err
	}
}

// procedureName makes "BoardService/Post" of "/conductord.v1.BoardService/Post".
func procedureName(procedure string) string {
	return strings.TrimPrefix(procedure, wire.Prefix)
}
