// Package stream carries many small calls between a client and a node on one
// stream of messages, where each would otherwise be an HTTP exchange of its
// own, which costs both ends several times what a small call itself does.
//
// A Caller is the client's end. It keeps a stream to one node, opened behind
// the first calls and again when it has broken, and never makes a call wait for
// that: what cannot go on the stream is refused with ErrNotCarried, and then is
// made as a plain call. A Server is the node's end. It answers calls by the very
// handlers that answer plain ones, each in a goroutine of its own.
//
// Guarantees. A call on the stream is that same call without it: the same
// answer, index and leader, the same errors, deadline and cancellation. What is
// known of a call whose stream breaks is what is known of a plain call whose
// connection breaks: it may have happened. A node that stops says which calls
// it has taken; the others have not happened.
//
// Bounds. Calls at once and bytes held for a stream, streams of a node, and the
// time for which a reader may take nothing are constants below. A node that has
// no room for a call says so; a client that knows of none makes a plain call.
package stream

import (
	"errors"
	"time"

	"github.com/conductord/conductord/raftboard/wire"
)

// Bounds of a stream.
const (
	// MaxCalls is how many calls may be on their way on one stream, those that
	// are parked included: as many as on one HTTP/2 connection.
	MaxCalls = 1_000
	// MaxCall bounds the request of a call that goes on a stream, in bytes. A
	// larger one does not gain from it, and would keep the others waiting.
	MaxCall = 128 << 10
	// maxHeld bounds the bytes that a node holds for one stream: requests that
	// are being answered, and answers that nobody has read yet. A node that
	// holds more reads no further.
	maxHeld = 16 << 20
	// MaxStreams is how many streams a node serves; each takes some tens of
	// kilobytes. A client that gets none goes on with plain calls.
	MaxStreams = 1024
	// maxIdle is how many goroutines of a node wait for a stream's next calls.
	// More make those that come and go cheaper, and cost memory while none do.
	maxIdle = 8
	// packBytes is where a message ends that carries several calls or answers.
	// A larger answer travels alone.
	packBytes = wire.PackBytes
	// frameBytes is what a message may need besides what it carries.
	frameBytes = 128 << 10
	// maxRequest bounds a message of calls: what a client sends at most.
	maxRequest = packBytes + MaxCall + frameBytes
)

// What a client sends at most is less than what it may receive.
const _ = uint64(wire.MaxMessage - maxRequest)

// Times.
const (
	// openTime is how long a node may take to accept a stream.
	openTime = 5 * time.Second
	// reopenPause is how long a client makes plain calls after a stream that has
	// broken, and refusedPause after one that could not be opened: the node
	// may not know streams, or have none left.
	reopenPause  = time.Second
	refusedPause = 10 * time.Second
	// idleTime is how long a stream stays open without a call.
	idleTime = time.Minute
	// maxTimeout bounds the time that a call may have; nothing waits longer.
	maxTimeout = time.Hour
	// openAfter is how many calls a client makes before it opens a stream:
	// whoever asks once or twice has nothing of it.
	openAfter = 4
)

// ErrNotCarried: the call did not go on a stream, for there is none, or none
// that takes it. It has not happened; it can be made as a plain call.
var ErrNotCarried = errors.New("the call did not go on a stream")

var errBroken = errors.New("the stream has ended before the answer came")
