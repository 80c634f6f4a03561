package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// run is one job under one claim.
type run struct {
	loop    *workLoop
	session *liveSession
	*runControl
	claimed  jobs.Claimed
	began    time.Time // time of the claim on boottime's clock
	unwanted error     // reason for its release without a run; nil: it is run
	slot     *runSlot
	token    jobs.Token
	logger   hclog.Logger
	trace    *runTrace           // nil: not traced
	found    *logbook.FlowDetail // the flow at the start of the run
}

// runJob handles a job from its claim to its ending. An unwanted job is released before its flow
// starts.
func (w *workLoop) runJob(t *liveSession, claimed jobs.Claimed, slot *runSlot, unwanted error) {
	r := &run{loop: w, session: t, claimed: claimed, began: boottime.Now(), slot: slot, unwanted: unwanted, token: claimed.Job.Claim.Token, runControl: newRunControl(t.alive, w.claiming)}
	defer r.runControl.end()
	// Details and store are never logged, because they may contain secrets.
	r.logger = w.logger.With("job", claimed.Job.ID, "name", claimed.Job.Name, "token", r.token)
	r.logger.Debug("job claimed", "kind", claimed.Job.Kind, "claims", claimed.Job.Claims)
	r.notify(Notice{Moment: MomentClaimed})

	if w.options.Logs != nil {
		defer w.options.Logs.Begin(claimed.Job.ID)()
	}
	r.applyStopRequest(claimed.Job.StopRequest)
	t.claims.add(r)
	defer t.claims.remove(r)
	ctx, stop := context.WithCancelCause(t.working())
	defer stop(nil)
	defer context.AfterFunc(r.working, func() { stop(context.Cause(r.working)) })()

	ctx = r.traceRun(ctx)
	journal := newJournal(r.alive, w.options.Client, r.logger)
	defer journal.close()
	result := r.runFlow(ctx, journal)
	if errors.Is(result.err, errDoubt) {
		// If the conductor released the job now, it could claim the job again itself. It waits
		// until the session is known to live, or is lost.
		_ = t.admit(r.alive)
	}
	// The last update is written with the job's ending, so all earlier updates must have been
	// written.
	journal.flush(r.alive)
	result.stopRequest = r.latestStopRequest()
	r.end(w.options.decide(&r.claimed.Job, r.token, result), result)
}

// handle acts on an event of the run's claim.
func (r *run) handle(event *jobs.Event) {
	switch event.Kind {
	case jobs.EventStopRequested:
		r.applyStopRequest(event.Request)
	case jobs.EventResumed:
		r.applyStopRequest(nil)
	case jobs.EventRetryNow:
		r.endWait(event)
	case jobs.EventSignalled, jobs.EventDecided:
		if len(event.Steps) > 0 {
			go r.takeSignal(event.Steps[0].Name)
		}
	default:
		r.claimEnded(fmt.Sprintf("the job was %s", event.Kind))
	}
}

// endWait lets the engine start a step that waits for its next attempt, or all such steps.
func (r *run) endWait(event *jobs.Event) {
	step := ""
	if len(event.Steps) > 0 {
		step = event.Steps[0].Name
	}
	r.logger.Info("retry requested", "step", step)
	select {
	case r.retryNow <- step:
	default:
	}
}

// takeSignal reads the signal that the wait of a step has taken, and gives it to the engine. It ends with the claim at
// the latest. If it fails, the job's next owner loads the signal: the board lets the job continue at once when this
// owner releases it.
func (r *run) takeSignal(step string) {
	detail, err := r.loop.options.Client.FlowDetail(r.alive, r.claimed.Job.Flow)
	if err != nil {
		if r.alive.Err() == nil { // else the run is over, and the next owner loads the signal
			r.logger.Warn("signal not read", "step", step, "error", err)
		}
		return
	}
	for i := range detail.Atoms {
		wait := detail.Atoms[i].OpenWait()
		if detail.Atoms[i].Name != step || wait == nil || wait.Signal == nil {
			continue
		}
		select {
		case r.signals <- engine.TakenSignal{Step: step, Signal: *wait.Signal}:
			r.logger.Info("signal taken", "step", step, "signal", wait.Signal.Name)
		default:
		}
	}
}

// applyStopRequest follows a stop request; nil withdraws the previous request.
func (r *run) applyStopRequest(request *jobs.OperatorRequest) {
	if !r.setStopRequest(request) {
		return
	}
	if request == nil {
		r.logger.Info("stop request withdrawn")
	} else {
		r.logger.Info("stop request received", "kind", request.Kind, "by", request.By, "reason", request.Reason)
	}
	r.notify(Notice{Moment: MomentStopRequested, StopRequest: request})
	if request != nil && request.Kind == jobs.RequestTransfer {
		r.handOver()
	}
}

// handOver stops the run so that another conductor can claim the job, because an
// operator has drained this one, or transfers the job.
func (r *run) handOver() { r.stopWithin(r.loop.options.Grace) }

// runFlow builds the flow and runs it until it ends, stops or must be released. Without a flow it
// calls the Func of the job's kind.
func (r *run) runFlow(ctx context.Context, journal engine.Journal) result {
	if r.loop.claiming.Err() != nil {
		return result{err: errHandOver} // the claim was in flight when the drain started
	}
	if r.unwanted != nil {
		return result{err: r.unwanted}
	}
	if r.stopping() {
		return result{err: errDrained}
	}
	detail, err := r.detail(ctx)
	if err != nil {
		return result{err: err}
	}
	if do := r.loop.options.Funcs[r.claimed.Job.Kind]; detail == nil && do != nil {
		return r.call(ctx, do)
	}
	if detail == nil {
		return unbuildable(fmt.Errorf("the job has no flow, and jobs of kind %q require a flow", r.claimed.Job.Kind))
	}
	if detail.State.Finished() && !detail.Resumable() {
		// The last owner died between the end of the flow and the end of the job, or the flow was
		// run outside any job.
		return result{end: engine.End{State: detail.State, Cause: detail.Cause}}
	}
	store := maps.Clone(detail.Store)
	if store == nil {
		store = logbook.Values{}
	}
	maps.Copy(store, r.claimed.Job.Store)
	if err := checkDecrypted(detail, store); err != nil {
		return result{err: err}
	}
	plan, err := r.plan(detail, store)
	if err != nil {
		return r.cannotBuild(ctx, detail, err)
	}
	r.notify(Notice{Moment: MomentStarted, FlowState: detail.State})
	end, err := r.runEngine(ctx, plan, detail, store, journal)
	r.logger.Debug("flow ended", "flow", detail.ID, "state", end.State, "error", r.loop.options.loggable(err))
	r.notify(Notice{Moment: MomentFlowEnded, FlowState: end.State, Err: err})
	return result{end: end, err: err}
}

// cannotBuild decides the ending of a job whose flow cannot be built here.
func (r *run) cannotBuild(ctx context.Context, detail *logbook.FlowDetail, why error) result {
	options := r.loop.options
	if options.Elsewhere == nil {
		return unbuildable(why)
	}
	var conductors []jobs.Entity
	var drains []jobs.Drain
	err := repeat(ctx, func(ctx context.Context) (err error) {
		if conductors, err = options.Client.Entities(ctx, jobs.EntityConductor); err == nil {
			drains, err = options.Client.Drains(ctx)
		}
		return err
	})
	if err != nil {
		return result{err: fmt.Errorf("cannot find other conductors that can build the flow: %w", err)}
	}
	able := conductors[:0]
	for _, other := range conductors {
		if other.Session != r.session.id && other.Takes(&r.claimed.Job) && options.Elsewhere(detail, other) {
			able = append(able, other)
		}
	}
	if len(able) == 0 {
		return unbuildable(why)
	}
	return result{err: fmt.Errorf("%w (%s): %w", errElsewhere, whoCan(able, drains), why)}
}

// whoCan names a conductor that could build a flow. This includes drained conductors, because operators can undrain
// them. The text then names the drain as the reason for the job's wait.
func whoCan(able []jobs.Entity, drains []jobs.Drain) string {
	drained := make(map[string]jobs.Drain, len(drains))
	for _, drain := range drains {
		drained[drain.Conductor] = drain
	}
	for _, other := range able {
		if _, is := drained[other.Name]; !is {
			return other.Name + " can"
		}
	}
	name := able[0].Name
	said := fmt.Sprintf("only %s can, but it is drained", name)
	drain := drained[name]
	if drain.By != "" {
		said += " by " + drain.By
	}
	if drain.Reason != "" {
		said += " (" + drain.Reason + ")"
	}
	return said + "; undrain it"
}

// detail is the job's flow as the logbook has it; nil if the job has none.
func (r *run) detail(ctx context.Context) (*logbook.FlowDetail, error) {
	if r.claimed.Flow != nil || r.claimed.Job.Flow.IsZero() {
		return r.claimed.Flow, nil
	}
	var detail logbook.FlowDetail
	err := repeat(ctx, func(ctx context.Context) (err error) {
		detail, err = r.loop.options.Client.FlowDetail(ctx, r.claimed.Job.Flow)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot load flow %s: %w", r.claimed.Job.Flow, err)
	}
	return &detail, nil
}

// plan builds the flow and checks it against its values.
func (r *run) plan(detail *logbook.FlowDetail, store logbook.Values) (*flow.Plan, error) {
	if detail.Factory.Name == "" {
		return nil, errors.New("the flow detail has no factory")
	}
	built, err := r.loop.options.Registry.Build(detail.Factory.Name, detail.Factory.Args)
	if err != nil {
		return nil, err
	}
	how := flow.Compilation{Limits: r.loop.options.Limits, Inputs: slices.Sorted(maps.Keys(store)), Targets: detail.Targets}
	return how.Compile(built)
}

// runEngine runs the engine, which guards the steps against their own panics. A panic of
// the engine itself costs this job a try, and affects no other job.
func (r *run) runEngine(ctx context.Context, plan *flow.Plan, detail *logbook.FlowDetail, store logbook.Values, journal engine.Journal) (end engine.End, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = &flow.PanicError{Value: panicked, Stack: string(debug.Stack())}
			end.Unrecorded = true // the started steps are unknown
		}
	}()
	r.found = detail
	options, claim := r.loop.options, r.claimed.Job.Claim
	end, err = engine.Run(ctx, engine.Options{
		Plan: plan, Detail: *detail, Store: store,
		Job: r.claimed.Job.ID.String(), Board: r.claimed.Job.Board, Token: r.token, Owner: options.Name, Begins: claim.Begins,
		Journal: journal, Workers: options.Workers, Pool: r.loop.pool, MaxIdle: options.MaxIdle,
		TimeUp: r.timeUp(plan), Suspend: r.suspended.Done(), Revert: r.reverting.Done(), Interrupt: r.interrupts, RetryNow: r.retryNow, Signals: r.signals, RevertCause: r.revertCause, Gate: r.session.admit,
		Checkpoints: r.checkpoints, Secrets: r.secret, Offer: r.offerStep, Untaken: r.slot.untaken, Output: r.output(), Now: r.now, Limits: options.Limits, Attempt: r.trace.hook(), Logger: r.logger.Named("engine"), HideFailures: options.encrypts,
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, logbook.ErrFenced) {
		err = context.Cause(ctx)
	}
	return end, err
}

// timeUp is the time at which the run of a flow with a timeout must have finished; zero: never. The time counts from
// the first claim of the job's attempt, so a later owner continues it.
func (r *run) timeUp(plan *flow.Plan) time.Time {
	if plan.Timeout() == 0 {
		return time.Time{}
	}
	return r.claimed.Job.StartedAt.Add(plan.Timeout())
}

// checkpoints reads the checkpoints of a step. It repeats the call until ctx ends: the attempt must not start
// without them, and must not fail because no leader answers.
func (r *run) checkpoints(ctx context.Context, step string) (logbook.Values, error) {
	wait := newBackoff(boardBackoff)
	for ctx.Err() == nil {
		calls, cancel := context.WithTimeout(ctx, callTime)
		values, err := r.loop.options.Client.Checkpoints(calls, r.claimed.Job.Flow, step)
		cancel()
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if err == nil {
				err = checkValue(values[name], fmt.Sprintf("the checkpoint %q of step %s", name, step))
			}
		}
		if err == nil {
			return values, nil
		}
		r.logger.Warn("cannot read the checkpoints of a step", "step", step, "error", r.loop.options.loggable(err))
		sleep(ctx, wait.NextBackOff())
	}
	return nil, context.Cause(ctx)
}

// secret returns a secret for a step of the job.
func (r *run) secret(ctx context.Context, name string) (string, error) {
	if r.loop.options.Secrets == nil {
		return "", fmt.Errorf("%w: this conductor has no secrets", logbook.ErrNotFound)
	}
	return r.loop.options.Secrets(ctx, r.claimed.Job.Board, name)
}

// now is the cluster's time: the stamp of the claim, and the time since. This
// machine's wall clock is never used.
func (r *run) now() time.Time {
	return r.claimed.Job.ModifiedAt.Add(boottime.Since(r.began))
}

// revertCause is the cause of a revert after a request to cancel.
func (r *run) revertCause() *logbook.Failure {
	request := r.latestStopRequest()
	cause := logbook.RevertCause{Kind: logbook.CauseCancel}
	if request != nil && request.By == jobs.ByDeadline {
		cause = logbook.RevertCause{Kind: logbook.CauseDeadline, Reason: request.Reason}
	} else if request != nil {
		cause.By, cause.Reason = request.By, request.Reason
	}
	return flow.FitFailure(cause.Cancelled(saidOf(request)), r.loop.options.Limits)
}

// notify fills in the fields of every notice of a job.
func (r *run) notify(n Notice) {
	n.Session, n.Job, n.Name = r.session.id, r.claimed.Job.ID, r.claimed.Job.Name
	n.Token, n.Claims = r.token, r.claimed.Job.Claims
	r.loop.notify(n)
}
