package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// request asks the loop to record something of a running attempt at once: the worker that gets it, or a
// checkpoint.
type request struct {
	step  string
	call  callID
	write func(c *core, step int, now time.Time)
	done  chan error // holds one
	after uint64     // durable when this number of updates is acknowledged
}

// marks pass requests from the goroutines of steps to the loop. Only the loop touches waiting.
type marks struct {
	asked   chan *request
	waiting queue[*request]
}

func newMarks() *marks { return &marks{asked: make(chan *request)} }

// record writes something of a call, and returns when the record is durable. run is the context of the run.
func (w *marks) record(ctx, run context.Context, call *flow.Call, write func(c *core, step int, now time.Time)) error {
	m := &request{step: call.Step, call: identify(call), write: write, done: make(chan error, 1)}
	select {
	case w.asked <- m:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-run.Done():
		return context.Cause(run)
	}
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-run.Done():
		return context.Cause(run)
	}
}

// acknowledge answers the marks that are durable.
func (w *marks) acknowledge(acknowledged uint64) {
	for w.waiting.len() > 0 && w.waiting.first().after <= acknowledged {
		m, _ := w.waiting.pop()
		m.done <- nil
	}
}

// mark records the request of an attempt, if the attempt still runs.
func (l *loop) mark(m *request) {
	step, found := l.core.plan.Find(m.step)
	if !found || !l.core.isCalled(step, m.call) {
		m.done <- fmt.Errorf("step %q: %w", m.step, flow.ErrAttemptOver)
		return
	}
	m.write(l.core, step, l.now)
	l.record(l.core.out.take())
	m.after = l.recorded
	l.marks.waiting.push(m)
}

// isCalled reports whether a call is the open attempt at a step.
func (f *facts) isCalled(step int, call callID) bool {
	v := &f.vertices[step]
	return v.phase.isOpen() && call == callID{v.attempt.Action, v.attempt.Number, v.attempt.Asked}
}

// checkpoints gives a call the checkpoints of its round, and lets it record new ones.
func (l *loop) checkpoints(ctx context.Context, s start, h *hidden) error {
	var earlier logbook.Values
	if s.saved && l.options.Checkpoints != nil {
		var err error
		if earlier, err = l.options.Checkpoints(ctx, s.call.Step); err != nil {
			return fmt.Errorf("cannot read the checkpoints of the step: %w", err)
		}
	}
	s.call.KeepCheckpoints(earlier, h.hide(), func(ctx context.Context, checkpoint logbook.Checkpoint) error {
		return l.marks.record(ctx, l.steps, s.call, func(c *core, step int, now time.Time) {
			checkpoint.At = now
			c.vertices[step].saved = true
			c.change(step, logbook.AtomChange{Checkpoints: []logbook.Checkpoint{checkpoint}, Progress: l.progress.fresh(s.call, now)}, now)
		})
	})
	return nil
}
