package stream

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// ServerOptions configures a node's handling of calls on streams.
type ServerOptions struct {
	Offers []Offer
	// Leader is the address of the leader's API, empty if there is none. Every message carries
	// it.
	Leader func() string
	// Called is called after every answered call.
	Called func(procedure string, took time.Duration, err error)
	// Panicked is called with the panic of a handler, and its stack. It returns the answer to the
	// call.
	Panicked func(procedure string, cause any, stack []byte) error
	// Pace is called with the stream's context for each message of calls, and returns when the
	// message may be accepted. nil: at once
	Pace func(ctx context.Context)
	// Short reports that the node is short of memory: each stream then has a smaller budget. nil:
	// never
	Short func() bool
	// Patience is the maximum time for which the reader of a stream can accept nothing.
	Patience time.Duration
}

// Server is a node's end of all streams.
type Server struct {
	options ServerOptions
	offers  map[string]Offer
	names   []string
	streams atomic.Int64
	idle    atomic.Int64 // waiting goroutines beyond maxIdle of their streams
}

// NewServer makes a Server.
func NewServer(options ServerOptions) *Server {
	s := &Server{options: options, offers: make(map[string]Offer, len(options.Offers))}
	for _, offer := range options.Offers {
		name := offer.procedure[len(prefix):]
		s.offers[name] = offer
		s.names = append(s.names, name)
	}
	return s
}

// leaveIdle ends the wait of a goroutine.
func (s *Server) leaveIdle() { s.idle.Add(-1) }

// budget is the number of bytes that each stream can make the node hold.
func (s *Server) budget() int {
	if s.options.Short != nil && s.options.Short() {
		return shortBytes
	}
	return maxBytes
}

// controllerKey is the key of a stream's controller in its context.
type controllerKey struct{}

// Handler returns the rpc's path and handler.
func (s *Server) Handler(options ...connect.HandlerOption) (string, http.Handler) {
	options = append(options[:len(options):len(options)], connect.WithReadMaxBytes(maxRequest))
	path, handler := conductordv1connect.NewStreamServiceHandler(s, options...)
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), controllerKey{}, http.NewResponseController(w))
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Carry implements conductordv1connect.StreamServiceHandler. It returns when the client has ended
// the stream and everything is answered, when the client has left, or when the node stops.
func (s *Server) Carry(ctx context.Context, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]) error {
	defer s.streams.Add(-1)
	if open := s.streams.Add(1); open > MaxStreams {
		return wire.ErrorToConnect(fmt.Errorf("%w: %d streams are already open", jobs.ErrUnavailable, MaxStreams))
	}
	controller, ok := ctx.Value(controllerKey{}).(*http.ResponseController)
	if !ok {
		panic("internal error: a stream that is not served by Handler")
	}
	return newServerStream(ctx, s, conn, controller).serve()
}
