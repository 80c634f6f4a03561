package raftboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/stream"
	"github.com/conductord/conductord/raftboard/wire"
)

// Times of one attempt. An attempt that takes longer is treated like an attempt with a lost answer:
// it is repeated at another node.
const (
	// tryTime is well below the TTL of a default session: a write to a node that has stopped is
	// settled at another one before the write's claim can expire.
	tryTime       = 3 * time.Second
	keepAliveTime = time.Second      // a session of the default TTL has time for three attempts
	pollTime      = 30 * time.Second // of one long poll of several
	pollGrace     = 5 * time.Second  // for the answer to a long poll
)

// A write that hangs once must not cost a session.
const _ = uint64(jobs.DefaultTTL - tryTime - keepAliveTime)

// operation describes a call for retries and batches.
type operation struct {
	name  string        // the text after "cannot …"
	reads bool          // the call changes nothing, so its result is never ambiguous
	stale bool          // any node may answer
	first bool          // a client's first call: its failures can have a cause that another attempt cannot change
	over  string        // the procedure, if streams can carry it
	try   time.Duration // the time of one attempt; zero: tryTime
	// each is called before every attempt and returns its time, so that a long poll requests no
	// more than the remaining time. Nil: all attempts are the same.
	each func() time.Duration
}

// unary is a call of the generated clients.
type unary[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// call makes a call and repeats it until it is settled. Its error is complete for the caller.
func call[Req, Res any](ctx context.Context, c *core, op operation, message *Req, at func(*peer) unary[Req, Res]) (*Res, error) {
	bounded, cancel := c.bounded(ctx, forever)
	defer cancel(nil)
	tries := c.newRetry(op.stale)
	for {
		p, err := tries.next(bounded)
		if err != nil {
			return nil, tries.giveUp(op, ctx, bounded)
		}
		if op.each != nil {
			op.try = op.each()
		}
		answer, failed := exchange(bounded, c, p, op, message, at(p))
		if failed == nil {
			return answer, nil
		}
		if failed.final {
			return nil, cannot(op.name, failed.settled(op.reads))
		}
		if op.reads && cutOff(bounded, failed) {
			continue // the next attempt finds that the context has ended
		}
		if op.first {
			c.noteMismatch(bounded, p, failed)
		}
		tries.failed(bounded, p, failed)
		// The patience ends between attempts: interrupting an attempt would make a result ambiguous
		// that its answer could have settled.
		if time.Since(tries.since) > c.options.Patience || op.first && tries.mismatched() {
			cancel(errPatience)
		}
	}
}

// cannot adds the operation to a node's error, without the parts that the error already has: the
// verb, and the noun with its id. A node's error that names the operation in more detail stays.
func cannot(name string, err error) error {
	verb, noun, _ := strings.Cut(name, " ")
	text := err.Error()
	for _, said := range []string{"cannot " + name, "cannot " + verb, noun} {
		text = strings.TrimPrefix(text, said+": ")
	}
	if !strings.HasPrefix(text, "cannot "+verb+" ") {
		text = "cannot " + name + ": " + text
	}
	return &cannotError{text: text, cause: err}
}

// cannotError is an error with another text.
type cannotError struct {
	text  string
	cause error
}

func (e *cannotError) Error() string { return e.text }
func (e *cannotError) Unwrap() error { return e.cause }

// decoded converts an answer. The result of a write without a readable answer is ambiguous.
func decoded[T, M any](op operation, message M, convert func(M) (T, error)) (T, error) {
	got, err := convert(message)
	if err == nil {
		return got, nil
	}
	if !op.reads {
		err = unreadable(err)
	} else {
		err = fmt.Errorf("the answer cannot be read: %w", err)
	}
	var none T
	return none, fmt.Errorf("cannot %s: %w", op.name, err)
}

// listed converts the items of a list.
func listed[T, M any](op operation, items []M, convert func(M) (T, error)) (list []T, err error) {
	for _, message := range items {
		one, err := decoded(op, message, convert)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// paged converts the page of an answer, unless the call has failed with err.
func paged[T, M any](op operation, items []M, next string, convert func(M) (T, error), err error) (page logbook.Page[T], _ error) {
	if err == nil {
		page.Items, err = listed(op, items, convert)
	}
	if err == nil {
		page.Next = next
	}
	return page, err
}

// onward returns err, or an error if a page is empty and has a next one.
func onward[T any](op operation, page logbook.Page[T], err error) error {
	if err == nil && len(page.Items) == 0 && page.Next != "" {
		return endless(op)
	}
	return err
}

// allPages reads a list to its end.
func allPages[T any](op operation, read func(after string) (logbook.Page[T], error)) ([]T, error) {
	var list []T
	for after := ""; ; {
		page, err := read(after)
		if err := onward(op, page, err); err != nil {
			return nil, err
		}
		list = append(list, page.Items...)
		if after = page.Next; after == "" {
			return list, nil
		}
	}
}

// endless is the error of a list whose node returns an empty page with a next one.
func endless(op operation) error {
	return fmt.Errorf("cannot %s: the node returns empty pages without end", op.name)
}

// deadlineSlack is the maximum time by which the other end sees the caller's deadline too early,
// because it counts in whole milliseconds, by its own clock.
const deadlineSlack = 20 * time.Millisecond

// cutOff reports whether an attempt ended because the caller's time was over while the node was
// working. The node is not at fault.
func cutOff(ctx context.Context, failed *tryError) bool {
	if ctx.Err() != nil {
		return failed.ambiguous
	}
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < deadlineSlack && errors.Is(failed.err, context.DeadlineExceeded)
}

// The causes of a bounded context's end, in addition to its parent's.
var (
	errPatience = errors.New("the client's timeout has expired")
	errClosed   = errors.New("the client is closed")
)

// forever is the limit of calls that do not end by themselves.
const forever = time.Duration(math.MaxInt64)

// bounded is the context of all attempts of a call. It ends with the caller's, with the client, and
// after the limit.
func (c *core) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelCauseFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(c.life, func() { cancel(errClosed) })
	if limit == forever {
		return bounded, func(cause error) {
			detach()
			cancel(cause)
		}
	}
	timer := time.AfterFunc(limit, func() { cancel(errPatience) })
	return bounded, func(cause error) {
		detach()
		timer.Stop()
		cancel(cause)
	}
}

// tryError is the outcome of a failed attempt.
type tryError struct {
	err       error
	final     bool // it settles the call
	ambiguous bool // the call may have taken effect
	unreached bool // there was no connection to the node
}

// settled is the error of a settled call. A call that only reads has no effect, for any result.
func (e *tryError) settled(reads bool) error {
	if !reads && e.ambiguous && !errors.Is(e.err, jobs.ErrUncertain) {
		return fmt.Errorf("%w: %w", jobs.ErrUncertain, e.err)
	}
	return e.err
}

// exchange is one attempt of a call at one node.
func exchange[Req, Res any](ctx context.Context, c *core, p *peer, op operation, message *Req, do unary[Req, Res]) (*Res, *tryError) {
	limit := op.try
	if limit == 0 {
		limit = tryTime
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if op.over != "" {
		answer := new(Res)
		failed, sent := c.tryStream(timed, p, op, message, answer)
		if sent && failed == nil {
			c.decrypt(any(answer).(proto.Message))
		}
		if sent {
			return answer, failed
		}
	}
	var reach reach
	request := connect.NewRequest(message)
	if op.stale {
		c.setMinIndex(request.Header())
	}
	answer, err := do(reach.trace(timed), request)
	if err == nil {
		c.heard(p, answer.Header())
		if op.stale {
			c.sawAge(answer.Header().Get(wire.HeaderAge))
		}
		c.decrypt(any(answer.Msg).(proto.Message))
		return answer.Msg, nil
	}
	return nil, c.classify(p, &reach, err)
}

// tryStream is one attempt on the stream to a node. sent is false if the call was not sent on the
// stream; then it had no effect.
func (c *core) tryStream(ctx context.Context, p *peer, op operation, message, answer any) (failed *tryError, sent bool) {
	call := stream.Call{Procedure: op.over, Message: message.(proto.Message)}
	if op.stale {
		call.MinIndex = c.index.Load()
	}
	heard, err := p.stream.Do(ctx, call, answer.(proto.Message))
	switch {
	case errors.Is(err, stream.ErrNotCarried):
		return nil, false
	case err != nil:
		return c.classify(p, new(reach), err), true
	}
	c.peers.heard(p, heard.Leader)
	c.saw(heard.Index)
	if op.stale {
		c.sawAge(heard.Age)
	}
	return nil, true
}

// setMinIndex makes a node that answers from its own state wait until it has applied the index
// that this client has seen.
func (c *core) setMinIndex(header http.Header) {
	if index := c.index.Load(); index > 0 {
		header.Set(wire.HeaderMinIndex, strconv.FormatUint(index, 10))
	}
}

// heard reads the headers of an answer.
func (c *core) heard(p *peer, header http.Header) {
	c.peers.heard(p, header.Get(wire.HeaderLeader))
	if index, err := strconv.ParseUint(header.Get(wire.HeaderIndex), 10, 64); err == nil {
		c.saw(index)
	}
}

// classify derives the result of the call from an attempt's error.
func (c *core) classify(p *peer, reach *reach, err error) *tryError {
	crossed, _ := errors.AsType[*connect.Error](err)
	if crossed != nil {
		c.heard(p, crossed.Meta())
	}
	plain := wire.ErrorFromConnect(err)
	switch {
	case !connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeInternal && errors.Is(err, proto.Error):
		// The message was not sent: it cannot be encoded, because it contains text that is not
		// UTF-8. An answer that cannot be decoded has another code.
		return &tryError{err: fmt.Errorf("%w: %w", jobs.ErrInvalid, err), final: true}
	case reach.none():
		if crossed != nil {
			err = crossed.Unwrap()
		}
		return &tryError{err: fmt.Errorf("%w: %w", jobs.ErrUnavailable, err), unreached: true}
	case errors.Is(plain, jobs.ErrUnavailable):
		return &tryError{err: plain, unreached: !connect.IsWireError(err)}
	case errors.Is(plain, jobs.ErrUncertain), errors.Is(plain, context.Canceled), errors.Is(plain, context.DeadlineExceeded):
		return &tryError{err: plain, ambiguous: true}
	}
	// An error of an unknown kind leaves the effect of the call unknown, and would most likely
	// recur.
	unknown := connect.CodeOf(wire.ErrorToConnect(plain)) == connect.CodeInternal
	return &tryError{err: plain, final: true, ambiguous: unknown}
}

// reach records the progress of an attempt: without a connection, the node cannot have received it.
type reach struct{ asked, connected atomic.Bool }

// trace makes a context that records when a connection is requested, and when there is one.
func (r *reach) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { r.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { r.connected.Store(true) },
	})
}

// none reports that the attempt never had a connection. It is false for an HTTP client that does
// not trace.
func (r *reach) none() bool { return r.asked.Load() && !r.connected.Load() }
