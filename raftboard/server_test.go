package raftboard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/raftboard"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fault is a node's behaviour for one call.
type fault string

const (
	answers    fault = "answers"
	dropBefore fault = "drops the connection before it acts"
	dropAfter  fault = "acts, and drops the connection"
	hangs      fault = "acts, and does not answer"
	refuses    fault = "unavailable"
	overloaded fault = "overloaded"
	unsure     fault = "uncertain"
	invalid    fault = "invalid"
	breaks     fault = "internal"
)

// script is the behaviour of a cluster: one fault for each call, in order of arrival at any
// node. The last fault repeats for all later calls. Calls of ClusterService have no fault. An
// abandoned call may still run beside the test, so the test reads the script only through the
// methods below.
type script struct {
	mu      sync.Mutex
	faults  []fault
	calls   []string            // "node method", in order
	applied map[string]int      // number of times each command took effect
	order   []string            // the commands in the order of their effects
	headers map[string][]string // Conductord-Min-Index of calls, by method
	waits   []time.Duration     // requested waits of ClaimNext
	index   uint64              // value of Conductord-Index
	carried int                 // calls that were answered on streams

	// These fields are set before the first call, and do not change.

	hold    chan struct{}  // if set, Execute and Post wait for it
	entered chan struct{}  // gets a value when Execute or Post starts
	begun   func(call int) // if set, called with each started call
	members []*v1.Member   // additional members in the answer to Status
	streams bool           // the nodes accept calls on streams
	poll    func(method string, n int) any
	claimed *v1.Job // if set, the job in the answer to Claim
	refuses func(*v1.Command) error
	age     func() string // if set, the Conductord-Age of answers
	watch   func(ctx context.Context, request *v1.WatchRequest, stream *connect.ServerStream[v1.WatchResponse], n int) error
}

// begin records a call and returns its fault.
func (s *script) begin(node, method string, header http.Header) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, node+" "+method)
	if s.begun != nil {
		s.begun(len(s.calls))
	}
	if s.headers == nil {
		s.headers = make(map[string][]string)
	}
	s.headers[method] = append(s.headers[method], header.Get(wire.HeaderMinIndex))
	if len(s.faults) == 0 {
		return answers
	}
	next := s.faults[0]
	if len(s.faults) > 1 {
		s.faults = s.faults[1:]
	}
	return next
}

func (s *script) asked(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, wait)
}

// count returns the number of calls of a method at a node; an empty node means any node.
func (s *script) count(node, method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, call := range s.calls {
		if call == node+" "+method || (node == "" && len(call) > len(method) && call[len(call)-len(method)-1:] == " "+method) {
			n++
		}
	}
	return n
}

// apply applies a command, and returns how often it arrived.
func (s *script) apply(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.applied == nil {
		s.applied = make(map[string]int)
	}
	s.applied[name]++
	s.order = append(s.order, name)
	return s.applied[name]
}

// commands returns how often each command took effect. Abandoned calls may still be running.
func (s *script) commands() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.applied)
}

func (s *script) total() int { return len(s.ordered()) }

// ordered are the commands in the order of their effects.
func (s *script) ordered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// waited are the requested waits of all ClaimNext calls.
func (s *script) waited() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waits)
}

// indexes returns the Conductord-Min-Index of the calls of a method.
func (s *script) indexes(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.headers[method])
}

// streamed counts a call that was answered on a stream.
func (s *script) streamed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carried++
}

// onStreams is the number of calls that were answered on streams.
func (s *script) onStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carried
}

// at sets the index of the answers.
func (s *script) at(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index = index
}

// answered returns the index for an answer.
func (s *script) answered() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index
}

// node is one server of a scripted cluster.
type node struct {
	conductordv1connect.UnimplementedBoardServiceHandler
	conductordv1connect.UnimplementedSessionServiceHandler
	conductordv1connect.UnimplementedLogbookServiceHandler
	conductordv1connect.UnimplementedClusterServiceHandler
	script  *script
	name    string
	address string
	leader  func() string
}

// board, sessions and logbook are the same node as separate services: several services have methods
// of the same name, such as Close.
type (
	boardService   struct{ *node }
	sessionService struct{ *node }
	logbookService struct{ *node }
	clusterService struct{ *node }
)

// start runs nodes that follow a script, and returns their addresses.
func start(t *testing.T, s *script, names ...string) []string {
	t.Helper()
	var addresses []string
	for _, name := range names {
		addresses = append(addresses, startNode(t, s, name, func() string { return "" }))
	}
	return addresses
}

func startNode(t *testing.T, s *script, name string, leader func() string) string {
	t.Helper()
	return serve(t, inMemory.listen(), s, name, leader)
}

// serve runs a node until the test ends.
func serve(t *testing.T, listener net.Listener, s *script, name string, leader func() string) string {
	t.Helper()
	n := &node{script: s, name: name, leader: leader}
	mux := http.NewServeMux()
	mux.Handle(conductordv1connect.NewBoardServiceHandler(boardService{n}, wire.HandlerOptions()...))
	mux.Handle(conductordv1connect.NewSessionServiceHandler(sessionService{n}, wire.HandlerOptions()...))
	mux.Handle(conductordv1connect.NewLogbookServiceHandler(logbookService{n}, wire.HandlerOptions()...))
	mux.Handle(conductordv1connect.NewClusterServiceHandler(clusterService{n}, wire.HandlerOptions()...))
	if s.streams {
		mux.Handle(n.streams().Handler(wire.HandlerOptions()...))
	}
	n.address = listener.Addr().String()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return n.address
}

// streams accepts a node's calls on streams.
func (n *node) streams() *stream.Server {
	return stream.NewServer(stream.ServerOptions{
		Offers: []stream.Offer{
			stream.Offered(conductordv1connect.BoardServicePostProcedure, boardService{n}.Post),
			stream.Offered(conductordv1connect.BoardServiceExecuteProcedure, boardService{n}.Execute),
			stream.Offered(conductordv1connect.BoardServiceGetJobProcedure, boardService{n}.GetJob),
			stream.Offered(conductordv1connect.BoardServiceWaitJobProcedure, boardService{n}.WaitJob),
			stream.Offered(conductordv1connect.BoardServiceClaimProcedure, boardService{n}.Claim),
			stream.Offered(conductordv1connect.BoardServiceClaimNextProcedure, boardService{n}.ClaimNext),
			stream.Offered(conductordv1connect.SessionServiceKeepAliveProcedure, sessionService{n}.KeepAlive),
			stream.Offered(conductordv1connect.LogbookServiceGetFlowProcedure, logbookService{n}.GetFlow),
		},
		Leader:   n.leader,
		Called:   func(string, time.Duration, error) { n.script.streamed() },
		Panicked: func(_ string, cause any, _ []byte) error { panic(cause) },
		Patience: time.Minute,
	})
}

// memory is a network within the process. A goroutine that waits for it waits for another
// goroutine, and not for the system. In a synctest bubble, time therefore passes only when all
// goroutines wait, and a busy machine delays no call.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener // by address
	last      int                        // port
}

var inMemory = &memory{listeners: make(map[string]*memoryListener)}

func (m *memory) listen() net.Listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	address := fmt.Sprintf("in-memory:%d", m.last)
	l := &memoryListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.listeners[address] = l
	return l
}

func (m *memory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr  { return l }
func (l *memoryListener) Network() string { return "memory" }
func (l *memoryListener) String() string  { return l.address }

// listen listens on a port of this machine.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// startHere runs nodes at ports of this machine.
func startHere(t *testing.T, s *script, names ...string) []string {
	t.Helper()
	var addresses []string
	for _, name := range names {
		addresses = append(addresses, serve(t, listen(t), s, name, func() string { return "" }))
	}
	return addresses
}

// nobody is an address without a listener.
func nobody() string { return "in-memory:65535" }

// nobodyHere is an address of this machine without a listener.
func nobodyHere(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	defer listener.Close()
	return listener.Addr().String()
}

// open makes a client of nodes in memory.
func open(t *testing.T, patience time.Duration, endpoints ...string) *raftboard.Client {
	t.Helper()
	return openWith(t, raftboard.Options{Endpoints: endpoints, Patience: patience})
}

func openWith(t *testing.T, o raftboard.Options) *raftboard.Client {
	t.Helper()
	transport := raftboard.NewTransport(inMemory.dial)
	t.Cleanup(transport.CloseIdleConnections)
	o.HTTPClient = &http.Client{Transport: transport}
	client, err := raftboard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// openHere makes a client of nodes at ports of this machine.
func openHere(t *testing.T, endpoints ...string) *raftboard.Client {
	t.Helper()
	client, err := raftboard.Open(t.Context(), raftboard.Options{Endpoints: endpoints, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// settled checks the effects of a bubble's goroutines when all of them are idle.
func settled(t *testing.T, what string, condition func() bool) {
	t.Helper()
	synctest.Wait()
	if !condition() {
		t.Fatalf("waited in vain for %s", what)
	}
}

// ending is a context whose deadline is controlled by the test, for example while a call is in
// flight.
type ending struct {
	context.Context
	over chan struct{}
	once sync.Once
}

func newEnding(ctx context.Context) *ending { return &ending{Context: ctx, over: make(chan struct{})} }

func (e *ending) end()                  { e.once.Do(func() { close(e.over) }) }
func (e *ending) Done() <-chan struct{} { return e.over }

func (e *ending) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// handle applies the script to a call. act applies the call's commands and makes the answer.
func handle[Req, Res any](ctx context.Context, n *node, method string, request *connect.Request[Req], act func() *Res) (*connect.Response[Res], error) {
	what := n.script.begin(n.name, method, request.Header())
	fail := func(err error) (*connect.Response[Res], error) {
		failed := wire.ErrorToConnect(err)
		if leader := n.leader(); leader != "" {
			failed.Meta().Set(wire.HeaderLeader, leader)
		}
		return nil, failed
	}
	switch what {
	case dropBefore:
		panic(http.ErrAbortHandler)
	case refuses, overloaded, unsure, invalid, breaks:
		return fail(command.ErrorFromProto(&v1.Error{Code: string(what), Message: "as the script says"}))
	}
	answer := connect.NewResponse(act())
	switch what {
	case dropAfter:
		panic(http.ErrAbortHandler)
	case hangs:
		<-ctx.Done()
		return fail(ctx.Err())
	}
	if leader := n.leader(); leader != "" {
		answer.Header().Set(wire.HeaderLeader, leader)
	}
	if index := n.script.answered(); index > 0 {
		answer.Header().Set(wire.HeaderIndex, strconv.FormatUint(index, 10))
	}
	if n.script.age != nil {
		answer.Header().Set(wire.HeaderAge, n.script.age())
	}
	return answer, nil
}

func (n clusterService) Status(_ context.Context, _ *connect.Request[v1.StatusRequest]) (*connect.Response[v1.StatusResponse], error) {
	return connect.NewResponse(&v1.StatusResponse{Node: n.name, State: "follower", Jobs: map[string]uint64{"claimed": 1}, Members: append([]*v1.Member{{Name: n.name}}, n.script.members...)}), nil
}

// held waits until the test releases packed calls.
func (n *node) held() {
	if n.script.hold != nil {
		n.script.entered <- struct{}{}
		<-n.script.hold
	}
}

func (n boardService) Post(ctx context.Context, request *connect.Request[v1.PostRequest]) (*connect.Response[v1.PostResponse], error) {
	n.held()
	return handle(ctx, n.node, "Post", request, func() *v1.PostResponse {
		answer := new(v1.PostResponse)
		for _, posting := range request.Msg.GetPostings() {
			existed := n.script.apply(posting.GetId()) > 1
			answer.Posted = append(answer.Posted, &v1.PostedJob{
				Existed: existed, Job: &v1.Job{Id: posting.GetId(), Board: "default", Name: posting.GetName(), State: "claimable"},
			})
		}
		return answer
	})
}

func (n boardService) Execute(ctx context.Context, request *connect.Request[v1.ExecuteRequest]) (*connect.Response[v1.ExecuteResponse], error) {
	n.held()
	if poll := n.script.poll; poll != nil {
		if failed, ok := poll("Execute", len(request.Msg.GetCommands())).(error); ok {
			n.script.begin(n.name, "Execute", request.Header())
			return nil, wire.ErrorToConnect(failed)
		}
	}
	return handle(ctx, n.node, "Execute", request, func() *v1.ExecuteResponse {
		answer := new(v1.ExecuteResponse)
		for _, c := range request.Msg.GetCommands() {
			answer.Results = append(answer.Results, n.execute(c))
		}
		return answer
	})
}

// execute answers a command like a state machine that only counts how often each command arrived.
func (n *node) execute(c *v1.Command) *v1.Result {
	if n.script.refuses != nil {
		if err := n.script.refuses(c); err != nil {
			return &v1.Result{Error: command.ErrorToProto(err)}
		}
	}
	name := command.Name(c)
	if update := c.GetUpdateFlow(); update != nil {
		name = fmt.Sprintf("update %d", update.GetSequence())
	}
	if entity := c.GetRegister().GetEntity(); entity != nil {
		name = "register " + entity.GetName()
	}
	again := n.script.apply(name) > 1
	switch {
	case c.GetCloseSession() != nil && again:
		return &v1.Result{Error: &v1.Error{Code: command.CodeSessionExpired}}
	case c.GetDestroyBook() != nil && again:
		return &v1.Result{Error: &v1.Error{Code: command.CodeNotFound}}
	}
	return &v1.Result{}
}

func (n boardService) GetJob(ctx context.Context, request *connect.Request[v1.GetJobRequest]) (*connect.Response[v1.GetJobResponse], error) {
	return handle(ctx, n.node, "GetJob", request, func() *v1.GetJobResponse {
		return &v1.GetJobResponse{Job: &v1.Job{Id: request.Msg.GetId(), Board: "default", Name: "j", State: "claimable"}}
	})
}

// polled makes a call that the test's poll function answers.
func polled[Req, Res any](ctx context.Context, n *node, method string, request *connect.Request[Req]) (*connect.Response[Res], error) {
	var failure error
	answer, err := handle(ctx, n, method, request, func() *Res {
		switch given := n.script.poll(method, n.script.count("", method)).(type) {
		case *Res:
			return given
		case error:
			failure = given
		}
		return new(Res)
	})
	if err == nil && failure != nil {
		return nil, wire.ErrorToConnect(failure)
	}
	return answer, err
}

func (n boardService) WaitJob(ctx context.Context, request *connect.Request[v1.WaitJobRequest]) (*connect.Response[v1.WaitJobResponse], error) {
	return polled[v1.WaitJobRequest, v1.WaitJobResponse](ctx, n.node, "WaitJob", request)
}

func (n boardService) Claim(ctx context.Context, request *connect.Request[v1.ClaimCommand]) (*connect.Response[v1.ClaimResponse], error) {
	return handle(ctx, n.node, "Claim", request, func() *v1.ClaimResponse {
		n.script.apply("nonce " + request.Msg.GetNonce())
		if n.script.claimed != nil {
			return &v1.ClaimResponse{Claimed: &v1.Claimed{Job: n.script.claimed}}
		}
		return &v1.ClaimResponse{Claimed: &v1.Claimed{Job: held(request.Msg.GetJob(), request.Msg.GetSession(), ownToken, ownToken)}}
	})
}

func (n boardService) ClaimNext(ctx context.Context, request *connect.Request[v1.ClaimNextRequest]) (*connect.Response[v1.ClaimNextResponse], error) {
	n.script.apply("nonce " + request.Msg.GetClaim().GetNonce())
	n.script.asked(request.Msg.GetWait().AsDuration())
	return polled[v1.ClaimNextRequest, v1.ClaimNextResponse](ctx, n.node, "ClaimNext", request)
}

func (n logbookService) GetFlow(ctx context.Context, request *connect.Request[v1.GetFlowRequest]) (*connect.Response[v1.GetFlowResponse], error) {
	n.script.apply(fmt.Sprintf("skip %d", request.Msg.GetSkip()))
	return polled[v1.GetFlowRequest, v1.GetFlowResponse](ctx, n.node, "GetFlow", request)
}

func (n sessionService) Open(ctx context.Context, request *connect.Request[v1.OpenRequest]) (*connect.Response[v1.OpenResponse], error) {
	return handle(ctx, n.node, "Open", request, func() *v1.OpenResponse {
		n.script.apply("open_session")
		opening := request.Msg.GetOpening()
		return &v1.OpenResponse{Session: &v1.Session{Id: opening.GetId(), Name: opening.GetName(), Ttl: opening.GetTtl()}}
	})
}

func (n sessionService) KeepAlive(ctx context.Context, request *connect.Request[v1.KeepAliveRequest]) (*connect.Response[v1.Done], error) {
	return handle(ctx, n.node, "KeepAlive", request, func() *v1.Done {
		n.script.apply("keep-alive")
		return &v1.Done{}
	})
}

func (n boardService) Watch(ctx context.Context, request *connect.Request[v1.WatchRequest], stream *connect.ServerStream[v1.WatchResponse]) error {
	n.script.begin(n.name, "Watch", request.Header())
	err := n.script.watch(ctx, request.Msg, stream, n.script.count("", "Watch"))
	if errors.Is(err, http.ErrAbortHandler) {
		panic(err)
	}
	if err != nil {
		return wire.ErrorToConnect(err)
	}
	return nil
}
