package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const leader = "10.0.0.1:7070"

// getJob and execute are calls of the node. purge is a call that the node accepts only outside
// streams.
const (
	getJob  = conductordv1connect.BoardServiceGetJobProcedure
	execute = conductordv1connect.BoardServiceExecuteProcedure
	purge   = conductordv1connect.BoardServicePurgeProcedure
)

// node is a server with two calls. The test decides what GetJob does; Execute waits until
// its caller gives up.
type node struct {
	conductordv1connect.UnimplementedBoardServiceHandler
	conductordv1connect.UnimplementedStreamServiceHandler
	get  func(ctx context.Context, request *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error)
	stop context.CancelFunc // ends all calls, like a stopping node

	mu      sync.Mutex
	carried []string // procedures that were answered on streams
	ends    []error  // errors of the contexts of Execute
}

func (n *node) GetJob(ctx context.Context, request *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
	return n.get(ctx, request)
}

func (n *node) Execute(ctx context.Context, _ *connect.Request[v1.ExecuteRequest]) (*connect.Response[v1.ExecuteResponse], error) {
	<-ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, ctx.Err())
	return nil, wire.ErrorToConnect(ctx.Err())
}

func (n *node) answered() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.carried...)
}

func (n *node) ended() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.ends...)
}

// echo answers with a job of the requested id.
func echo(_ context.Context, request *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
	answer := connect.NewResponse(&v1.GetJobResponse{Job: &v1.Job{Id: request.Msg.GetId()}})
	answer.Header().Set(wire.HeaderIndex, "17")
	answer.Header().Set(wire.HeaderAge, "1.5s")
	answer.Header().Set(wire.HeaderLeader, leader)
	return answer, nil
}

// start runs a node over pipes instead of a network, and returns a client for it. Without streams
// it does not support them.
func start(t *testing.T, n *node, streams conductordv1connect.StreamServiceHandler) *http.Client {
	t.Helper()
	if n.get == nil {
		n.get = echo
	}
	mux := http.NewServeMux()
	mux.Handle(conductordv1connect.NewBoardServiceHandler(n, wire.HandlerOptions()...))
	switch s := streams.(type) {
	case nil:
	case *stream.Server:
		mux.Handle(s.Handler(wire.HandlerOptions()...))
	default:
		mux.Handle(conductordv1connect.NewStreamServiceHandler(s, wire.HandlerOptions()...))
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	var life context.Context
	life, n.stop = context.WithCancel(context.Background())
	pipes := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{
		Handler: mux, Protocols: protocols, BaseContext: func(net.Listener) context.Context { return life },
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2 * stream.MaxStreams},
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(pipes) }()
	transport := &http.Transport{Protocols: protocols, DialContext: pipes.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		n.stop()
		_ = server.Close()
		<-ended
	})
	return &http.Client{Transport: transport}
}

// server accepts calls on streams.
func (n *node) server() *stream.Server {
	return stream.NewServer(stream.ServerOptions{
		Offers: []stream.Offer{stream.Offered(getJob, n.GetJob), stream.Offered(execute, n.Execute)},
		Leader: func() string { return leader },
		Called: func(procedure string, _ time.Duration, _ error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.carried = append(n.carried, procedure)
		},
		Panicked: func(string, any, []byte) error { return jobs.ErrUncertain },
		Patience: time.Minute,
	})
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070} }

const base = "http://node"

// caller makes a Caller, whose goroutines must end before the end of the test.
func caller(t *testing.T, client *http.Client) *stream.Caller {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { end(); work.Wait() })
	return stream.NewCaller(stream.CallerOptions{
		Node: conductordv1connect.NewStreamServiceClient(client, base, wire.ClientOptions()...),
		Life: life,
		Spawn: func(run func()) bool {
			work.Go(run)
			return true
		},
	})
}

// standing makes a Caller, and waits until its stream is open.
func standing(t *testing.T, client *http.Client) *stream.Caller {
	t.Helper()
	c := caller(t, client)
	c.Want()
	synctest.Wait()
	if !c.Ready() {
		t.Fatal("there is no stream")
	}
	return c
}

// get asks for a job on the stream.
func get(ctx context.Context, c *stream.Caller, id string) (*v1.GetJobResponse, stream.Heard, error) {
	answer := new(v1.GetJobResponse)
	heard, err := c.Do(ctx, stream.Call{Procedure: getJob, Message: &v1.GetJobRequest{Id: id}}, answer)
	return answer, heard, err
}

// plain reads the job with a plain call.
func plain(ctx context.Context, client *http.Client, id string) (*v1.GetJobResponse, error) {
	board := conductordv1connect.NewBoardServiceClient(client, base, wire.ClientOptions()...)
	answer, err := board.GetJob(ctx, connect.NewRequest(&v1.GetJobRequest{Id: id}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// told returns the parts of an error that its caller sees.
func told(err error) string {
	kinds := ""
	for _, kind := range []error{
		jobs.ErrUncertain, jobs.ErrUnavailable, jobs.ErrNotFound, jobs.ErrFenced, jobs.ErrInvalid, jobs.ErrLimit,
		jobs.ErrNotAllowed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(wire.ErrorFromConnect(err), kind) {
			kinds += fmt.Sprintf("%q ", kind)
		}
	}
	return fmt.Sprintf("%skind %sfrom the node %t: %v", connect.CodeOf(err), kinds, connect.IsWireError(err), wire.ErrorFromConnect(err))
}
