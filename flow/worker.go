package flow

import (
	"context"
	"encoding/json"
	"time"

	"github.com/conductord/conductord/logbook"
)

// WorkerStep sets which workers do a step. A worker is a process outside the cluster that has
// registered the types of steps that it does: see docs/workers.md.
type WorkerStep struct {
	Type   string   // of the execution
	Revert string   // the type that undoes it; empty: there is nothing to undo
	Labels []string // that the worker must have
	// Patience limits an attempt's wait for a worker. Then the attempt fails with the kind
	// logbook.FailureNoWorker. 0: no limit.
	Patience time.Duration
}

// OnWorker gives the work of a step to a worker. The Task is a Reverter only if Revert is not
// empty. It needs a conductor whose board takes offers; on other boards it fails with the kind
// logbook.FailureNoWorker.
//
// The attempt survives its conductor: the next conductor waits for the worker's report. Only the
// end of the worker's session ends the attempt. Then another worker gets the step, up to
// MaxWorkersLost times in a row; an at-most-once step fails.
func OnWorker(step WorkerStep) Task {
	if step.Revert == "" {
		return workerTask{step}
	}
	return workerReverter{workerTask{step}}
}

// MaxWorkersLost limits the attempts at a step that may lose their worker, between two resets,
// without counting as failures. It stops a step that kills every worker.
const MaxWorkersLost = 5

// WorkerStep returns the argument of OnWorker; false for a step that the conductor does itself.
func (s *Step) WorkerStep() (WorkerStep, bool) {
	task, is := s.task.(interface{ workerStep() WorkerStep })
	if !is {
		return WorkerStep{}, false
	}
	return task.workerStep(), true
}

type workerTask struct{ step WorkerStep }

type workerReverter struct{ workerTask }

func (t workerTask) workerStep() WorkerStep { return t.step }

// Execute offers the attempt to workers.
func (t workerTask) Execute(ctx context.Context, call *Call) (any, error) {
	result, err := t.offer(ctx, call)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// Revert offers the attempt to workers.
func (t workerReverter) Revert(ctx context.Context, call *Call) error {
	_, err := t.offer(ctx, call)
	return err
}

func (t workerTask) offer(ctx context.Context, call *Call) (json.RawMessage, error) {
	offer, can := ctx.Value(offerKey{}).(Offer)
	if !can {
		return nil, &logbook.Failure{Kind: logbook.FailureNoWorker, Permanent: true,
			Message: "nothing here offers steps to workers; run the flow in a conductor of a cluster"}
	}
	return offer(ctx, call, t.step)
}

// Offer offers an attempt to workers, and waits for its outcome. The errors are those of a Task.
type Offer func(ctx context.Context, call *Call, step WorkerStep) (json.RawMessage, error)

type offerKey struct{}

// WithOffer sets the Offer for the steps of OnWorker. It is for code that makes calls.
func WithOffer(ctx context.Context, offer Offer) context.Context {
	return context.WithValue(ctx, offerKey{}, offer)
}

// WorkerID is a worker: its session, and its name, which identifies the worker after the session
// has ended.
type WorkerID struct{ Session, Name string }

// Taken records which worker gets the attempt, and returns when the record is durable. Give the
// worker the attempt only then. It is for an Offer.
func (c *Call) Taken(ctx context.Context, worker WorkerID) error {
	if c.taken == nil {
		return nil
	}
	return c.taken(ctx, worker)
}

// Bound is the context of an attempt that a worker has. It also ends at the step's timeout, which
// counts from this call. It is for an Offer, which calls it once at most.
func (c *Call) Bound(ctx context.Context) context.Context {
	if c.bound == nil {
		return ctx
	}
	return c.bound()
}

// TakenBy sets the functions behind Taken and Bound. It is for code that makes calls.
func (c *Call) TakenBy(record func(ctx context.Context, worker WorkerID) error, bound func() context.Context) {
	c.taken, c.bound = record, bound
}
