package conductor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/steps"
	"github.com/conductord/conductord/logbook"
)

// offerWait limits one call, so that a silently broken connection is noticed.
const offerWait = 30 * time.Second

// offering is an attempt that is offered to workers, from its start or its adoption by this run
// to its end. It keeps the content of the offer; the leader keeps it only while a call waits.
type offering struct {
	run     *run
	offerer steps.Offerer
	call    *flow.Call
	offer   steps.Offer
	// recorded is the number of the worker's latest recorded checkpoint.
	recorded int
}

// offerStep implements flow.Offer for the steps of the job.
func (r *run) offerStep(ctx context.Context, call *flow.Call, step flow.WorkerStep) (json.RawMessage, error) {
	offerer, can := r.loop.options.Client.(steps.Offerer)
	if !can {
		return nil, &logbook.Failure{Kind: logbook.FailureNoWorker, Message: "the board of this conductor takes no offers for workers", Permanent: true}
	}
	o := &offering{run: r, offerer: offerer, call: call, offer: steps.Offer{Session: r.session.id, Work: r.workOf(call, step), Since: r.now(), Wait: offerWait}}
	var err error
	if o.offer.Worker, err = sessionOf(call.Worker); err != nil {
		return nil, err
	}
	if o.offer.Only.Session, err = sessionOf(call.Only.Session); err != nil {
		return nil, err
	}
	if o.offer.Only.Name = call.Only.Name; call.Worker != "" {
		r.logger.Info("step adopted", "step", call.Step, "action", string(call.Action), "attempt", call.Attempt, "worker", call.Worker)
		o.recorded = r.checkpointed(call.Step)
	}
	patient, cancel := ctx, context.CancelFunc(func() {})
	if step.Patience > 0 {
		patient, cancel = context.WithTimeoutCause(ctx, step.Patience, errNoWorker)
	}
	defer cancel()
	if o.offer.Worker == (jobs.SessionID{}) {
		if err := o.find(patient); err != nil {
			if errors.Is(err, errNoWorker) && ctx.Err() == nil {
				return nil, o.untaken(step.Patience)
			}
			return nil, err
		}
	}
	return o.follow(o.call.Bound(ctx))
}

// checkpointed is the number of the latest checkpoint that the worker of an adopted attempt has recorded.
func (r *run) checkpointed(step string) int {
	at := slices.IndexFunc(r.found.Atoms, func(a logbook.AtomDetail) bool { return a.Name == step })
	if at < 0 || r.found.Atoms[at].Checkpoints == nil {
		return 0
	}
	return r.found.Atoms[at].Checkpoints.Number
}

// untaken is the failure of an attempt that no worker has taken in time.
func (o *offering) untaken(patience time.Duration) *logbook.Failure {
	message := fmt.Sprintf("no worker for %q took the step within %s", o.offer.Work.Type, patience)
	if only := &o.offer.Only; !only.Session.IsZero() {
		message += fmt.Sprintf("; same_worker_as binds it to worker %q (session %s)", only.Name, only.Session)
	}
	return &logbook.Failure{Kind: logbook.FailureNoWorker, Message: message}
}

// sessionOf is the session of a worker as recorded in the logbook; zero: none is recorded.
func sessionOf(worker string) (session jobs.SessionID, err error) {
	if worker == "" {
		return session, nil
	}
	if session, err = jobs.ParseSessionID(worker); err != nil {
		return session, fmt.Errorf("the logbook contains an invalid worker: %w", err)
	}
	return session, nil
}

// errNoWorker: the patience of a step that waits for a worker is over.
var errNoWorker = errors.New("no worker took the step in time")

func (r *run) workOf(call *flow.Call, step flow.WorkerStep) steps.Work {
	kind := step.Type
	if call.Action == logbook.ActionRevert {
		kind = step.Revert
	}
	return steps.Work{
		ID:  steps.ID{Flow: call.Flow, Step: call.Step, Action: call.Action, Attempt: call.Attempt, Asked: call.Asked},
		Job: r.claimed.Job.ID, Type: kind, Labels: step.Labels, Key: call.Key(), Round: call.Round, Token: call.Token, Try: call.Try, Tries: call.Tries, LastFailure: call.LastFailure,
		Arguments: call.Arguments, Result: call.Result, Failure: call.Failure, FlowFailures: call.FlowFailures, Cause: call.Cause,
		LastProgress: call.LastProgress,
	}
}

// find waits until a worker takes the attempt, and records the worker. The worker gets the attempt
// only after the record is durable: after any crash the record names the worker that may have the
// attempt.
func (o *offering) find(ctx context.Context) error {
	for {
		answer, err := o.ask(ctx, ctx)
		if err != nil {
			return err
		}
		if answer.Worker == (jobs.SessionID{}) {
			continue
		}
		if err := o.call.Taken(ctx, flow.WorkerID{Session: answer.Worker.String(), Name: answer.Name}); err != nil {
			return err
		}
		o.offer.Worker = answer.Worker
		return nil
	}
}

// follow waits for the outcome from the worker that has the attempt. When the attempt must end, it
// makes the worker stop, and waits for that until the grace is over.
func (o *offering) follow(ctx context.Context) (json.RawMessage, error) {
	calls := ctx
	for {
		answer, err := o.ask(calls, ctx)
		switch {
		case err != nil && o.offer.Stop || err != nil && !mustStop(ctx):
			return nil, err
		case err != nil:
			o.offer.Stop = true
			var cancel context.CancelFunc
			calls, cancel = o.stopTime(ctx)
			defer cancel()
		case answer.Lost:
			return nil, &logbook.Failure{Kind: logbook.FailureWorkerLost, Message: fmt.Sprintf("the session %s of its worker has ended", o.offer.Worker)}
		case answer.Outcome != nil && answer.Outcome.Checkpoint != nil:
			o.checkpoint(calls, answer.Outcome)
		case answer.Outcome != nil:
			o.tell(ctx, answer.Outcome)
			if answer.Outcome.Done {
				return ending(answer.Outcome)
			}
		}
	}
}

// mustStop reports whether the worker must stop: the step's time is up, or the step was
// interrupted. Otherwise the context has ended because this conductor releases the flow, and the
// worker continues for the next conductor.
func mustStop(ctx context.Context) bool {
	return flow.InterruptionOf(ctx) != nil || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// stopTime is a context for the time that the worker has to stop.
func (o *offering) stopTime(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(flow.DefaultGrace)
	if i := flow.InterruptionOf(ctx); i != nil {
		until, _ = i.Deadline()
	}
	stopping, cancel := context.WithDeadlineCause(o.run.working, until, context.Cause(ctx))
	forget := context.AfterFunc(o.run.loop.stepping, cancel)
	return stopping, func() {
		forget()
		cancel()
	}
}

// ask makes one call, and repeats it after errors until ctx ends. The remaining time in the offer
// is the time of the step's context.
func (o *offering) ask(ctx, step context.Context) (steps.Answer, error) {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		o.offer.Work.TimeLeft = 0
		if until, bounded := step.Deadline(); bounded {
			o.offer.Work.TimeLeft = max(time.Millisecond, time.Until(until))
		}
		calls, cancel := context.WithTimeout(ctx, offerWait+2*callTime)
		answer, err := o.offerer.OfferStep(calls, o.offer)
		cancel()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() == nil {
			// This also covers a fenced call: the run ends when it learns that its claim has
			// ended.
			o.run.logger.Warn("cannot offer a step to workers", "step", o.call.Step, "error", o.run.loop.options.loggable(err))
		}
		sleep(ctx, wait.NextBackOff())
	}
	return steps.Answer{}, context.Cause(ctx)
}

// tell forwards the output and progress of a step.
func (o *offering) tell(ctx context.Context, outcome *steps.Outcome) {
	if outcome.Output != "" {
		_, _ = io.WriteString(flow.Output(ctx), strings.TrimSuffix(outcome.Output, "\n")+"\n")
	}
	if p := outcome.Progress; p != nil && outcome.NotYet == 0 {
		var details any
		if p.Details != nil {
			details = p.Details
		}
		_ = o.call.Progress(p.Done, p.Total, details) // the leader has checked it
	}
	if outcome.Done {
		o.call.KeepStderr(outcome.Stderr, false)
		o.call.KeepSent(outcome.Sends)
	}
}

// ending returns the result of a Task for the outcome of a worker.
func ending(outcome *steps.Outcome) (json.RawMessage, error) {
	switch {
	case outcome.NotYet > 0:
		if p := outcome.Progress; p != nil && p.Details != nil {
			return nil, flow.NotYet(outcome.NotYet, p.Details)
		}
		return nil, flow.NotYet(outcome.NotYet)
	case outcome.Failure != nil:
		return nil, outcome.Failure.Foreign()
	}
	return outcome.Result, nil
}
