package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
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

// apiServer is the HTTP port.
type apiServer struct {
	exchanges   *exchanges
	connections *connections
	server      *http.Server       // nil: not opened
	stopCalls   context.CancelFunc // ends long polls and watches
	address     net.Addr
}

// serve opens the HTTP port: the API, health and metrics.
func (n *Node) serve() error {
	listener, err := n.options.System.Listen(n.options.APIListen)
	if err != nil {
		return fmt.Errorf("cannot listen on the API port: %w", err)
	}
	n.api.address = listener.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	n.api.server = &http.Server{
		Handler:           n.handler(),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: clientPatience},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          n.logger.Named("http").StandardLogger(nil),
		ConnState:         n.api.connections.changed,
		ConnContext:       withClient,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	n.api.server.RegisterOnShutdown(cancel) // long polls and watches end, so that Shutdown can
	n.api.stopCalls = cancel
	n.routines.Go(func() { n.api.exchanges.run(ctx) })
	n.routines.Go(func() {
		if err := n.api.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.fatal(fmt.Errorf("the API port has stopped: %w", err))
		}
	})
	return nil
}

func (n *Node) stopHTTP() error {
	if n.api.server == nil {
		return nil
	}
	n.api.stopCalls()
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := n.api.server.Shutdown(ctx); err != nil {
		return n.api.server.Close()
	}
	return nil
}

func (n *Node) handler() http.Handler {
	options := append(wire.HandlerOptions(), connect.WithInterceptors(&observing{n}))
	mux := http.NewServeMux()
	calls := n.calls()
	for _, c := range calls {
		mux.Handle(wire.Prefix+c.name, c.handler(options...))
	}
	board := &boardService{n}
	watch := connect.NewServerStreamHandler(wire.Prefix+watchCall, board.Watch, options...)
	mux.Handle(wire.Prefix+watchCall, n.watchLines(board, watch))
	mux.Handle(n.streams(calls).Handler(options...))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := n.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.options.Metrics, promhttp.HandlerOpts{}))
	return n.api.exchanges.bound(mux)
}

// observing puts the leader's address on every answer and counts the calls.
type observing struct{ node *Node }

// WrapUnary does so for calls with one answer.
func (o *observing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		answer, err := next(ctx, request)
		o.node.metrics.called(request.Spec().Procedure, time.Since(began), err)
		leader, known := o.node.leader.known()
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
		o.node.metrics.called(conn.Spec().Procedure, time.Since(began), err)
		return err
	}
}

// procedureName makes "BoardService/Post" of "/conductord.v1.BoardService/Post".
func procedureName(procedure string) string {
	return strings.TrimPrefix(procedure, wire.Prefix)
}
