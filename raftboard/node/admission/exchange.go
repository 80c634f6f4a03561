package admission

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/api/conductord/v1/conductordv1connect"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// Limits of the calls on the HTTP port. Clients that send or read slowly cost a node limited memory
// and time.
const (
	// ClientPatience limits the time in which a client sends a body, or reads one part of an
	// answer. Each minClientSpeed bytes add a second: a minute for the largest message.
	ClientPatience = 30 * time.Second
	minClientSpeed = 64 << 10
	// pressedPatience is the bound while other calls lack memory. Healthy clients
	// need less. Bad clients that reconnect at once cannot make a node read the
	// largest bodies more often than this.
	pressedPatience = 3 * time.Second
	// smallBody is the largest body for which an eighth of the budget is reserved, so
	// that large bodies cannot shut out ordinary calls.
	smallBody = 64 << 10
	// refusalPause is the time that a call waits for memory before it is refused, with its body
	// unread. A client that repeats the call at once therefore costs little. retryPause is the time
	// between two attempts to get memory.
	refusalPause = 5 * time.Second
	retryPause   = 250 * time.Millisecond
	// strangerBody limits one body of an unknown caller, such as the form of a sign-in.
	// strangerBodies limits the bodies that one address can send in parallel, each within
	// pressedPatience.
	strangerBody      = 8 << 10
	strangerBodies    = 8
	allStrangerBodies = 1_024
	// callBytes is the approximate memory of a waiting call. Together, the calls under way may use
	// all memory.
	callBytes = 32 << 10
	// exchangeShare of the memory is for the bodies that calls hold, and for unread answers.
	exchangeShare = 16
	// maxBody limits a body: the largest message and its frame.
	maxBody = wire.MaxMessage + 1<<10
)

// A watch sends a sign of life at least twice within ClientPatience. Each sign restarts this time.
const _ = uint64(ClientPatience - 2*wire.WatchSign)

// exchanges are the calls on the HTTP port. One goroutine (run) ends calls whose clients are too
// slow.
type exchanges struct {
	logger hclog.Logger
	refuse *connect.ErrorWriter
	log    RefusalLog
	apart  bool // access control: a call without a caller comes from a stranger

	// bodies counts the bytes of bodies from their first byte to the end of the call. Decoding
	// needs the same amount again. When unread answers exceed the total of bodies, pressedPatience
	// applies.
	bodies         Budget
	calls, streams Budget // in progress
	strangers      Budget // bodies that are being read

	mu       sync.Mutex // guards all fields below
	patience time.Duration
	answers  int64                  // bytes held
	pressed  bool                   // a body lacked memory since the last run of endSlow
	waiting  map[*exchange]struct{} // calls that wait for their clients
}

func newExchanges(logger hclog.Logger, memory int64, apart bool) *exchanges {
	return &exchanges{
		logger: logger, refuse: connect.NewErrorWriter(wire.HandlerOptions()...), apart: apart,
		bodies: Budget{total: memory / exchangeShare}, calls: Budget{total: memory / callBytes}, streams: Budget{total: stream.MaxStreams},
		strangers: Budget{total: allStrangerBodies, each: strangerBodies},
		patience:  ClientPatience, waiting: make(map[*exchange]struct{}),
	}
}

// exchange is one call, and the writer of its answer.
type exchange struct {
	http.ResponseWriter
	all        *exchanges
	controller *http.ResponseController
	request    *http.Request
	holder     string
	stranger   bool
	body       int64 // bytes of the budget that its body holds

	// Guarded by all.mu:
	since time.Time             // time at which it started to wait for its client
	bytes int64                 // bytes that the client must send or read
	stop  func(time.Time) error // sets the deadline of the wait
	ended bool                  // its client was too slow
}

// bound wraps a handler, and limits its calls. Before that, the given checks can refuse a request
// by its headers.
func (x *exchanges) bound(next http.Handler, checks ...func(*http.Request) error) http.Handler {
	checks = append(checks, refusedUnread)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &exchange{ResponseWriter: w, all: x, controller: http.NewResponseController(w), request: r, holder: holderOf(r.Context())}
		e.stranger = x.apart && e.holder != "" && CallerOf(r.Context()) == nil
		defer e.release()
		isStream := r.URL.Path == conductordv1connect.StreamServiceCarryProcedure && r.ProtoMajor == 2
		done, err := e.begin(isStream)
		defer done()
		for i := 0; i < len(checks) && err == nil; i++ {
			err = checks[i](r)
		}
		if err == nil && isStream {
			next.ServeHTTP(w, r) // a stream has its own limits
			return
		}
		bounded, body := *r, new(bytes.Buffer)
		bounded.Body = io.NopCloser(body)
		if err == nil {
			err = e.read(body)
		}
		if err != nil {
			ConnOf(r.Context()).PayRefusal(err)
			_ = e.controller.SetReadDeadline(time.Now().Add(time.Second)) // net/http reads the end of a short body
			_ = x.refuse.Write(e, r, err)
			return
		}
		next.ServeHTTP(e, &bounded)
	})
}

// refusedUnread refuses requests by their headers.
func refusedUnread(r *http.Request) error {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if encoding := r.Header.Get(name); encoding != "" && encoding != "identity" {
			return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s %q is not supported: send requests without compression (identity)", name, encoding))
		}
	}
	if r.ContentLength > maxBody {
		return tooLarge(r.ContentLength, maxBody)
	}
	return r.Context().Err() // reset before it started
}

// begin counts the call as in progress until done.
func (e *exchange) begin(isStream bool) (done func(), err error) {
	under, noun := &e.all.calls, "calls"
	switch {
	case e.stranger:
		return func() {}, nil // it is answered at once, and its bodies are limited
	case isStream:
		under, noun = &e.all.streams, "streams"
	}
	if !under.take(e.holder, 1, 0) {
		return func() {}, overloaded("the caller has as many open " + noun + " as remain for all other callers")
	}
	return func() { under.give(e.holder, 1) }, nil
}

// read reserves memory for the body and reads the body. For a body of unknown length, it first
// reserves memory for a small body, and then for the largest body. After the end of the body, read
// releases unused memory.
func (e *exchange) read(body *bytes.Buffer) error {
	size, most := e.request.ContentLength, int64(maxBody)
	if e.stranger {
		most = strangerBody
	}
	known := size >= 0
	switch {
	case size > most:
		return tooLarge(size, most)
	case size == 0:
		return nil
	case !known:
		size = min(smallBody, most)
	}
	for ; ; size = most {
		release, err := e.reserve(size)
		if err != nil {
			return err
		}
		if known { // only now, because a body that waits for memory must not take it
			body.Grow(int(size) + bytes.MinRead)
		}
		settle := e.wait(e.controller.SetReadDeadline, size, 0)
		_, err = body.ReadFrom(io.LimitReader(e.request.Body, size+1-int64(body.Len())))
		settle()
		release(int64(body.Len()))
		switch read := int64(body.Len()); {
		case e.ended:
			return overloaded(fmt.Sprintf("only %d bytes of the body arrived in %s, which is too slow", read, time.Since(e.since).Round(time.Millisecond)))
		case err != nil || read <= size:
			return err
		case size == most:
			return tooLarge(read, most)
		}
	}
}

// reserve waits until there is memory for a body of size bytes. read is called with the number of
// received bytes. An unknown caller does not wait.
func (e *exchange) reserve(size int64) (read func(bytes int64), err error) {
	x, began := e.all, time.Now()
	if e.stranger {
		if !x.strangers.take(e.holder, 1, 0) {
			return nil, overloaded("this address sends too many request bodies without credentials")
		}
		return func(int64) { x.strangers.give(e.holder, 1) }, nil
	}
	left := int64(0)
	if size > smallBody {
		left = x.bodies.total / 8
	}
	for !x.bodies.take(e.holder, size-e.body, left) {
		x.mu.Lock()
		x.pressed = true
		x.mu.Unlock()
		select {
		case <-time.After(retryPause):
		case <-e.request.Context().Done():
			return nil, e.request.Context().Err()
		}
		if time.Since(began) > refusalPause {
			return nil, overloaded("the current calls use all memory for calls")
		}
	}
	e.body = size
	return func(bytes int64) {
		if unused := size - bytes; unused > 0 {
			x.bodies.give(e.holder, unused)
			e.body = bytes
		}
	}, nil
}

// Write writes a part of the answer. It does not wait for memory: the end of the
// call releases some.
func (e *exchange) Write(data []byte) (int, error) {
	size := int64(len(data))
	defer e.wait(e.controller.SetWriteDeadline, size, size)()
	return e.ResponseWriter.Write(data)
}

// Flush implements http.Flusher.
func (e *exchange) Flush() {
	defer e.wait(e.controller.SetWriteDeadline, 0, 0)()
	_ = e.controller.Flush() // the next write returns the error
}

// wait records that the call waits for its client to send or read bytes, while the node holds
// answer bytes. settle removes this record.
func (e *exchange) wait(stop func(time.Time) error, bytes, answer int64) (settle func()) {
	x := e.all
	x.mu.Lock()
	defer x.mu.Unlock()
	e.since, e.bytes, e.stop = time.Now(), bytes, stop
	x.answers += answer
	x.waiting[e] = struct{}{}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.answers -= answer
		delete(x.waiting, e)
	}
}

// release returns the memory of the body.
func (e *exchange) release() {
	e.all.bodies.give(e.holder, e.body)
	if e.request.ProtoMajor == 1 { // net/http writes the end of an answer later
		_ = e.controller.SetWriteDeadline(time.Now().Add(ClientPatience))
	}
}

// endSlow ends calls whose clients are too slow, and returns the time until its next run.
func (x *exchanges) endSlow() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	pressed := x.pressed || x.answers > x.bodies.total
	x.pressed = false
	for e := range x.waiting {
		waited, patience := time.Since(e.since), x.patience+time.Duration(e.bytes)*time.Second/minClientSpeed
		if pressed || e.stranger {
			patience = min(patience, pressedPatience)
		}
		if waited > patience {
			x.log.Warn(x.logger, "ended a call that waited for its client", e.request.RemoteAddr,
				fmt.Errorf("%s waited %s to transfer %d bytes; the limit is %s", e.request.URL.Path, waited.Round(time.Millisecond), e.bytes, patience))
			e.ended = true
			delete(x.waiting, e)
			_ = e.stop(time.Unix(1, 0))
		}
	}
	return min(x.patience/4, time.Second/2)
}

// run ends slow calls until ctx ends.
func (x *exchanges) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-time.After(x.endSlow()):
		case <-ctx.Done():
		}
	}
}

// overloaded is the error of a call that was refused to protect the node.
func overloaded(why string) error {
	return wire.ErrorToConnect(fmt.Errorf("%w: %s; try again, or call another node", jobs.ErrOverloaded, why))
}

func tooLarge(size, limit int64) error {
	return wire.ErrorToConnect(&logbook.LimitError{Field: "request", Limit: min(limit, wire.MaxMessage), Size: size, Unit: "bytes"})
}
