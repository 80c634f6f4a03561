package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/wire"
)

// Pages that are answered to everybody.
const (
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

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
	mux.Handle(path, s.router.guard.WhileKnown(streams))
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := s.router.ready.Check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET "+guard.MetricsPath, s.router.guard.Page(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	return mux
}

// refusedOrigin refuses calls of the API from web pages. Only an attack makes them: its site's
// name resolves to this node's address (DNS rebinding).
func refusedOrigin(r *http.Request) error {
	if r.Header.Get("Origin") != "" {
		return wire.ErrorToConnect(fmt.Errorf("%w: web pages may not call the API; this request has an Origin header", jobs.ErrNotAllowed))
	}
	return nil
}

// withPages has what is below a path answered by the handler of pages, and a browser that asks
// for the root sent there. Everything else goes to the API.
func withPages(server *admission.Server, api http.Handler, g *guard.Guard, o Options) http.Handler {
	if o.Pages == nil {
		return api
	}
	path, shown := o.PagesPath, g.Recognized(o.PageToken, server.Bound(o.Pages(api)))
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
	leader  *lead.State
}

// WrapUnary counts a call with one answer, and adds the leader's address to it.
func (o *observing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		answer, err := next(ctx, request)
		o.metrics.called(request.Spec().Procedure, time.Since(began), err)
		admission.ConnOf(ctx).PayRefusal(err)
		leader, known := o.leader.Known()
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
		admission.ConnOf(ctx).PayRefusal(err)
		return err
	}
}

// procedureName makes "BoardService/Post" of "/conductord.v1.BoardService/Post".
func procedureName(procedure string) string {
	return strings.TrimPrefix(procedure, wire.Prefix)
}
