package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/raftboard/wire"
)

// carryStream is the client's end of the rpc.
type carryStream interface {
	Send(*v1.CarryRequest) error
	Receive() (*v1.CarryResponse, error)
	CloseRequest() error
	CloseResponse() error
}

// clientStream is an open stream at the client's end. One goroutine sends waiting calls, and
// one reads answers; both end with the stream.
type clientStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	conn   carryStream
	takes  map[string]bool // accepted procedures; constant
	wake   chan struct{}   // a signal: there is data to send

	mu      sync.Mutex
	last    uint64 // number
	pending map[uint64]*pending
	calls   []*v1.StreamedCall // calls that wait to be sent
	givenUp []uint64           // numbers that wait to be sent
	waiting int                // bytes in calls
	waking  int                // answered callers that do not run yet
	over    bool               // no further calls
	taken   uint64             // if the node has ended the stream: the last call that it has accepted
	ending  bool               // the node has ended the stream
	idle    bool               // it ended because it was idle
}

// pending is a call in flight.
type pending struct {
	reply chan reply // with a buffer of one
	left  bool       // its caller no longer waits; guarded by clientStream.mu
}

// reply is the answer to a call, or an error.
type reply struct {
	answer *v1.StreamedAnswer
	leader string
	err    error
}

func newClientStream(ctx context.Context, cancel context.CancelFunc, conn carryStream, takes map[string]bool) *clientStream {
	return &clientStream{
		ctx: ctx, cancel: cancel, conn: conn, takes: takes,
		wake: make(chan struct{}, 1), pending: make(map[uint64]*pending),
	}
}

// serve sends and reads until the stream ends. It calls over before it settles the calls on the
// stream. idle: the stream was closed because it was idle.
func (s *clientStream) serve(over func()) (idle bool) {
	var sender sync.WaitGroup
	sender.Go(s.send)
	watch := s.endIdle()
	err := s.receive()
	watch.Stop()
	s.cancel()
	sender.Wait()
	_ = s.conn.CloseResponse()
	over()
	return s.settle(err)
}

// exchange sends a call and waits for its answer, or for ctx.
func (s *clientStream) exchange(ctx context.Context, call *v1.StreamedCall) (reply, error) {
	p := &pending{reply: make(chan reply, 1)}
	if !s.enqueue(call, p) {
		return reply{}, ErrNotCarried
	}
	select {
	case got := <-p.reply:
		s.awake()
		return got, got.err
	case <-ctx.Done():
	}
	s.leave(call, p)
	code := connect.CodeCanceled
	if ctx.Err() == context.DeadlineExceeded {
		code = connect.CodeDeadlineExceeded
	}
	return reply{}, connect.NewError(code, ctx.Err())
}

// leave cancels a call: a call that waits to be sent is removed, and the node gets a request to
// end a call that was sent.
func (s *clientStream) leave(call *v1.StreamedCall, p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.left = true
	if s.pending[call.GetNumber()] != p {
		s.awakeLocked() // it has been answered
		return
	}
	if place := slices.Index(s.calls, call); place >= 0 {
		s.calls = slices.Delete(s.calls, place, place+1)
		s.waiting -= len(call.GetMessage())
		delete(s.pending, call.GetNumber())
		return
	}
	s.givenUp = append(s.givenUp, call.GetNumber())
	s.signalLocked()
}

// awake records that a caller runs again after its answer.
func (s *clientStream) awake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awakeLocked()
}

func (s *clientStream) awakeLocked() {
	s.waking--
	s.signalLocked()
}

// enqueue numbers a call and queues it for sending. False: too many calls wait, or the stream has
// ended.
func (s *clientStream) enqueue(call *v1.StreamedCall, p *pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.pending) >= MaxCalls || s.waiting > wire.MaxMessage {
		return false
	}
	s.last++
	call.Number = s.last
	s.pending[s.last] = p
	s.calls = append(s.calls, call)
	s.waiting += len(call.GetMessage())
	s.signalLocked()
	return true
}

// signalLocked starts the sending of waiting calls, except while the callers of answered calls wake
// up: callers that call again at once then share a message.
func (s *clientStream) signalLocked() {
	if s.waking > 0 || len(s.calls)+len(s.givenUp) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// send sends the waiting calls, several in a message, until the stream ends.
func (s *clientStream) send() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		}
		for message := s.next(); message != nil; message = s.next() {
			err := s.conn.Send(message)
			if errors.Is(err, io.EOF) {
				return // the node has ended the stream, and the reader gets the reason
			}
			if err != nil {
				s.cancel()
				return
			}
		}
	}
}

// next is the next message; nil if nothing waits.
func (s *clientStream) next() *v1.CarryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) == 0 && len(s.givenUp) == 0 {
		return nil
	}
	count, bytes := 0, 0
	for _, call := range s.calls {
		if bytes += len(call.GetMessage()); count > 0 && bytes > packBytes {
			break
		}
		count++
		s.waiting -= len(call.GetMessage())
	}
	message := &v1.CarryRequest{Calls: s.calls[:count:count], GivenUp: s.givenUp}
	s.calls, s.givenUp = s.calls[count:], nil
	return message
}

// receive delivers answers until the stream ends, and returns the reason.
func (s *clientStream) receive() error {
	for {
		message, err := s.conn.Receive()
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, answer := range message.GetAnswers() {
			p := s.pending[answer.GetNumber()]
			delete(s.pending, answer.GetNumber())
			if p != nil && !p.left {
				s.waking++
				p.reply <- reply{answer: answer, leader: message.GetLeader()}
			}
		}
		if message.GetEnding() {
			s.ending, s.taken, s.over = true, message.GetTaken(), true
		}
		s.mu.Unlock()
	}
}

// settle answers the waiting callers with the reason of the stream's end.
func (s *clientStream) settle(why error) (idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for number, p := range s.pending {
		err := ErrNotCarried
		if !s.ending || number <= s.taken {
			err = connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w: %v", errBroken, why))
		}
		s.waking++
		p.reply <- reply{err: err} // never blocks: it is the only value
	}
	clear(s.pending)
	return s.idle
}

// endIdle ends the stream when a whole idleTime has passed without a call.
func (s *clientStream) endIdle() *time.Timer {
	var seen uint64
	var timer *time.Timer
	s.mu.Lock()
	defer s.mu.Unlock()
	timer = time.AfterFunc(idleTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.pending) > 0 || s.last != seen {
			seen = s.last
			timer.Reset(idleTime)
			return
		}
		s.over, s.idle = true, true
		s.cancel()
	})
	return timer
}

// read decodes a reply into the result of a plain call.
func (r reply) read(answer proto.Message) (Heard, error) {
	if code := connect.Code(r.answer.GetCode()); code != 0 {
		return Heard{}, r.failure(code)
	}
	if err := (wire.ProtoCodec{}).Unmarshal(r.answer.GetMessage(), answer); err != nil {
		return Heard{}, connect.NewError(connect.CodeInvalidArgument, err) // same as connect
	}
	return Heard{Index: r.answer.GetIndex(), Leader: r.leader, Age: r.answer.GetAge()}, nil
}
