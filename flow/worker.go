package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// WorkerStep sets which workers do a step. A worker is a process outside the cluster that has
// registered the types of steps that it does: see docs/workers.md.
type WorkerStep struct {
	Type   string // of the execution
	Revert string // the type that undoes it; empty: there is nothing to undo
	// Labels are the labels that the worker must have. A label can contain arguments of the step in
	// braces, as in "{platform}" or "{order.region}": see Concurrency. If a value is absent, or
	// makes the label an invalid name, the attempt fails with the kind logbook.FailureArgument.
	Labels []string
	// Patience limits an attempt's wait for a worker. After that time, the attempt fails with the
	// kind logbook.FailureNoWorker. 0: no limit.
	Patience time.Duration
}

// OnWorker gives the work of a step to a worker. The Task is a Reverter only if Revert is not
// empty. It needs a conductor whose board takes offers; on other boards it fails with the kind
// logbook.FailureNoWorker.
//
// The attempt survives its conductor: the next conductor waits for the worker's report. Only the
// end of the worker's session ends the attempt. Then another worker gets the step, up to
// MaxWorkersLost times; an at-most-once step fails.
func OnWorker(step WorkerStep) Task {
	if step.Revert == "" {
		return workerTask{step}
	}
	return workerReverter{workerTask{step}}
}

// MaxWorkersLost limits the attempts at a step that can lose their worker without
// counting as failures. Only a reset by an operator restarts the count. It stops a step
// that kills every worker.
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
	labels, err := t.labels(call)
	if err != nil {
		return nil, err
	}
	offer, can := ctx.Value(offerKey{}).(Offer)
	if !can {
		return nil, &logbook.Failure{Kind: logbook.FailureNoWorker, Permanent: true,
			Message: "this program cannot offer steps to workers; run the flow in a conductor of a cluster"}
	}
	step := t.step
	step.Labels = labels
	return offer(ctx, call, step)
}

// labels are the labels with the arguments of a call.
func (t workerTask) labels(call *Call) ([]string, error) {
	labels := make([]string, 0, len(t.step.Labels))
	for _, label := range t.step.Labels {
		filled, err := fillTemplate(label, call.has, func(name string) (json.RawMessage, bool) {
			value, ok := call.Arguments[name]
			return value, ok
		}, func(string) bool { return false })
		secret := slices.IndexFunc(call.Secrets, func(name string) bool { return slices.Contains(argumentsIn(label, call.has), name) })
		switch {
		case secret >= 0:
			return nil, &logbook.Failure{Kind: logbook.FailureSecret, Permanent: true, Message: fmt.Sprintf(
				"the worker label %q would show its argument %q, which holds a secret", label, call.Secrets[secret])}
		case err == nil:
			err = logbook.MaxLimits.CheckName("worker label", filled)
		}
		if err != nil {
			return nil, &logbook.Failure{Kind: logbook.FailureArgument, Permanent: true, Message: fmt.Sprintf("cannot fill its worker label %q: %v", label, err)}
		}
		if !slices.Contains(labels, filled) {
			labels = append(labels, filled)
		}
	}
	return labels, nil
}

func (c *Call) has(argument string) bool {
	_, ok := c.Arguments[argument]
	return ok
}

// checkLabels reports labels that name what the step does not require.
func (s *Step) checkLabels() {
	work, _ := s.WorkerStep()
	for _, label := range work.Labels {
		s.checkTemplate("worker label", label)
		for _, name := range argumentsIn(label, s.hasArgument) {
			if s.revertRequires != nil && work.Revert != "" && !slices.Contains(argumentNames(s.revertRequires), name) {
				s.fault("its worker label %q names %q, which is not an argument of its revert", label, name)
			}
		}
	}
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
// counts from this call. It is for an Offer, which calls it at most once.
func (c *Call) Bound(ctx context.Context) context.Context {
	if c.bound == nil {
		return ctx
	}
	return c.bound()
}

// TakenBy sets the functions that Taken and Bound call. Only code that makes calls needs TakenBy.
func (c *Call) TakenBy(record func(ctx context.Context, worker WorkerID) error, bound func() context.Context) {
	c.taken, c.bound = record, bound
}
