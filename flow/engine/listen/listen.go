// Package listen tells listeners what happens in a run, without ever holding
// it up.
//
// A Relay stands between engine.Options.Observe and its listeners. Observe
// puts an event into a queue and returns; one goroutine tells the listeners,
// each event to all of them in the order in which they were given, one event
// after another. Listeners therefore need no lock against each other, may be
// slow, and cannot break a run:
//
//   - The queue is bounded. An event that finds it full is dropped; when there
//     is room again, listeners are first told how many are missing (Miss), at
//     the place where they would have come. No event is dropped silently.
//   - A listener that panics, or ends its goroutine, is told nothing more. The
//     others and the run go on.
//   - Events are told when they are decided, which is before they are durable:
//     after a crash, some may be told again by the next run.
//
// What an event points to belongs to the engine: listeners must not change it.
//
// Log, Durations, Timestamps, Capture and Print are listeners for common
// purposes; any other is a type with two methods. Where tells one only some of
// the events.
package listen

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow/engine"
)

// DefaultCapacity is the room for events that are waiting: a few hundred
// bytes each, and a burst of several hundred steps that end at once.
const DefaultCapacity = 1024

// Listener is told events. Its methods are called by one goroutine.
type Listener interface {
	// Hear is told one event. It may block; then events may be missed.
	Hear(event engine.Event)
	// Miss is told that so many events have been dropped here.
	Miss(count int)
}

// Options is how a Relay works.
type Options struct {
	// Capacity is the room for events that are waiting. 0: DefaultCapacity.
	Capacity int
	// Logger is told of listeners that panic. nil: none.
	Logger hclog.Logger
}

// Relay passes events on. Make one with New, and Close it.
type Relay struct {
	logger    hclog.Logger
	queue     chan item
	done      chan struct{} // closed when everything was told
	listeners []Listener    // of the goroutine; nil for one that is told nothing more

	// Where the goroutine stands, for the one that takes over from it.
	current item
	next    int // the listener that is to be told; their number: all are

	mu      sync.Mutex
	closed  bool
	missing int // dropped since the last event that was queued
	dropped int // in all
}

// item is an event, and how many were dropped before it. An item without an
// event is the last.
type item struct {
	missing int
	event   *engine.Event
}

// New begins to tell listeners. It starts one goroutine, which ends when the
// Relay is closed.
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

// Observe is for engine.Options.Observe. It never blocks, and may be called
// by several runs at once. After Close, events are dropped.
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

// Dropped is how many events were dropped so far.
func (r *Relay) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Close takes no more events, and waits until all that are queued were told;
// if ctx ends before, the goroutine goes on alone. It may be called again.
func (r *Relay) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	missing := r.missing
	r.mu.Unlock()
	if first {
		// Nobody else sends any more. The queue may be full, and a listener
		// may be blocked for good: that must not block Close.
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
		return fmt.Errorf("cannot tell listeners everything: %w", context.Cause(ctx))
	}
}

// tell is the goroutine. If a listener ends it, by a panic or by
// runtime.Goexit, another one takes over after that listener.
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

// report logs why a listener is told nothing more. The value is nil if it has
// called runtime.Goexit. A logger that panics as well is not worth a run.
func (r *Relay) report(failed Listener, value any) {
	defer func() { _ = recover() }()
	r.logger.Error("a listener has failed and is told nothing more", "listener", fmt.Sprintf("%T", failed),
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
