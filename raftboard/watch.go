package raftboard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/raftboard/wire"
)

// Watch implements jobs.Reader. When a stream breaks, another one continues after the last event,
// at any node that answers. When the context ends, the events end. Every other end yields an
// error as the last item.
func (c *Client) Watch(ctx context.Context, watch jobs.Watch) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		if err := jobs.CheckWatch(&watch); err != nil {
			yield(jobs.Event{}, fmt.Errorf("cannot watch: %w", err))
			return
		}
		w := watcher{client: c, yield: yield, request: command.WatchToProto(&watch), begin: watch.Begin}
		if err := w.run(ctx); err != nil && ctx.Err() == nil {
			yield(jobs.Event{}, err)
		}
	}
}

// watcher is one Watch, with all its streams.
type watcher struct {
	client  *Client
	yield   func(jobs.Event, error) bool
	request *v1.WatchRequest // its After is the watch's position
	begin   bool             // EventBegun has not been yielded yet
}

// errEnough reports that the reader wants no more events.
var errEnough = errors.New("the reader has stopped")

// run follows streams until one of them ends permanently. The error is nil when the reader wants no
// more.
func (w *watcher) run(ctx context.Context) error {
	op := operation{name: "watch", reads: true}
	tries := w.client.newRetry(w.client.stale)
	bounded, cancel := w.client.bounded(ctx, w.client.options.Patience)
	defer func() { cancel(nil) }()
	for {
		p, err := tries.next(bounded)
		if err != nil {
			return tries.giveUp(op, ctx, bounded)
		}
		began := time.Now()
		heard, failed := w.follow(ctx, p)
		switch {
		case errors.Is(failed.err, errEnough):
			return nil
		case failed.final:
			return cannot("watch", failed.err)
		}
		if heard {
			// The patience counts from the last message. A stream that breaks at once does not
			// reset the pauses.
			cancel(nil)
			bounded, cancel = w.client.bounded(ctx, w.client.options.Patience)
			if time.Since(began) > lastPause {
				tries.settled()
			}
		}
		tries.failed(bounded, p, failed)
	}
}

// follow reads one stream to its end. heard reports that the node has sent a message.
func (w *watcher) follow(ctx context.Context, p *peer) (heard bool, failed *tryError) {
	c := w.client
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	silence := time.AfterFunc(wire.WatchSilence, cancel)
	defer silence.Stop()
	request := connect.NewRequest(w.request)
	c.setMinIndex(request.Header())
	var reach reach
	stream, err := p.board.Watch(reach.trace(ctx), request)
	if err != nil {
		return false, c.classify(p, &reach, err)
	}
	defer func() {
		cancel() // so that closing does not wait for the rest of the stream
		_ = stream.Close()
	}()
	for stream.Receive() {
		silence.Stop()
		if !heard {
			c.heard(p, stream.ResponseHeader())
		}
		heard = true
		if err := w.pass(stream.Msg()); err != nil {
			return true, &tryError{err: err, final: true}
		}
		silence.Reset(wire.WatchSilence)
	}
	if err := stream.Err(); err != nil {
		return heard, c.classify(p, &reach, err)
	}
	return heard, &tryError{err: errors.New("the node has ended the stream")}
}

// pass yields the events of a message that have not been yielded yet.
func (w *watcher) pass(message *v1.WatchResponse) error {
	if w.begin && message.GetPosition() != nil {
		w.begin = false // the first message has no events
		if !w.yield(jobs.Event{Kind: jobs.EventBegun, Position: command.PositionFromProto(message.GetPosition())}, nil) {
			return errEnough
		}
	}
	w.client.decrypt(message)
	for _, wired := range message.GetEvents() {
		event, err := command.EventFromProto(wired)
		if err != nil {
			return fmt.Errorf("an event cannot be read: %w", err)
		}
		if !w.advance(event.Position) {
			continue
		}
		if !w.yield(event, nil) {
			return errEnough
		}
	}
	if message.GetPosition() != nil {
		w.advance(command.PositionFromProto(message.GetPosition()))
	}
	return nil
}

// advance records the watch's position, and reports whether it has increased.
func (w *watcher) advance(to jobs.Position) bool {
	if w.request.After != nil {
		from := command.PositionFromProto(w.request.After)
		if to.Index < from.Index || (to.Index == from.Index && to.Item <= from.Item) {
			return false
		}
	}
	w.request.After = command.PositionToProto(to)
	w.client.saw(to.Index) // a read about an event is at least as new
	return true
}
