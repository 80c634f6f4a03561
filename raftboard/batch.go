package raftboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxQueued limits the requests of one batcher. Further callers wait until one of them is settled,
// within their own contexts.
const maxQueued = 4096

// batchRule is the rule of calls. Each batcher has its own limit of calls in flight.
var batchRule = wire.BatchRule{
	Max:  wire.Load{Commands: wire.PackCommands, Bytes: wire.PackBytes},
	Much: wire.Load{Commands: wire.PackCommands / 2, Bytes: wire.PackBytes / 2},
	Few:  4,
}

// batcher packs the writes of concurrent callers into calls: a call takes everything that waits
// when it can start. With one call in flight, it keeps the order of its callers.
//
// A call that settles nothing returns its requests to the front of the queue. The next call
// contains them, and the requests that wait by then. The batcher therefore knows which calls
// contained a request. If a caller leaves while its request waits, the request is not sent again:
// it can have happened only in one of its earlier calls.
type batcher[Item proto.Message, Result any] struct {
	core *core
	rule wire.BatchRule
	// send makes the call. It answers with one result for each item.
	send func(context.Context, *peer, []Item) ([]Result, *tryError)
	// verdict is the error within a result, nil if there is none.
	verdict func(Result) error
	// each: a caller reads the result of each item. When its patience is over, it gets the results
	// of the last answer. Otherwise one error applies to all of its items.
	each   bool
	queued chan struct{} // a value for each unsettled request

	mu       sync.Mutex
	queue    []*request[Item, Result]
	workers  int
	inFlight int // calls
	commands int // number of commands in them
}

// request is the request of one caller: items that are sent in one call, in order.
type request[Item, Result any] struct {
	items []Item
	load  wire.Load
	done  chan struct{} // closed when settled

	// Written before done is closed, and read afterwards.
	results []Result
	err     error

	// Guarded by batcher.mu until done is closed, and then constant.
	batch     *batch[Item, Result] // nil while it waits
	alone     bool                 // sent alone: a call was refused, perhaps because of this request
	gone      bool                 // its caller has left
	last      bool                 // its patience is over: it is not sent again
	ambiguous bool                 // an earlier call may have delivered it
	failures  []NodeFailure        // answers of the tried nodes
	lost      bool                 // an answer was lost, or the result of an item is ambiguous
	answered  []Result             // the last answer, if it is exact; nil: none
}

// batch is the requests of one call.
type batch[Item, Result any] struct {
	requests []*request[Item, Result]
	load     wire.Load
	ctx      context.Context
	cancel   context.CancelFunc
	over     chan struct{}  // closed when the call has returned
	waking   sync.WaitGroup // callers whose requests the call has settled, until they run
	ended    bool           // no longer in flight; guarded by batcher.mu
	left     int            // callers that have left; guarded by batcher.mu
}

func newBatcher[Item proto.Message, Result any](c *core, inFlight int,
	send func(context.Context, *peer, []Item) ([]Result, *tryError), verdict func(Result) error,
) *batcher[Item, Result] {
	rule := batchRule
	rule.InFlight = inFlight
	return &batcher[Item, Result]{core: c, rule: rule, send: send, verdict: verdict, queued: make(chan struct{}, maxQueued)}
}

// do sends items and waits for their results, one for each. repeated reports that they may have
// been delivered more than once. Items that are too many for one call are sent in several, in
// order. An error of the whole is then ambiguous if one of these calls has been settled.
func (b *batcher[Item, Result]) do(ctx context.Context, op operation, items []Item) (results []Result, repeated bool, err error) {
	requests, err := b.pack(items)
	if err != nil {
		return nil, false, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	results = make([]Result, 0, len(items))
	for settled, r := range requests {
		ambiguous, err := b.settle(ctx, op, r)
		if err != nil {
			return nil, false, afterSome(err, settled > 0)
		}
		results, repeated = append(results, r.results...), repeated || ambiguous
	}
	return results, repeated, nil
}

// afterSome turns the error of a later part into the error of the whole.
func afterSome(err error, some bool) error {
	if some && errors.Is(err, jobs.ErrUnavailable) {
		return fmt.Errorf("%w: only the first part of the call took effect; the next part failed: %s", jobs.ErrUncertain, wire.WithoutClass(err))
	}
	return err
}

// pack divides items into requests within the limits of a call.
func (b *batcher[Item, Result]) pack(items []Item) ([]*request[Item, Result], error) {
	var requests []*request[Item, Result]
	var last *request[Item, Result]
	for i, item := range items {
		size := command.SizeOf(item)
		if err := checkSize("command", size); err != nil {
			return nil, err
		}
		load := wire.Load{Commands: 1, Bytes: size}
		if last == nil || b.rule.Full(last.load, load) {
			last = &request[Item, Result]{items: items[i:i], done: make(chan struct{})}
			requests = append(requests, last)
		}
		last.items = last.items[:len(last.items)+1]
		last.load = last.load.Plus(load)
	}
	return requests, nil
}

// settle sends one request until it is settled or its caller gives up. ambiguous reports that an
// earlier call may have delivered it.
func (b *batcher[Item, Result]) settle(ctx context.Context, op operation, r *request[Item, Result]) (ambiguous bool, err error) {
	patience := time.NewTimer(b.core.options.Patience)
	defer patience.Stop()
	why := errPatience
	select {
	case b.queued <- struct{}{}:
		defer func() { <-b.queued }()
		why = ctx.Err() // select takes either one when both are ready
	case <-patience.C:
	case <-ctx.Done():
	case <-b.core.life.Done():
		why = errClosed
	}
	if why != nil {
		return false, giveUp(op, ctx, why, false, nil)
	}
	b.enqueue(r)
	if why := b.await(ctx, r, patience.C); why != nil {
		if ambiguous, failures, settled := b.leave(r); !settled {
			if known := b.known(r); known != nil && ctx.Err() == nil && why == errPatience {
				r.results = known
				return true, nil
			}
			return ambiguous, giveUp(op, ctx, why, ambiguous, failures)
		}
	}
	if r.err != nil {
		return false, fmt.Errorf("cannot %s: %w", op.name, r.err)
	}
	return r.ambiguous, nil
}

// await returns nil when a request is settled, or the reason why its caller leaves before that.
// When the patience is over, a call that carries the request may still settle it.
func (b *batcher[Item, Result]) await(ctx context.Context, r *request[Item, Result], patience <-chan time.Time) error {
	for {
		select {
		case <-r.done:
			r.batch.waking.Done()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-b.core.life.Done():
			return errClosed
		case <-patience:
			if b.lastTry(r) {
				return errPatience
			}
		}
	}
}

// lastTry marks a request that is not sent again, and reports whether no call carries it.
func (b *batcher[Item, Result]) lastTry(r *request[Item, Result]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.last = true
	return r.batch == nil
}

func (b *batcher[Item, Result]) enqueue(r *request[Item, Result]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, r)
	if _, _, now := b.nextLocked(); now && b.workers < b.rule.InFlight && b.core.spawn(b.work) {
		b.workers++
	}
}

// leave takes a request back, and reports whether it may have been delivered, unless it is settled
// by then. The last caller to leave a call ends the call and waits for its result. For the others
// the result is ambiguous, because their requests can still be delivered.
func (b *batcher[Item, Result]) leave(r *request[Item, Result]) (ambiguous bool, failures []NodeFailure, settled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.settled() {
		r.batch.waking.Done()
		return r.ambiguous, r.failures, true
	}
	r.gone = true
	if t := r.batch; t != nil {
		t.left++
		if t.left < len(t.requests) {
			return true, r.failures, false
		}
		t.cancel()
		b.mu.Unlock()
		<-t.over
		b.mu.Lock()
		return r.ambiguous, r.failures, r.settled()
	}
	if i := slices.Index(b.queue, r); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return r.ambiguous, r.failures, false
}

// known is the last answer to a request whose caller has left, while no call carries it.
func (b *batcher[Item, Result]) known(r *request[Item, Result]) []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.batch != nil {
		return nil
	}
	return r.answered
}

func (r *request[Item, Result]) settled() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// work makes calls while requests wait. It ends when none waits, or with the client.
func (b *batcher[Item, Result]) work() {
	tries := b.core.newRetry(false)
	var t *batch[Item, Result]
	for {
		node, err := tries.next(b.core.life)
		if t = b.depart(t, err == nil); t == nil {
			return
		}
		results, failed := b.send(t.ctx, node, t.items())
		if failed = b.arrive(tries, node, t, results, failed); failed == nil {
			tries.settled()
			// Callers that call again at once join the next call: by the time the last of them
			// runs, most others have called.
			t.waking.Wait()
		}
	}
}

// depart ends the worker's last call and starts another with the waiting requests. If no request
// waits, or the client is closed, the worker ends.
func (b *batcher[Item, Result]) depart(last *batch[Item, Result], open bool) *batch[Item, Result] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last != nil {
		b.endLocked(last)
	}
	count, load, now := b.nextLocked()
	if !open || !now {
		b.workers--
		return nil
	}
	t := &batch[Item, Result]{over: make(chan struct{}), load: load}
	t.ctx, t.cancel = context.WithCancel(b.core.life)
	t.requests = append(t.requests, b.queue[:count]...)
	b.queue = append(b.queue[:0], b.queue[count:]...)
	for _, r := range t.requests {
		r.batch = t
	}
	b.inFlight++
	b.commands += load.Commands
	return t
}

// endLocked lets other calls start.
func (b *batcher[Item, Result]) endLocked(t *batch[Item, Result]) {
	if !t.ended {
		t.ended = true
		b.inFlight--
		b.commands -= t.load.Commands
	}
}

// nextLocked returns the next batch: the number of waiting requests in it, their load, and whether
// it is sent now. If not, a worker whose call returns sends it.
func (b *batcher[Item, Result]) nextLocked() (count int, load wire.Load, now bool) {
	full := false
	for _, r := range b.queue {
		full = b.rule.Full(load, r.load)
		if count > 0 && (full || r.alone || b.queue[0].alone) {
			break
		}
		count, load = count+1, load.Plus(r.load)
	}
	return count, load, b.rule.SendNow(load, full, b.inFlight, b.commands)
}

func (t *batch[Item, Result]) items() []Item {
	var items []Item
	for _, r := range t.requests {
		items = append(items, r.items...)
	}
	return items
}

// arrive settles the requests of a call that has returned, and puts the unsettled ones back at the
// front. It returns the failure of the node, if any.
func (b *batcher[Item, Result]) arrive(tries *retry, node *peer, t *batch[Item, Result], results []Result, failed *tryError) *tryError {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(t.over)
	var again []*request[Item, Result]
	if failed != nil {
		again = b.refusedLocked(t, failed)
	} else {
		again, failed = b.answeredLocked(t, results)
	}
	if failed != nil {
		tries.failed(t.ctx, node, failed)
		b.endLocked(t) // its worker may pause now, and others must not wait for it
	}
	t.cancel()
	var back []*request[Item, Result]
	for _, r := range again {
		r.failures = slices.Clone(tries.failures)
		switch {
		case r.last && !r.gone && r.answered != nil:
			r.settleLocked(r.answered, nil)
		case r.last && !r.gone:
			r.settleLocked(nil, unsettled(r.ambiguous, errPatience, r.failures))
		case !r.gone:
			r.batch = nil
			back = append(back, r)
		}
	}
	b.queue = append(back, b.queue...)
	return failed
}

// refusedLocked handles a call that failed as a whole, and returns the requests that must be sent
// again. A final refusal may concern only one of them, so each is then sent alone.
func (b *batcher[Item, Result]) refusedLocked(t *batch[Item, Result], failed *tryError) []*request[Item, Result] {
	for _, r := range t.requests {
		r.ambiguous = r.ambiguous || failed.ambiguous
		r.alone = r.alone || failed.final
		if failed.ambiguous {
			r.lost, r.answered = true, nil
		}
	}
	if failed.final && len(t.requests) == 1 {
		t.requests[0].settleLocked(nil, failed.settled(false))
		return nil
	}
	return t.requests
}

// answeredLocked delivers results. A request with an unsettled item is sent again as a whole, which
// is harmless.
func (b *batcher[Item, Result]) answeredLocked(t *batch[Item, Result], results []Result) (again []*request[Item, Result], failed *tryError) {
	for _, r := range t.requests {
		own := results[:len(r.items)]
		results = results[len(r.items):]
		if fault := b.unsettledOf(own); fault != nil {
			r.ambiguous = r.ambiguous || fault.ambiguous
			if r.answered = nil; b.each && len(r.items) > 1 && !r.lost {
				r.answered = own
			}
			r.lost = r.lost || errors.Is(fault.err, jobs.ErrUncertain)
			again, failed = append(again, r), fault
			continue
		}
		r.settleLocked(own, nil)
	}
	return again, failed
}

// unsettledOf returns the error that keeps a request from being settled. If only a part of it was
// refused, the rest has taken effect.
func (b *batcher[Item, Result]) unsettledOf(results []Result) *tryError {
	var fault *tryError
	happened := false
	for _, result := range results {
		switch err := b.verdict(result); {
		case errors.Is(err, jobs.ErrUncertain):
			return &tryError{err: err, ambiguous: true}
		case errors.Is(err, jobs.ErrUnavailable):
			fault = &tryError{err: err}
		default:
			happened = true
		}
	}
	if fault != nil {
		fault.ambiguous = happened
	}
	return fault
}

// settleLocked wakes the request's caller, unless it has left.
func (r *request[Item, Result]) settleLocked(results []Result, err error) {
	r.results, r.err = results, err
	if !r.gone {
		r.batch.waking.Add(1)
	}
	close(r.done)
}

// checkCount reports an answer that does not have one result for each command.
func checkCount(want, got int) *tryError {
	if want == got {
		return nil
	}
	err := fmt.Errorf("%w: the node answered %d commands with %d results", jobs.ErrUncertain, want, got)
	return &tryError{err: err, final: true, ambiguous: true}
}
