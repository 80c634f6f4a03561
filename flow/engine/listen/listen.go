// Package listen passes the events of a run to listeners, without ever blocking the run.
//
// A Relay connects engine.Options.Observe to its listeners. Observe queues an event and returns.
// One goroutine passes each event to all listeners in the order in which they were given, one
// event after another. Listeners therefore need no lock against each other, can be slow, and
// cannot break a run:
//
//   - The queue is bounded. An event that finds it full is dropped. Before the next event,
//     listeners get the number of missing events (Miss). No event is dropped silently.
//   - A listener that panics, or ends its goroutine, is not called again. The others and the run
//     continue.
//   - Events are passed on when they are decided, which is before they are durable: after a
//     crash, the next run can repeat some.
//
// The data of an event belongs to the engine: listeners must not change it.
//
// Log, Durations, Timestamps, Capture and Print are listeners for common purposes; any other is a
// type with two methods. Where filters the events of a listener.
package listen

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
)

// DefaultCapacity holds the events of several hundred steps that end at once. An event takes a
// few hundred bytes.
const DefaultCapacity = 1024

// Listener receives events. One goroutine calls its methods.
type Listener interface {
	// Hear receives one event. It may block; events can then be dropped.
	Hear(event engine.Event)
	// Miss reports that count events were dropped here.
	Miss(count int)
}

// Options configure a Relay.
type Options struct {
	// Capacity is the maximum of waiting events. 0: DefaultCapacity.
	Capacity int
	// Logger receives the panics of listeners. nil: none.
	Logger hclog.Logger
}

// Relay passes events to listeners. Make one with New, and Close it.
type Relay struct {
	logger    hclog.Logger
	queue     chan item
	done      chan struct{} // closed when all events are passed on
	listeners []Listener    // used only by the goroutine; nil for a failed listener

	// How far the goroutine is, for the goroutine that replaces it after a panic.
	current item
	next    int // index of the next listener to call; len(listeners): all were called

	mu      sync.Mutex
	closed  bool
	missing int // dropped since the last event that was queued
	dropped int // in all
}

// item is an event and the number of events that were dropped before it. An item without an
// event is the last one.
type item struct {
	missing int
	event   *engine.Event
}

// New starts the goroutine that calls the listeners. It ends when the Relay is closed.
func New(options Options, listeners ...Listener) *Relay {
	if options.Capacity <= 0 {
		options.Capacity = DefaultCapacity
	}
	if options.Logger == nil {
		options.Logger = hclog.NewNullLogger()
	}
	r := &Relay{logger: options.Logger, queue: make(chan item, options.Capacity), done: make(chan struct{})}
	for _, listener := range listeners {
		if listener != nil {
			r.listeners = append(r.listeners, listener)
		}
	}
	r.next = len(r.listeners)
	go r.tell()
	return r
}

// Observe is for engine.Options.Observe. It never blocks, and several runs may call it
// at once. After Close, events are dropped.
func (r *Relay) Observe(event engine.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.dropped++
		return
	}
	select {
	case r.queue <- item{missing: r.missing, event: &event}:
		r.missing = 0
	default:
		r.missing++
		r.dropped++
	}
}

// Dropped is the number of events that were dropped so far.
func (r *Relay) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Close takes no more events, and waits until all queued ones are passed on. If ctx ends first,
// the goroutine continues alone. Close may be called again.
func (r *Relay) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	missing := r.missing
	r.mu.Unlock()
	if first {
		// Nothing else sends to the queue now. The queue can be full and a listener blocked
		// permanently; Close must not block because of it.
		go func() {
			if missing > 0 {
				r.queue <- item{missing: missing}
			}
			close(r.queue)
		}()
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot pass all events to the listeners: %w", context.Cause(ctx))
	}
}

// tell is the goroutine. If a listener ends it, by a panic or by runtime.Goexit, another
// one takes over after that listener.
func (r *Relay) tell() {
	finished := false
	defer func() {
		if finished {
			close(r.done)
			return
		}
		failed := r.listeners[r.next]
		r.listeners[r.next] = nil
		r.next++
		r.report(failed, recover())
		go r.tell()
	}()
	for {
		for ; r.next < len(r.listeners); r.next++ {
			if listener := r.listeners[r.next]; listener != nil {
				r.current.tell(listener)
			}
		}
		next, ok := <-r.queue
		if !ok {
			break
		}
		r.current, r.next = next, 0
	}
	finished = true
}

// report logs that a listener has failed. The value is nil after runtime.Goexit. A panic
// of the logger is ignored.
func (r *Relay) report(failed Listener, value any) {
	defer func() { _ = recover() }()
	r.logger.Error("listener failed; it gets no more events", "listener", fmt.Sprintf("%T", failed),
		"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
}

func (i item) tell(listener Listener) {
	if i.missing > 0 {
		listener.Miss(i.missing)
	}
	if i.event != nil {
		listener.Hear(*i.event)
	}
}
