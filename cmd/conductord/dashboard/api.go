package dashboard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/wire"
)

// api is the node's API in the name of one caller.
type api struct {
	board     conductordv1connect.BoardServiceClient
	sessions  conductordv1connect.SessionServiceClient
	logbook   conductordv1connect.LogbookServiceClient
	schedules conductordv1connect.ScheduleServiceClient
	access    conductordv1connect.AccessServiceClient
	cluster   conductordv1connect.ClusterServiceClient
	workers   conductordv1connect.WorkerServiceClient
	index     uint64 // the highest log index of an answer: later reads are at least as new
	first     uint64 // the log index of the first answer of a load; see visit.whole
}

// newAPI makes the clients for one request of a browser.
func newAPI(o *Options, browser *http.Request) *api {
	client, a := &http.Client{Transport: inProcess{o, browser}}, &api{}
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

// inProcess carries calls to a handler in this process. A call has the connection of the
// browser's request: its certificate, its address, and whether it came by the socket. It also
// has the request's token.
type inProcess struct {
	*Options
	browser *http.Request
}

// RoundTrip implements http.RoundTripper. The handler runs in a goroutine. The goroutine ends
// when the handler has answered, the call's context has ended, or the answer was closed.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	call := r.Clone(r.Context())
	call.RequestURI, call.RemoteAddr, call.TLS = r.URL.RequestURI(), t.browser.RemoteAddr, t.browser.TLS
	call.Proto, call.ProtoMajor, call.ProtoMinor = "HTTP/1.1", 1, 1
	if token := t.TokenOf(t.browser); token != "" {
		call.Header.Set("Authorization", "Bearer "+token)
	}
	if call.Body == nil {
		call.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	answer := &answerWriter{header: make(http.Header), began: make(chan struct{}), body: writer}
	go func() {
		defer func() {
			end := io.EOF
			if fault := recover(); fault != nil { // as net/http does: a call that fails so must not stop the node
				t.Logger.Error("internal error: a call of the dashboard panics", "call", call.URL.Path, "panic", fault, "stack", string(debug.Stack()))
				answer.WriteHeader(http.StatusInternalServerError)
				end = io.ErrUnexpectedEOF
			}
			answer.WriteHeader(http.StatusOK)
			_ = writer.CloseWithError(end)
		}()
		t.API.ServeHTTP(answer, call)
	}()
	stop := context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(r.Context().Err()) })
	select {
	case <-answer.began:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Header: answer.sent, Request: r, ContentLength: -1,
		Proto: call.Proto, ProtoMajor: 1, ProtoMinor: 1, Body: &answerBody{reader, stop},
	}, nil
}

// answerBody is the body of an answer; closing it ends the handler's writes.
type answerBody struct {
	*io.PipeReader
	stop func() bool
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.stop()
	return b.PipeReader.Close()
}

// answerWriter is the http.ResponseWriter of a call in this process.
type answerWriter struct {
	header http.Header
	once   sync.Once
	began  chan struct{} // closed when status and sent are set
	status int
	sent   http.Header
	body   *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	})
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(bytes.Clone(data))
}

// Flush implements http.Flusher. It does nothing: writes are delivered at once.
func (w *answerWriter) Flush() { w.WriteHeader(http.StatusOK) }

// errNoEvents: the API's watch of events has ended.
var errNoEvents = errors.New("the events of this node have ended")

// events calls woken when a watch begins and for each batch of events that it sends, until the context ends.
func (a *api) events(ctx context.Context, wanted *v1.WatchRequest, woken func()) error {
	stream, err := a.board.Watch(ctx, connect.NewRequest(wanted))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for first := true; stream.Receive(); first = false {
		if first || len(stream.Msg().GetEvents()) > 0 { // the first message has none: it comes after missed events
			woken()
		}
	}
	return errors.Join(stream.Err(), errNoEvents)
}
