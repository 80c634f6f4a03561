package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// serverStream is the node's end of a stream. The goroutine of its handler reads, and each call
// in progress has its own goroutine. A goroutine with an answer sends it, with all waiting
// answers, unless another is already sending. All of them end before the stream's handler
// returns.
type serverStream struct {
	server    *Server
	conn      *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]
	deadlines deadlines
	ctx       context.Context // of all calls
	cancel    context.CancelFunc
	handlers  sync.WaitGroup
	tasks     chan task     // for idle handlers
	ended     chan struct{} // closed when no call follows

	mu       sync.Mutex
	lowered  sync.Cond                     // on mu: inFlight or bytes have decreased, or the stream has ended
	last     uint64                        // last accepted number
	calls    map[uint64]context.CancelFunc // being answered
	inFlight int                           // calls that are being answered, and unsent answers
	bytes    int                           // bytes of these
	answers  []outgoing                    // answers that wait to be sent
	sending  bool                          // a goroutine sends
	sends    uint64                        // messages
	idle     int                           // handlers that wait for another call
	panicked bool                          // a handler has panicked
}

// deadlines end operations that wait for the client. They do nothing after the stream's handler
// returns, because its connection must not be touched then.
type deadlines struct {
	controller *http.ResponseController

	mu       sync.Mutex
	released bool
}

// stop ends the read or write that a deadline of the controller limits.
func (d *deadlines) stop(set func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.released {
		_ = set(time.Now()) // without it, the client ends the wait
	}
}

func (d *deadlines) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = true
}

// outgoing is an answer, its size, and the bytes of it and its call, which count
// until it is sent.
type outgoing struct {
	answer *v1.StreamedAnswer
	size   int
	bytes  int
}

func newServerStream(ctx context.Context, server *Server, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse], controller *http.ResponseController) *serverStream {
	s := &serverStream{
		server: server, conn: conn, deadlines: deadlines{controller: controller}, calls: make(map[uint64]context.CancelFunc),
		tasks: make(chan task), ended: make(chan struct{}),
	}
	s.lowered.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// serve answers calls until the stream has ended.
func (s *serverStream) serve() error {
	defer s.cancel()
	if err := s.conn.Send(&v1.CarryResponse{Procedures: s.server.names, Leader: s.server.options.Leader()}); err != nil {
		return err
	}
	defer s.deadlines.release()
	defer context.AfterFunc(s.ctx, s.wakeReader)()
	patience := s.watchReader()
	defer patience.Stop()
	err := s.receive()
	close(s.ended)
	s.handlers.Wait()
	s.mu.Lock()
	s.sendLocked(&v1.CarryResponse{Ending: true, Taken: s.last, Leader: s.server.options.Leader()})
	panicked := s.panicked
	s.mu.Unlock()
	if panicked {
		panic(http.ErrAbortHandler)
	}
	return err
}

// wakeReader ends the wait for calls.
func (s *serverStream) wakeReader() {
	s.deadlines.stop(s.deadlines.controller.SetReadDeadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowered.Broadcast()
}

// receive accepts calls until the client sends no more, or the stream's context ends. Neither is an
// error; calls in progress continue after the first.
func (s *serverStream) receive() error {
	for {
		message, err := s.conn.Receive()
		s.awaitBudget()
		if s.ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			s.keepPace()
			err = s.take(message)
		}
		if err != nil {
			s.cancel()
			return err
		}
	}
}

func (s *serverStream) keepPace() {
	if s.server.options.Pace != nil {
		s.server.options.Pace(s.ctx)
	}
}

// awaitBudget waits while the stream is over its budget.
func (s *serverStream) awaitBudget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for (s.bytes > s.server.budget() || s.inFlight > MaxCalls) && s.ctx.Err() == nil {
		s.lowered.Wait()
	}
}

// take starts the calls of a message. An error means that the client breaks the rules of numbers or
// limits.
func (s *serverStream) take(message *v1.CarryRequest) error {
	if n := len(message.GetCalls()); n > MaxCalls {
		return wire.ErrorToConnect(&logbook.LimitError{Field: "calls", Limit: MaxCalls, Size: int64(n), Unit: "calls"})
	}
	last := s.last
	for _, call := range message.GetCalls() {
		if call.GetNumber() <= last {
			reason := fmt.Sprintf("%d comes after %d", call.GetNumber(), last)
			return wire.ErrorToConnect(&logbook.InvalidError{Field: "number", Reason: reason})
		}
		last = call.GetNumber()
	}
	for _, call := range message.GetCalls() {
		s.begin(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, number := range message.GetGivenUp() {
		if cancel := s.calls[number]; cancel != nil {
			cancel()
		}
	}
	return nil
}

func (s *serverStream) begin(call *v1.StreamedCall) {
	offer, known := s.server.offers[call.GetProcedure()]
	ctx, cancel := s.timed(call)
	s.mu.Lock()
	s.last = call.GetNumber()
	full := s.inFlight >= MaxCalls
	s.inFlight++
	s.bytes += len(call.GetMessage())
	if known && !full {
		s.calls[call.GetNumber()] = cancel
	}
	s.mu.Unlock()
	switch {
	case !known:
		cancel()
		s.put(refusal(call.GetNumber(), connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%.128q is not allowed on a stream", call.GetProcedure()))), call)
	case full:
		cancel()
		s.put(refusal(call.GetNumber(), fmt.Errorf("%w: %d calls are in flight on this stream; try again", jobs.ErrOverloaded, MaxCalls)), call)
	default:
		s.dispatch(task{ctx, cancel, offer, call})
	}
}

// task is a call that waits for its answer.
type task struct {
	ctx    context.Context
	cancel context.CancelFunc
	offer  Offer
	call   *v1.StreamedCall
}

// dispatch passes a call to an idle handler, or to a new one.
func (s *serverStream) dispatch(next task) {
	select {
	case s.tasks <- next:
	default:
		s.handlers.Go(func() { s.answer(next) })
	}
}

// answer handles one call after another, until the stream ends or enough other handlers are idle.
func (s *serverStream) answer(next task) {
	for {
		s.handle(next)
		leave, ok := s.enterIdle()
		if !ok {
			return
		}
		select {
		case next = <-s.tasks:
			leave()
		case <-s.ended:
			leave()
			return
		}
	}
}

// enterIdle lets a goroutine wait for a call, unless enough others wait. leave ends the wait.
func (s *serverStream) enterIdle() (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle < maxIdle {
		s.idle++
		return s.leaveIdle, true
	}
	if s.server.idle.Add(1) > maxIdleMore {
		s.server.idle.Add(-1)
		return nil, false
	}
	return s.server.leaveIdle, true
}

func (s *serverStream) leaveIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle--
}

// timed is the context of a call.
func (s *serverStream) timed(call *v1.StreamedCall) (context.Context, context.CancelFunc) {
	limit := call.GetTimeoutMs()
	if limit == 0 {
		return context.WithCancel(s.ctx)
	}
	return context.WithTimeout(s.ctx, time.Duration(min(limit, uint64(maxTimeout/time.Millisecond)))*time.Millisecond)
}

// handle answers a call.
func (s *serverStream) handle(t task) {
	defer t.cancel()
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			s.abort()
		default:
			err := s.server.options.Panicked(t.offer.procedure, cause, debug.Stack())
			s.put(answerOf(t.call.GetNumber(), nil, nil, err), t.call)
		}
	}()
	began := time.Now()
	message, header, err := t.offer.answer(t.ctx, t.call)
	s.server.options.Called(t.offer.procedure, time.Since(began), err)
	s.put(answerOf(t.call.GetNumber(), message, header, err), t.call)
}

// abort ends the stream with all its calls, as http.ErrAbortHandler ends the exchange of a plain
// call.
func (s *serverStream) abort() {
	s.mu.Lock()
	s.panicked = true
	s.mu.Unlock()
	s.cancel()
}

// put sends an answer, and all answers that arrive meanwhile, or leaves it to the goroutine that is
// sending. When a message cannot be sent, later ones also fail.
func (s *serverStream) put(answer *v1.StreamedAnswer, call *v1.StreamedCall) {
	size := answer.SizeVT()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, call.GetNumber())
	s.bytes += size
	s.answers = append(s.answers, outgoing{answer, size, size + len(call.GetMessage())})
	if s.sending {
		return
	}
	for len(s.answers) > 0 {
		s.sendLocked(s.nextLocked())
	}
}

// sendLocked sends one message. It releases the lock meanwhile.
func (s *serverStream) sendLocked(message *v1.CarryResponse) {
	s.sending = true
	s.mu.Unlock()
	err := s.conn.Send(message)
	s.mu.Lock()
	s.sending = false
	s.sends++
	if err != nil {
		s.cancel()
	}
}

// nextLocked is a message with as many answers as fit.
func (s *serverStream) nextLocked() *v1.CarryResponse {
	message := &v1.CarryResponse{Leader: s.server.options.Leader()}
	size := 0
	for _, out := range s.answers {
		if size += out.size; len(message.Answers) > 0 && size > packBytes {
			break
		}
		s.bytes -= out.bytes
		message.Answers = append(message.Answers, out.answer)
	}
	sent := len(message.Answers)
	clear(s.answers[:sent]) // for the garbage collector
	s.answers = s.answers[sent:]
	s.inFlight -= sent
	s.lowered.Signal()
	return message
}

// watchReader ends the stream of a client that accepts nothing for the patience, or at most twice
// that.
func (s *serverStream) watchReader() *time.Timer {
	var seen uint64
	var timer *time.Timer
	stuck := false // a message was being sent at the last look
	s.mu.Lock()
	defer s.mu.Unlock()
	timer = time.AfterFunc(s.server.options.Patience, func() {
		s.mu.Lock()
		over := stuck && s.sending && s.sends == seen
		stuck, seen = s.sending, s.sends
		if !over {
			timer.Reset(s.server.options.Patience)
		}
		s.mu.Unlock()
		if over {
			s.deadlines.stop(s.deadlines.controller.SetWriteDeadline)
			s.cancel()
		}
	})
	return timer
}
