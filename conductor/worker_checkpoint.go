package conductor

import (
	"context"
	"errors"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// keeper returns the function that records the checkpoints of an attempt by reports to the leader. flow.Call calls it
// for one checkpoint at a time, so the numbers increase in the order of the records. It repeats a report until the
// checkpoint is recorded or refused, or until the attempt, its session or the caller's context ends. over is closed
// when the task has returned.
func (w *stepWorker) keeper(t *liveSession, h *heldStep, over <-chan struct{}) flow.Keeper {
	number := 0
	return func(ctx context.Context, checkpoint logbook.Checkpoint) error {
		number++ // even after a lost answer: a late repeat of that report must have another number
		checkpoint.Number = number
		outcome := steps.Outcome{ID: h.work.ID, Checkpoint: &checkpoint, Progress: h.takeProgress()}
		calls, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(t.working(), func() { cancel(context.Cause(t.working())) })()
		wait := newBackoff(boardBackoff)
		for calls.Err() == nil {
			select {
			case <-over:
				return flow.ErrAttemptOver
			default:
			}
			call, end := context.WithTimeout(calls, reportWait+2*callTime)
			recorded, err := w.options.Client.ReportStep(call, t.id, outcome, reportWait)
			end()
			switch {
			case recorded:
				return nil
			case errors.Is(err, jobs.ErrSessionExpired):
				t.lose(err)
				return fmt.Errorf("%w: %w", flow.ErrAttemptOver, err)
			case errors.Is(err, jobs.ErrFenced), errors.Is(err, jobs.ErrNotAllowed), errors.Is(err, jobs.ErrNotFound):
				w.halt(h.work.ID)
				return fmt.Errorf("%w: %w", flow.ErrAttemptOver, err)
			case errors.Is(err, jobs.ErrInvalid), errors.Is(err, jobs.ErrLimit):
				return err
			case err != nil && calls.Err() == nil:
				w.logger.Warn("cannot record a checkpoint", "step", h.work.Step, "error", err)
				sleep(calls, wait.NextBackOff())
			}
		}
		return context.Cause(calls)
	}
}

// takeProgress returns the unreported progress.
func (h *heldStep) takeProgress() *logbook.Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	progress := h.progress
	h.progress = nil
	return progress
}

// checkpoint records a worker's checkpoint, with the progress in the report. A late repeat of an earlier report changes
// nothing. The next offer carries a refusal to the worker. If the context ends first, the worker's report stays without
// an answer, and this conductor or the next owner of the flow gets it again.
func (o *offering) checkpoint(ctx context.Context, outcome *steps.Outcome) {
	c := *outcome.Checkpoint
	if c.Number <= o.recorded {
		return
	}
	o.tell(ctx, outcome)
	err := o.call.RecordCheckpoint(ctx, c)
	switch {
	case err == nil:
		o.recorded = c.Number
	case errors.Is(err, logbook.ErrLimit), errors.Is(err, logbook.ErrInvalid):
		o.offer.Refused, o.offer.Refusal = c.Number, err
	case errors.Is(err, flow.ErrAttemptOver):
		o.offer.Refused, o.offer.Refusal = c.Number, fmt.Errorf("%w: %w", jobs.ErrFenced, err)
	case ctx.Err() == nil:
		o.run.logger.Warn("cannot record a worker's checkpoint", "step", o.call.Step, "error", o.run.loop.options.loggable(err))
		sleep(ctx, newBackoff(boardBackoff).NextBackOff())
	}
}
