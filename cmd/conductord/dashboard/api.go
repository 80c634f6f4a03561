package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/internal/inprocess"
	"github.com/conductord/conductord/raftboard/wire"
)

// api calls the node's API as one caller.
type api struct {
	board     conductordv1connect.BoardServiceClient
	sessions  conductordv1connect.SessionServiceClient
	logbook   conductordv1connect.LogbookServiceClient
	schedules conductordv1connect.ScheduleServiceClient
	access    conductordv1connect.AccessServiceClient
	cluster   conductordv1connect.ClusterServiceClient
	workers   conductordv1connect.WorkerServiceClient
	index     uint64 // the highest log index of an answer: later reads are at least as new
	first     uint64 // the highest log index of an answer: later reads are at least as new
}

// newAPI makes the clients for one request of a browser.
func newAPI(o *Options, browser *http.Request) *api {
	client, a := &http.Client{Transport: transport(o, browser)}, &api{}
	options := append(wire.ClientOptions(), connect.WithInterceptors(connect.UnaryInterceptorFunc(a.follow)))
	const base = "http://this.node"
	a.board = conductordv1connect.NewBoardServiceClient(client, base, options...)
	a.sessions = conductordv1connect.NewSessionServiceClient(client, base, options...)
	a.logbook = conductordv1connect.NewLogbookServiceClient(client, base, options...)
	a.schedules = conductordv1connect.NewScheduleServiceClient(client, base, options...)
	a.access = conductordv1connect.NewAccessServiceClient(client, base, options...)
	a.cluster = conductordv1connect.NewClusterServiceClient(client, base, options...)
	a.workers = conductordv1connect.NewWorkerServiceClient(client, base, options...)
	return a
}

// follow makes each read at least as new as the answers before it.
func (a *api) follow(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if a.index > 0 {
			request.Header().Set(wire.HeaderMinIndex, strconv.FormatUint(a.index, 10))
		}
		answer, err := next(ctx, request)
		if err != nil {
			return nil, wire.ErrorFromConnect(err)
		}
		if index, err := strconv.ParseUint(answer.Header().Get(wire.HeaderIndex), 10, 64); err == nil {
			a.index = max(a.index, index)
			if a.first == 0 {
				a.first = index
			}
		}
		return answer, nil
	}
}

// ask makes one call and returns its answer.
func ask[Req, Res any](ctx context.Context, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), message *Req) (*Res, error) {
	answer, err := call(ctx, connect.NewRequest(message))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// transport carries calls to the API in this process. A call has the token and the connection of
// the browser's request, and so its certificate, its address and whether it came by the socket.
func transport(o *Options, browser *http.Request) http.RoundTripper {
	return &inprocess.Transport{
		Handler: o.API,
		Prepare: func(call *http.Request) {
			call.RemoteAddr, call.TLS = browser.RemoteAddr, browser.TLS
			call.Proto, call.ProtoMajor, call.ProtoMinor = "HTTP/1.1", 1, 1
			if token := o.TokenOf(browser); token != "" {
				call.Header.Set("Authorization", "Bearer "+token)
			}
		},
		Panicked: func(call *http.Request, fault any, stack []byte) { // as by net/http: a call that panics must not stop the node
			o.Logger.Error("internal error: a call of the dashboard panicked", "call", call.URL.Path, "panic", fault, "stack", string(stack))
		},
	}
}

// errNoEvents: the API's watch of events has ended.
var errNoEvents = errors.New("the events of this node have ended")

// events calls woken when a watch starts and for each batch of its events, until the context ends.
func (a *api) events(ctx context.Context, wanted *v1.WatchRequest, woken func()) error {
	stream, err := a.board.Watch(ctx, connect.NewRequest(wanted))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for first := true; stream.Receive(); first = false {
		if first || len(stream.Msg().GetEvents()) > 0 { // the first message has no events: it comes after missed events
			woken()
		}
	}
	return errors.Join(stream.Err(), errNoEvents)
}
