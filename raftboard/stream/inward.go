package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// inward is a stream at the node's end. Its handler's goroutine reads, another
// one sends what is answered, and each call that is under way has one of its
// own; all of them end before the handler returns.
type inward struct {
	server   *Server
	conn     *connect.BidiStream[v1.CarryRequest, v1.CarryResponse]
	brakes   brakes
	ctx      context.Context // of all calls
	cancel   context.CancelFunc
	wake     chan struct{} // holds one signal: something waits to be sent
	handlers sync.WaitGroup
	tasks    chan task     // to handlers that are idle
	enough   chan struct{} // closed when no call follows

	mu       sync.Mutex
	room     sync.Cond                     // on mu: less is held, or the stream is over
	last     uint64                        // number that was taken
	calls    map[uint64]context.CancelFunc // being answered
	count    int                           // calls that are being answered, and answers that are not sent
	held     int                           // bytes of these
	answers  []outgoing                    // wait to be sent
	drained  bool                          // nothing follows in answers
	ended    bool                          // the last message has been sent, or is being sent
	sends    uint64                        // odd while a message is being sent
	idle     int                           // handlers that wait for another call
	panicked bool                          // a handler has
}

// brakes end what waits for the client. Behind its handler's return a stream is
// not to be touched any more.
type brakes struct {
	controller *http.ResponseController

	mu       sync.Mutex
	released bool
}

func (b *brakes) stopReading() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.released {
		_ = b.controller.SetReadDeadline(time.Now()) // where that cannot be done, the client ends the waiting
	}
}

func (b *brakes) stopWriting() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.released {
		_ = b.controller.SetWriteDeadline(time.Now())
	}
}

func (b *brakes) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = true
}

// outgoing is an answer, its size, and how many bytes it and its call hold until
// it is sent.
type outgoing struct {
	answer *v1.StreamedAnswer
	size   int
	held   int
}

func newInward(ctx context.Context, server *Server, conn *connect.BidiStream[v1.CarryRequest, v1.CarryResponse], controller *http.ResponseController) *inward {
	i := &inward{
		server: server, conn: conn, brakes: brakes{controller: controller},
		wake: make(chan struct{}, 1), calls: make(map[uint64]context.CancelFunc),
		tasks: make(chan task), enough: make(chan struct{}),
	}
	i.room.L = &i.mu
	i.ctx, i.cancel = context.WithCancel(ctx)
	return i
}

// serve answers calls until the stream is over.
func (i *inward) serve() error {
	defer i.cancel()
	if err := i.conn.Send(&v1.CarryResponse{Procedures: i.server.names, Leader: i.server.options.Leader()}); err != nil {
		return err
	}
	defer i.brakes.release()
	defer context.AfterFunc(i.ctx, i.wakeReader)()
	patience := i.watchReader()
	defer patience.Stop()
	var sender sync.WaitGroup
	sender.Go(i.send)
	err := i.receive()
	close(i.enough)
	i.handlers.Wait()
	i.mu.Lock()
	i.drained = true
	panicked := i.panicked
	i.mu.Unlock()
	i.signal()
	sender.Wait()
	if panicked {
		panic(http.ErrAbortHandler) // it has been told of
	}
	return err
}

// wakeReader ends the waiting for calls.
func (i *inward) wakeReader() {
	i.brakes.stopReading()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.room.Broadcast()
}

// receive takes calls until the client sends no more, or the stream's context
// ends. Neither is an error; calls that are under way go on after the first.
func (i *inward) receive() error {
	for {
		message, err := i.conn.Receive()
		i.awaitRoom()
		if i.ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = i.take(message)
		}
		if err != nil {
			i.cancel()
			return err
		}
	}
}

// awaitRoom waits while the stream holds too much.
func (i *inward) awaitRoom() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for (i.held > maxHeld || i.count > MaxCalls) && i.ctx.Err() == nil {
		i.room.Wait()
	}
}

// take begins the calls of a message. The error is that of a client that does
// not know how to number, or knows no bounds.
func (i *inward) take(message *v1.CarryRequest) error {
	if n := len(message.GetCalls()); n > MaxCalls {
		return wire.ErrorToConnect(&logbook.LimitError{Field: "calls", Limit: MaxCalls, Size: int64(n), Unit: "calls"})
	}
	last := i.last
	for _, call := range message.GetCalls() {
		if call.GetNumber() <= last {
			reason := fmt.Sprintf("%d comes after %d", call.GetNumber(), last)
			return wire.ErrorToConnect(&logbook.InvalidError{Field: "number", Reason: reason})
		}
		last = call.GetNumber()
	}
	for _, call := range message.GetCalls() {
		i.begin(call)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, number := range message.GetGivenUp() {
		if cancel := i.calls[number]; cancel != nil {
			cancel()
		}
	}
	return nil
}

func (i *inward) begin(call *v1.StreamedCall) {
	offer, known := i.server.offers[call.GetProcedure()]
	ctx, cancel := i.timed(call)
	i.mu.Lock()
	i.last = call.GetNumber()
	full := i.count >= MaxCalls
	i.count++
	i.held += len(call.GetMessage())
	if known && !full {
		i.calls[call.GetNumber()] = cancel
	}
	i.mu.Unlock()
	switch {
	case !known:
		cancel()
		i.put(refusal(call.GetNumber(), connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%.128q is not taken on a stream", call.GetProcedure()))), call)
	case full:
		cancel()
		i.put(refusal(call.GetNumber(), fmt.Errorf("%w: %d calls are under way on this stream", jobs.ErrUnavailable, MaxCalls)), call)
	default:
		i.hand(task{ctx, cancel, offer, call})
	}
}

// task is a call that is to be answered.
type task struct {
	ctx    context.Context
	cancel context.CancelFunc
	offer  Offer
	call   *v1.StreamedCall
}

// hand gives a call to a handler that is idle, or else to a new one: the stack of
// a goroutine that has answered a call has the size that answering takes.
func (i *inward) hand(next task) {
	select {
	case i.tasks <- next:
	default:
		i.handlers.Go(func() { i.answer(next) })
	}
}

// answer answers one call after the other, until there are none and others are
// idle already.
func (i *inward) answer(next task) {
	for {
		i.handle(next)
		i.mu.Lock()
		spare := i.idle >= maxIdle
		if !spare {
			i.idle++
		}
		i.mu.Unlock()
		if spare {
			return
		}
		select {
		case next = <-i.tasks:
		case <-i.enough:
			return
		}
		i.mu.Lock()
		i.idle--
		i.mu.Unlock()
	}
}

// timed is the context of a call.
func (i *inward) timed(call *v1.StreamedCall) (context.Context, context.CancelFunc) {
	limit := call.GetTimeoutMs()
	if limit == 0 {
		return context.WithCancel(i.ctx)
	}
	return context.WithTimeout(i.ctx, time.Duration(min(limit, uint64(maxTimeout/time.Millisecond)))*time.Millisecond)
}

// handle answers a call.
func (i *inward) handle(t task) {
	defer t.cancel()
	defer func() {
		if cause := recover(); cause != nil {
			i.abort(t.offer, cause)
		}
	}()
	began := time.Now()
	message, header, err := t.offer.answer(t.ctx, t.call)
	i.server.options.Called(prefix+t.offer.procedure, time.Since(began), err)
	i.put(answerOf(t.call.GetNumber(), message, header, err), t.call)
}

// abort ends the stream, and with it all calls that are on it, as a panic ends
// the exchange of a plain call.
func (i *inward) abort(offer Offer, cause any) {
	if cause != http.ErrAbortHandler {
		i.server.options.Panicked(prefix+offer.procedure, cause, debug.Stack())
	}
	i.mu.Lock()
	i.panicked = true
	i.mu.Unlock()
	i.cancel()
}

// put has an answer sent.
func (i *inward) put(answer *v1.StreamedAnswer, call *v1.StreamedCall) {
	size := answer.SizeVT()
	i.mu.Lock()
	delete(i.calls, call.GetNumber())
	i.held += size
	i.answers = append(i.answers, outgoing{answer, size, size + len(call.GetMessage())})
	i.mu.Unlock()
	i.signal()
}

func (i *inward) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// send sends what is answered, several answers in a message, until nothing
// follows. When a message cannot be sent, the rest is thrown away.
func (i *inward) send() {
	for drained := false; !drained; {
		<-i.wake
		runtime.Gosched() // what is about to be answered goes along
		var message *v1.CarryResponse
		for message, drained = i.next(); message != nil; message, drained = i.next() {
			if i.conn.Send(message) != nil {
				i.cancel()
			}
		}
	}
}

// next is the next message, nil if nothing waits; and whether nothing follows.
func (i *inward) next() (*v1.CarryResponse, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sends%2 == 1 {
		i.sends++
	}
	if len(i.answers) == 0 {
		return i.endingLocked()
	}
	message := &v1.CarryResponse{Leader: i.server.options.Leader()}
	bytes, held := 0, 0
	for _, out := range i.answers {
		if bytes += out.size; len(message.Answers) > 0 && bytes > packBytes {
			break
		}
		held += out.held
		message.Answers = append(message.Answers, out.answer)
	}
	sent := len(message.Answers)
	clear(i.answers[:sent]) // for the collector
	i.answers = i.answers[sent:]
	i.count -= sent
	i.held -= held
	i.sends++
	i.room.Signal()
	return message, false
}

// endingLocked is the last message, when nothing else follows.
func (i *inward) endingLocked() (*v1.CarryResponse, bool) {
	if !i.drained || i.ended {
		return nil, i.drained
	}
	i.ended = true
	i.sends++
	return &v1.CarryResponse{Ending: true, Taken: i.last, Leader: i.server.options.Leader()}, false
}

// watchReader ends the stream of a client that takes nothing for as long as the
// patience, and up to twice that.
func (i *inward) watchReader() *time.Timer {
	var seen uint64
	var timer *time.Timer
	i.mu.Lock()
	defer i.mu.Unlock()
	timer = time.AfterFunc(i.server.options.Patience, func() {
		i.mu.Lock()
		stuck := i.sends%2 == 1 && i.sends == seen
		seen = i.sends
		if !stuck {
			timer.Reset(i.server.options.Patience)
		}
		i.mu.Unlock()
		if stuck {
			i.brakes.stopWriting()
			i.cancel()
		}
	})
	return timer
}
