package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/node/admission"
	"github.com/conductord/conductord/raftboard/node/guard"
	"github.com/conductord/conductord/raftboard/node/lead"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// Pages that are available to every caller.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// Handler serves calls, health and metrics. called is called after every answered call.
func (a *API) Handler(calls []Call, called func(call string, took time.Duration, err error), metrics http.Handler, panics *Panics) http.Handler {
	r := a.Router
	options := append(wire.HandlerOptions(), panics.option(), connect.WithInterceptors(&observing{called, r.Leader}))
	mux := http.NewServeMux()
	for _, c := range calls {
		mux.Handle(wire.Prefix+c.Name, c.handler(options...))
	}
	path, streams := r.streams(calls, called, panics).Handler(options...)
	mux.Handle(path, r.Guard.WhileKnown(streams))
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		if err := r.Ready.Check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET "+guard.MetricsPath, r.Guard.Page(metrics))
	return mux
}

// streams answers the calls on streams, with the handlers of the plain calls.
func (r *Router) streams(calls []Call, called func(call string, took time.Duration, err error), panics *Panics) *stream.Server {
	var offers []stream.Offer
	for _, c := range calls {
		if c.offer != nil {
			offers = append(offers, *c.offer)
		}
	}
	return stream.NewServer(stream.ServerOptions{
		Offers: offers,
		Leader: func() string {
			leader, _ := r.Leader.Known()
			return leader.API
		},
		Called: func(procedure string, took time.Duration, err error) { called(procedureName(procedure), took, err) },
		Panicked: func(procedure string, cause any, stack []byte) error {
			return panics.note(procedureName(procedure), cause, stack)
		},
		Pace:     admission.KeepPace,
		Short:    r.Memory.Short,
		Patience: admission.ClientPatience,
	})
}

// RefusedOrigin refuses calls of the API from web pages. Only an attack makes such calls: the
// attacker's host name resolves to this node's address (DNS rebinding).
func RefusedOrigin(r *http.Request) error {
	if r.Header.Get("Origin") != "" {
		return wire.ErrorToConnect(fmt.Errorf("%w: web pages may not call the API; this request has an Origin header", jobs.ErrNotAllowed))
	}
	return nil
}

// observing puts the leader's address on every answer and counts the calls.
type observing struct {
	called func(call string, took time.Duration, err error)
	leader *lead.State
}

// WrapUnary counts a call with one answer, and adds the leader's address to it.
func (o *observing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		answer, err := next(ctx, request)
		o.called(procedureName(request.Spec().Procedure), time.Since(began), err)
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
		o.called(procedureName(conn.Spec().Procedure), time.Since(began), err)
		admission.ConnOf(ctx).PayRefusal(err)
		return err
	}
}

// procedureName converts "/conductord.v1.BoardService/Post" to "BoardService/Post".
func procedureName(procedure string) string {
	return strings.TrimPrefix(procedure, wire.Prefix)
}
