package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/raftboard/wire"
)

// CallerOptions configures a Caller: its node, and the owner of its goroutines.
type CallerOptions struct {
	Node conductordv1connect.StreamServiceClient
	// Life ends the stream, and all goroutines.
	Life context.Context
	// Spawn runs a goroutine that ends with Life, or before. False: it did not run it.
	Spawn func(run func()) bool
}

// Caller makes calls to one node on a stream. Its methods may be called
// concurrently.
type Caller struct {
	options CallerOptions

	mu      sync.Mutex
	current *clientStream // nil: no stream is open
	opening bool          // a stream is open or being opened
	calls   int           // calls before the first stream
	pause   time.Time     // no stream is opened before this time
}

// NewCaller makes a Caller, which has no stream yet.
func NewCaller(options CallerOptions) *Caller { return &Caller{options: options} }

// Call is a request to a node.
type Call struct {
	Procedure string // "/conductord.v1.BoardService/Post"
	Message   proto.Message
	MinIndex  uint64 // a node that answers from its own state must have applied this index
}

// Heard is the data of an answer in addition to its message.
type Heard struct {
	Index  uint64 // log index that the answer includes; 0: unknown
	Leader string // address of the leader's API; empty: unknown
	Age    string // value of wire.HeaderAge
}

// Do makes a call and reads its answer. The error is a *connect.Error, as from a plain call, or
// ErrNotCarried. When ctx ends before the answer arrives, the node is notified, and the error is
// the context's.
func (c *Caller) Do(ctx context.Context, call Call, answer proto.Message) (Heard, error) {
	open := c.usable()
	if open == nil || !open.takes[call.Procedure] {
		return Heard{}, ErrNotCarried
	}
	// A message that cannot be encoded is left to the plain call, which refuses it.
	message, err := wire.ProtoCodec{}.Marshal(call.Message)
	if err != nil || len(message) > MaxCall {
		return Heard{}, ErrNotCarried
	}
	streamed := &v1.StreamedCall{Procedure: call.Procedure[len(prefix):], Message: message, MinIndex: call.MinIndex}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < time.Millisecond { // too little for the other end to count
			return Heard{}, ErrNotCarried
		}
		streamed.TimeoutMs = uint64(left / time.Millisecond)
	}
	reply, err := open.exchange(ctx, streamed)
	if err != nil {
		return Heard{}, err
	}
	return reply.read(answer)
}

// Ready reports whether a stream is open.
func (c *Caller) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current != nil
}

// Want opens a stream before the first calls.
func (c *Caller) Want() {
	c.mu.Lock()
	c.calls = openAfter
	c.mu.Unlock()
	c.usable()
}

// usable is the open stream; nil if there is none, and then one may be opened in the background.
func (c *Caller) usable() *clientStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil || c.opening {
		return c.current
	}
	if c.calls < openAfter {
		c.calls++
		return nil
	}
	if time.Now().After(c.pause) {
		c.opening = c.options.Spawn(c.keep)
	}
	return nil
}

// keep opens a stream and serves it until its end.
func (c *Caller) keep() {
	pause := refusedPause
	ctx, cancel := context.WithCancel(c.options.Life)
	defer cancel()
	if conn, takes, err := c.open(ctx, cancel); err == nil {
		s := newClientStream(ctx, cancel, conn, takes)
		c.set(s)
		pause = reopenPause
		if idle := s.serve(func() { c.set(nil) }); idle {
			pause = 0
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening, c.pause = false, time.Now().Add(pause)
}

func (c *Caller) set(s *clientStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = s
}

// open waits until the node has accepted a stream, and returns the procedures that it accepts.
func (c *Caller) open(ctx context.Context, cancel context.CancelFunc) (carryStream, map[string]bool, error) {
	tooLong := time.AfterFunc(openTime, cancel)
	defer tooLong.Stop()
	conn := c.options.Node.Carry(ctx)
	// net/http checks the context only after the end of the request.
	context.AfterFunc(ctx, func() { _ = conn.CloseRequest() })
	_ = conn.Send(&v1.CarryRequest{}) // the receive error has the reason of the failed send
	hello, err := conn.Receive()
	if err != nil {
		cancel() // so that closing does not wait for the rest of it
		_ = conn.CloseRequest()
		_ = conn.CloseResponse()
		return nil, nil, err
	}
	takes := make(map[string]bool, len(hello.GetProcedures()))
	for _, procedure := range hello.GetProcedures() {
		takes[prefix+procedure] = true
	}
	return conn, takes, nil
}
