package raftboard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard/wire"
)

// maxParcels bounds the calls that wait in one lane. Who comes later waits
// for a place, within its own context.
const maxParcels = 4096

// A call costs both ends, the log and three disks as much as dozens of commands.
// So one goes beside another only if it carries much, or if both carry so
// little that whoever waits gains more than it costs.
const (
	muchItems = wire.PackCommands / 2
	muchBytes = wire.PackBytes / 2
	fewItems  = 4
	// maxYields is how often a trip that could start lets others run first: the
	// callers of the trip before, which come back together.
	maxYields = 32
)

// lane packs the writes of concurrent callers into calls: whatever waits when
// a call can start goes with it. A lane of width 1 keeps the order in which
// its callers came.
//
// A trip that settles nothing puts its parcels back to the front of the queue,
// and they travel again with whatever waits by then. That keeps the verdict on
// each parcel exact: one whose caller leaves while it waits does not travel
// any more, and so has happened only if an earlier trip of its own may have.
type lane[Item proto.Message, Result any] struct {
	core  *core
	width int // trips at the same time
	// send makes the call. It answers with one result for each item.
	send func(context.Context, *peer, []Item) ([]Result, *tryError)
	// verdict is the error within a result, nil if there is none.
	verdict func(Result) error
	places  chan struct{}

	mu       sync.Mutex
	queue    []*parcel[Item, Result]
	workers  int
	trips    int // under way
	underway int // items on them
}

// parcel is what one caller sends: items that travel in one call, in order.
type parcel[Item, Result any] struct {
	items []Item
	bytes int
	done  chan struct{} // closed when settled

	// Written before done is closed, read after.
	results []Result
	err     error

	// Guarded by lane.mu until done is closed, and then fixed.
	trip  *trip[Item, Result] // nil while it waits
	alone bool                // travels alone, for it may be what a call was refused for
	gone  bool                // its caller has left
	last  bool                // its trip is the last one
	doubt bool                // an earlier trip may have delivered it
	tale  string              // what was tried
}

// trip is one call.
type trip[Item, Result any] struct {
	parcels []*parcel[Item, Result]
	ctx     context.Context
	cancel  context.CancelFunc
	over    chan struct{} // closed when the call is back
	carries int           // items
	behind  int           // parcels that waited when it was back; its worker's
	ended   bool          // it no longer counts as one that is under way; guarded by lane.mu
	left    int           // callers that have left; guarded by lane.mu
}

func newLane[Item proto.Message, Result any](c *core, width int,
	send func(context.Context, *peer, []Item) ([]Result, *tryError), verdict func(Result) error,
) *lane[Item, Result] {
	return &lane[Item, Result]{core: c, width: width, send: send, verdict: verdict, places: make(chan struct{}, maxParcels)}
}

// do sends items and waits for their results, one for each. It tells whether
// they may have been delivered more than once. Items that are too many for one
// call travel in several, in order; then an error of the call as a whole is
// uncertain as soon as one of them has arrived.
func (l *lane[Item, Result]) do(ctx context.Context, op operation, items []Item) (results []Result, repeated bool, err error) {
	parcels, err := pack[Item, Result](items)
	if err != nil {
		return nil, false, fmt.Errorf("cannot %s: %w", op.name, err)
	}
	results = make([]Result, 0, len(items))
	for started, p := range parcels {
		doubt, err := l.carry(ctx, op, p)
		if err != nil {
			return nil, false, afterSome(err, started > 0)
		}
		results, repeated = append(results, p.results...), repeated || doubt
	}
	return results, repeated, nil
}

// afterSome makes the error of a later part the error of the whole.
func afterSome(err error, some bool) error {
	if some && errors.Is(err, jobs.ErrUnavailable) {
		return fmt.Errorf("%w: the first part of it has: then %v", jobs.ErrUncertain, err)
	}
	return err
}

// pack divides items into parcels within the bounds of a call.
func pack[Item proto.Message, Result any](items []Item) ([]*parcel[Item, Result], error) {
	var parcels []*parcel[Item, Result]
	var last *parcel[Item, Result]
	for _, item := range items {
		size := command.SizeOf(item)
		if size > wire.MaxCommand {
			return nil, &logbook.LimitError{Field: "command", Limit: wire.MaxCommand, Size: int64(size), Unit: "bytes"}
		}
		if last == nil || len(last.items) == wire.PackCommands || last.bytes+size > wire.PackBytes {
			last = &parcel[Item, Result]{done: make(chan struct{})}
			parcels = append(parcels, last)
		}
		last.items = append(last.items, item)
		last.bytes += size
	}
	return parcels, nil
}

// carry sees one parcel through, until it is settled or its caller has enough.
// It tells whether an earlier trip may have delivered it.
func (l *lane[Item, Result]) carry(ctx context.Context, op operation, p *parcel[Item, Result]) (doubt bool, err error) {
	bounded, cancel := l.core.bounded(ctx, forever)
	defer cancel(nil)
	patience := time.AfterFunc(l.core.options.Patience, func() { l.hurry(p, cancel) })
	defer patience.Stop()
	select {
	case l.places <- struct{}{}:
	case <-bounded.Done():
		return false, giveUp(op, ctx, bounded, false, "")
	}
	defer func() { <-l.places }()
	if ctx.Err() != nil { // there was a place too, and select takes either
		return false, giveUp(op, ctx, bounded, false, "")
	}
	l.enqueue(p)
	select {
	case <-p.done:
	case <-bounded.Done():
		if doubt, tale, settled := l.leave(p); !settled {
			return doubt, giveUp(op, ctx, bounded, doubt, tale)
		}
	}
	if p.err != nil {
		return false, fmt.Errorf("cannot %s: %w", op.name, p.err)
	}
	return p.doubt, nil
}

// hurry ends the patience with a parcel: at once while it waits, or else when
// the trip that it is on is back, which may settle it.
func (l *lane[Item, Result]) hurry(p *parcel[Item, Result], cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.last = true
	if p.trip == nil {
		cancel(errPatience)
	}
}

func (l *lane[Item, Result]) enqueue(p *parcel[Item, Result]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, p)
	if _, _, ready := l.nextLocked(); ready && l.workers < l.width && l.core.spawn(l.work) {
		l.workers++
	}
}

// leave takes a parcel back. It tells whether the parcel may have been
// delivered, unless it turns out to be settled. The last caller to leave a
// trip ends it and waits for what is to be said of it; the others cannot know
// whether their parcel is being delivered.
func (l *lane[Item, Result]) leave(p *parcel[Item, Result]) (doubt bool, tale string, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.gone = true
	if t := p.trip; t != nil {
		t.left++
		if t.left < len(t.parcels) {
			return true, p.tale, p.settled()
		}
		t.cancel()
		l.mu.Unlock()
		<-t.over
		l.mu.Lock()
		return p.doubt, p.tale, p.settled()
	}
	for i := range l.queue {
		if l.queue[i] == p {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			break
		}
	}
	return p.doubt, p.tale, p.settled()
}

func (p *parcel[Item, Result]) settled() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// work makes trips as long as something waits. It ends when nothing does, or
// with the client.
func (l *lane[Item, Result]) work() {
	h := l.core.newHunt(false)
	var t *trip[Item, Result]
	for {
		node, err := h.next(l.core.life)
		if t = l.depart(t, err == nil); t == nil {
			return
		}
		results, failed := l.send(t.ctx, node, t.items())
		if failed = l.arrive(h, node, t, results, failed); failed == nil {
			h.settled()
			l.await(t)
		}
	}
}

// await lets the callers of a trip come back, without waiting for any: those
// that call again at once find a place on the next trip.
func (l *lane[Item, Result]) await(served *trip[Item, Result]) {
	for range maxYields {
		l.mu.Lock()
		waiting := len(l.queue)
		l.mu.Unlock()
		if waiting >= served.behind+len(served.parcels) {
			return
		}
		runtime.Gosched()
	}
}

// depart ends the worker's last trip and begins another with what waits;
// without anything, or when the client has been closed, the worker is done.
func (l *lane[Item, Result]) depart(last *trip[Item, Result], open bool) *trip[Item, Result] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last != nil {
		l.endLocked(last)
	}
	taken, items, ready := l.nextLocked()
	if !open || !ready {
		l.workers--
		return nil
	}
	t := &trip[Item, Result]{over: make(chan struct{}), carries: items}
	t.ctx, t.cancel = context.WithCancel(l.core.life)
	t.parcels = append(t.parcels, l.queue[:taken]...)
	l.queue = append(l.queue[:0], l.queue[taken:]...)
	for _, p := range t.parcels {
		p.trip = t
	}
	l.trips++
	l.underway += items
	return t
}

// endLocked makes way for other trips.
func (l *lane[Item, Result]) endLocked(t *trip[Item, Result]) {
	if !t.ended {
		t.ended = true
		l.trips--
		l.underway -= t.carries
	}
}

// nextLocked tells how many of the parcels that wait go with the next trip,
// with how many items, and whether it may start now. What may not goes with
// the next one of a worker that is on its way.
func (l *lane[Item, Result]) nextLocked() (taken, items int, ready bool) {
	bytes := 0
	for _, p := range l.queue {
		full := items+len(p.items) > wire.PackCommands || bytes+p.bytes > wire.PackBytes
		if taken > 0 && (full || p.alone || l.queue[0].alone) {
			break
		}
		taken, items, bytes = taken+1, items+len(p.items), bytes+p.bytes
	}
	much := items >= muchItems || bytes >= muchBytes
	few := items <= fewItems && l.underway <= fewItems
	return taken, items, taken > 0 && (l.trips == 0 || much || few)
}

func (t *trip[Item, Result]) items() []Item {
	var items []Item
	for _, p := range t.parcels {
		items = append(items, p.items...)
	}
	return items
}

// arrive settles the parcels of a trip that is back, as far as it can, and
// puts the others back in front. It returns what the node has failed at.
func (l *lane[Item, Result]) arrive(h *hunt, node *peer, t *trip[Item, Result], results []Result, failed *tryError) *tryError {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(t.over)
	t.behind = len(l.queue)
	var again []*parcel[Item, Result]
	if failed != nil {
		again = l.refusedLocked(t, failed)
	} else {
		again, failed = l.answeredLocked(t, results)
	}
	if failed != nil {
		h.failed(t.ctx, node, failed)
		l.endLocked(t) // its worker may pause now, and others must not wait for that
	}
	t.cancel()
	var back []*parcel[Item, Result]
	for _, p := range again {
		p.trip, p.tale = nil, h.tale()
		switch {
		case p.last && !p.gone:
			p.settle(nil, unsettled(p.doubt, errPatience, p.tale))
		case !p.gone:
			back = append(back, p)
		}
	}
	l.queue = append(back, l.queue...)
	return failed
}

// refusedLocked deals with a call that failed as a whole, and gives the
// parcels that must travel again. A refusal for good may be for one of them
// only; so each goes alone then.
func (l *lane[Item, Result]) refusedLocked(t *trip[Item, Result], failed *tryError) []*parcel[Item, Result] {
	for _, p := range t.parcels {
		p.doubt = p.doubt || failed.doubtful
		p.alone = p.alone || failed.final
	}
	if failed.final && len(t.parcels) == 1 {
		t.parcels[0].settle(nil, failed.forReads(false))
		return nil
	}
	return t.parcels
}

// answeredLocked hands out results. A parcel of which one item is not settled
// travels again as a whole, which is harmless.
func (l *lane[Item, Result]) answeredLocked(t *trip[Item, Result], results []Result) (again []*parcel[Item, Result], failed *tryError) {
	for _, p := range t.parcels {
		own := results[:len(p.items)]
		results = results[len(p.items):]
		if fault := l.open(own); fault != nil {
			p.doubt = p.doubt || fault.doubtful
			again, failed = append(again, p), fault
			continue
		}
		p.settle(own, nil)
	}
	return again, failed
}

// open finds what keeps a parcel from being settled. If only a part of
// it was refused, the rest has happened.
func (l *lane[Item, Result]) open(results []Result) *tryError {
	var fault *tryError
	happened := false
	for _, result := range results {
		switch err := l.verdict(result); {
		case errors.Is(err, jobs.ErrUncertain):
			return &tryError{err: err, doubtful: true}
		case errors.Is(err, jobs.ErrUnavailable):
			fault = &tryError{err: err}
		default:
			happened = true
		}
	}
	if fault != nil {
		fault.doubtful = happened
	}
	return fault
}

func (p *parcel[Item, Result]) settle(results []Result, err error) {
	p.results, p.err = results, err
	close(p.done)
}

// within tells whether an answer has as many results as it must have.
func within(want, got int) *tryError {
	if want == got {
		return nil
	}
	err := fmt.Errorf("%w: the node answered %d commands with %d results", jobs.ErrUncertain, want, got)
	return &tryError{err: err, final: true, doubtful: true}
}
