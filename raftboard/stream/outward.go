package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

// conveyor is the client's end of the rpc.
type conveyor interface {
	Send(*v1.CarryRequest) error
	Receive() (*v1.CarryResponse, error)
	CloseRequest() error
	CloseResponse() error
}

// outward is a stream that stands, at the client's end. One goroutine sends
// what waits, and one reads; both end with the stream.
type outward struct {
	ctx    context.Context
	cancel context.CancelFunc
	conn   conveyor
	takes  map[string]bool // procedures; fixed
	wake   chan struct{}   // holds one signal: something waits to be sent

	mu      sync.Mutex
	last    uint64 // number
	pending map[uint64]*pending
	calls   []*v1.StreamedCall // wait to be sent
	givenUp []uint64           // wait to be sent
	waiting int                // bytes in calls
	over    bool               // no further calls
	taken   uint64             // where the node has ended the stream: the last call that it has taken
	ending  bool               // the node has ended the stream
	idle    bool               // it was ended because it had nothing to do
}

// pending is a call on its way.
type pending struct {
	reply chan reply // holds one
	left  bool       // nobody waits for it any more; guarded by outward.mu
}

// reply is what came of a call. Without an answer there is an error.
type reply struct {
	answer *v1.StreamedAnswer
	leader string
	err    error
}

func newOutward(ctx context.Context, cancel context.CancelFunc, conn conveyor, takes map[string]bool) *outward {
	return &outward{
		ctx: ctx, cancel: cancel, conn: conn, takes: takes,
		wake: make(chan struct{}, 1), pending: make(map[uint64]*pending),
	}
}

// serve sends and reads until the stream is over. Over is called before the
// calls that were on it are settled. It tells whether the stream has ended for
// it had nothing to do.
func (o *outward) serve(over func()) (idle bool) {
	var sender sync.WaitGroup
	sender.Go(o.send)
	watch := o.endIdle()
	err := o.receive()
	watch.Stop()
	o.cancel()
	sender.Wait()
	_ = o.conn.CloseResponse()
	over()
	return o.settle(err)
}

// exchange sends a call and waits for what comes of it, or for ctx.
func (o *outward) exchange(ctx context.Context, call *v1.StreamedCall) (reply, error) {
	p := &pending{reply: make(chan reply, 1)}
	if !o.enqueue(call, p) {
		return reply{}, ErrNotCarried
	}
	select {
	case got := <-p.reply:
		return got, got.err
	case <-ctx.Done():
	}
	o.leave(call, p)
	code := connect.CodeCanceled
	if ctx.Err() == context.DeadlineExceeded {
		code = connect.CodeDeadlineExceeded
	}
	return reply{}, connect.NewError(code, ctx.Err())
}

// leave takes back a call that waits to be sent, and has the node told of one
// that was.
func (o *outward) leave(call *v1.StreamedCall, p *pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.left = true
	if o.pending[call.GetNumber()] != p {
		return // it has been answered
	}
	if place := slices.Index(o.calls, call); place >= 0 {
		o.calls = slices.Delete(o.calls, place, place+1)
		o.waiting -= len(call.GetMessage())
		delete(o.pending, call.GetNumber())
		return
	}
	o.givenUp = append(o.givenUp, call.GetNumber())
	o.signal()
}

// enqueue gives a call its number and has it sent. It tells whether there is
// room.
func (o *outward) enqueue(call *v1.StreamedCall, p *pending) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || len(o.pending) >= MaxCalls || o.waiting > wire.MaxMessage {
		return false
	}
	o.last++
	call.Number = o.last
	o.pending[o.last] = p
	o.calls = append(o.calls, call)
	o.waiting += len(call.GetMessage())
	o.signal()
	return true
}

func (o *outward) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// send sends what waits, several calls in a message, until the stream ends.
func (o *outward) send() {
	for {
		select {
		case <-o.ctx.Done():
			return
		case <-o.wake:
		}
		runtime.Gosched() // whoever is about to call goes along
		for message := o.next(); message != nil; message = o.next() {
			err := o.conn.Send(message)
			if errors.Is(err, io.EOF) {
				return // the node has ended the stream, and the reader hears why
			}
			if err != nil {
				o.cancel()
				return
			}
		}
	}
}

// next is the next message; nil if nothing waits.
func (o *outward) next() *v1.CarryRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) == 0 && len(o.givenUp) == 0 {
		return nil
	}
	count, bytes := 0, 0
	for _, call := range o.calls {
		if bytes += len(call.GetMessage()); count > 0 && bytes > packBytes {
			break
		}
		count++
		o.waiting -= len(call.GetMessage())
	}
	message := &v1.CarryRequest{Calls: o.calls[:count:count], GivenUp: o.givenUp}
	o.calls, o.givenUp = o.calls[count:], nil
	return message
}

// receive hands out answers until the stream ends, and gives the reason.
func (o *outward) receive() error {
	for {
		message, err := o.conn.Receive()
		if err != nil {
			return err
		}
		o.mu.Lock()
		for _, answer := range message.GetAnswers() {
			p := o.pending[answer.GetNumber()]
			delete(o.pending, answer.GetNumber())
			if p != nil && !p.left {
				p.reply <- reply{answer: answer, leader: message.GetLeader()}
			}
		}
		if message.GetEnding() {
			o.ending, o.taken, o.over = true, message.GetTaken(), true
		}
		o.mu.Unlock()
	}
}

// settle tells those who still wait that the stream is over, and why.
func (o *outward) settle(why error) (idle bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	for number, p := range o.pending {
		err := ErrNotCarried
		if !o.ending || number <= o.taken {
			err = connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w: %v", errBroken, why))
		}
		p.reply <- reply{err: err} // there is room: it is the only one
	}
	clear(o.pending)
	return o.idle
}

// endIdle ends the stream when a whole idleTime has passed without a call.
func (o *outward) endIdle() *time.Timer {
	var seen uint64
	var timer *time.Timer
	o.mu.Lock()
	defer o.mu.Unlock()
	timer = time.AfterFunc(idleTime, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.pending) > 0 || o.last != seen {
			seen = o.last
			timer.Reset(idleTime)
			return
		}
		o.over, o.idle = true, true
		o.cancel()
	})
	return timer
}

// read makes of a reply what a plain call would have given.
func (r reply) read(answer proto.Message) (Heard, error) {
	if code := connect.Code(r.answer.GetCode()); code != 0 {
		return Heard{}, r.failure(code)
	}
	if err := (wire.ProtoCodec{}).Unmarshal(r.answer.GetMessage(), answer); err != nil {
		return Heard{}, connect.NewError(connect.CodeInvalidArgument, err) // as connect does
	}
	return Heard{Index: r.answer.GetIndex(), Leader: r.leader}, nil
}
