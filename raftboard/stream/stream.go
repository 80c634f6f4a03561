// Package stream carries many small calls between a client and a node on one stream of messages.
// An HTTP exchange for each small call would cost both ends several times as much as the call
// itself.
//
// A Caller is the client's end. It keeps a stream to one node, which it opens after the first calls
// and again when the stream has broken. No call waits for that: a call that the stream cannot carry
// is refused with ErrNotCarried, and is then made as a plain call. A Server is the node's end. It
// answers calls with the handlers of plain calls, each in its own goroutine.
//
// Guarantees. A call on the stream equals a plain call: the same answer, index and leader, the
// same errors, deadline and cancellation. A call whose stream breaks may have happened, like a
// call whose connection breaks. A node that stops reports the calls that it has accepted; the
// others have not happened.
//
// Limits. Constants below limit the calls in flight and the bytes of a stream, the streams of a
// node, and the time in which a reader may accept nothing. A node refuses calls over them. A
// client that knows that a call is over them makes a plain call.
package stream

import (
	"errors"
	"time"

	"github.com/conductord/conductord/raftboard/wire"
)

// Limits of a stream.
const (
	// MaxCalls is the maximum of calls in flight on one stream, including long polls: as many as
	// on one HTTP/2 connection.
	MaxCalls = 1_000
	// MaxCall limits the request of a call on a stream, in bytes. A larger request gains nothing,
	// and would delay the others.
	MaxCall = 128 << 10
	// maxBytes is a node's budget for one stream: requests in progress, and answers that are not
	// sent yet. Over the budget, the node stops reading the stream.
	maxBytes = 16 << 20
	// shortBytes is that budget while the node is short of memory: room for the long polls
	// and keep-alives of any stream.
	shortBytes = 256 << 10
	// maxIdle is the number of a node's goroutines that wait for a stream's next calls, and
	// maxIdleMore the number of further ones for all streams together. Their stacks have grown to
	// the size of an answer: growing one is nearly half of a read's cost.
	maxIdle     = 8
	maxIdleMore = 256
	// MaxStreams is the maximum of streams at a node; each takes some tens of kilobytes. A client
	// without a stream continues with plain calls.
	MaxStreams = 1024
	// packBytes limits a message with several calls or answers. A larger answer is sent alone.
	packBytes = wire.PackBytes
	// frameBytes is the maximum overhead of a message.
	frameBytes = 128 << 10
	// maxRequest limits a message of calls: the largest that a client sends.
	maxRequest = packBytes + MaxCall + frameBytes
)

// The largest message that a client sends is smaller than the largest that it receives.
const _ = uint64(wire.MaxMessage - maxRequest)

// Times.
const (
	// openTime is the time within which a node must accept a stream.
	openTime = 5 * time.Second
	// reopenPause is the time for which a client makes plain calls after a stream has broken.
	// refusedPause is the same after a stream could not be opened: the node may not know
	// streams, or has none left.
	reopenPause  = time.Second
	refusedPause = 10 * time.Second
	// idleTime is the time for which a stream stays open without a call.
	idleTime = time.Minute
	// maxTimeout limits the time of a call; nothing waits longer.
	maxTimeout = time.Hour
	// openAfter is the number of calls before a client opens a stream, which does not pay for one
	// or two.
	openAfter = 4
)

// ErrNotCarried: the call was not sent on a stream, because there is none, or none that accepts it.
// It has not happened; it can be made as a plain call.
var ErrNotCarried = errors.New("the call was not sent on a stream")

var errBroken = errors.New("the stream ended before the answer arrived")
