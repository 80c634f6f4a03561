package conductor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// result is the end of a job's run.
type result struct {
	end         engine.End
	err         error                 // why the run could not continue; nil: it has ended
	unbuildable *logbook.Failure      // why it could not start
	stopRequest *jobs.OperatorRequest // the job's latest; nil: none

	// For a job without a flow:

	outcome     jobs.Outcome     // empty: its Func has not finished it
	said        *endingError     // the ending that its Func returned; nil: it has an outcome
	failure     *logbook.Failure // its Func's error
	interrupted bool             // by a stop request
}

// verb is the way in which a conductor ends its claim on a job.
type verb string

const (
	letGo   verb = "let go" // the claim has ended: nothing may be written about the job
	consume verb = "consume"
	abandon verb = "abandon"
	trash   verb = "trash"
)

// decision is a job's ending.
type decision struct {
	verb   verb
	ending jobs.Ending
}

// pinnedDelay is the cool-down of a job whose flow is pinned to code that this conductor lacks.
// It is short for an operator who waits for another conductor to claim the job, and limits the
// cost of useless claims: two writes each.
const pinnedDelay = 10 * time.Second

// maxReason limits the reason, a sentence for display; the failure has the details.
const maxReason = 1 << 10

// errElsewhere: the flow cannot be built here, and another conductor could.
var errElsewhere = errors.New("this conductor cannot build the flow")

// decide is the table of outcomes:
//
//	end of the run                              the job is   with
//	──────────────────────────────────────────  ───────────  ─────────────────────────────────
//	flow success                                consumed     outcome success, the last update; with flow.Again,
//	                                                         the next iteration
//	flow reverted                               consumed     outcome reverted, the last update, the cause;
//	                                                         cancelled if that was requested
//	flow failure (an undo failed)               consumed     outcome failed, the last update, the cause
//	one of these three already when loaded      consumed     the same, without an update
//	flow suspended by a cancel without revert   consumed     outcome cancelled, the last update
//	flow only waits for longer than MaxIdle,    abandoned    the last update, until its step is due; the
//	or for a signal                                          board handles stop requests that came meanwhile
//	flow suspended                              abandoned    the last update, no delay: if a stop request has
//	                                                         suspended the job, the board keeps it suspended
//	stopped for a hand-over, a drain or doubt   abandoned    no update, no delay: steps that ran are recorded
//	about the session                                        as running, as after a crash
//	a wait took a signal that the run did not   abandoned    no update, no delay: the next owner loads it
//	know
//	not started: paused, or out of time         abandoned    nothing, no delay
//	fenced, or the claim is over                let go       nothing: another may own it
//	no flow, cannot be built or compiled        trashed      failure flow.build, naming all faults
//	the same, but another conductor could       abandoned    no update, a delay that grows with its claims
//	a value of it cannot be decrypted here      abandoned    no update, a delay that grows with its claims:
//	                                                         another conductor may have the key, and this
//	                                                         one after a restart
//	pinned to its recorded definition, and      abandoned    no update, a delay: another conductor may
//	built differently here                                   have the code; counted as no failure
//	refuses any other definition than the       trashed      failure flow.changed, naming all differences
//	recorded one
//	Func returned nil                           consumed     outcome success
//	Func returned Abandon or Trash              as returned  the error
//	Func returned another error                 consumed     outcome failed, the failure
//	Func was stopped by a request               as a flow    that is suspended
//	trouble that is not the flow's fault        abandoned    the failure, a growing delay
//	the same for the MaxTries-th time           trashed      the failure
//
// Every ending tells the board whether all started steps are recorded: see jobs.Ending.
//
// The conductor consumes a job even if its flow failed. The board then applies the retry policy of
// the job.
func (o *Options) decide(job *jobs.Job, token jobs.Token, r result) decision {
	ending := jobs.Ending{Job: job.ID, Token: token, Recorded: !r.end.Unrecorded}
	switch {
	case r.unbuildable != nil:
		ending.Failure = flow.FitFailure(r.unbuildable, o.Limits)
		ending.Reason = r.unbuildable.Message
		if !strings.HasPrefix(ending.Reason, "cannot ") {
			ending.Reason = "its flow cannot be built: " + ending.Reason
		}
		ending.Reason = clip(ending.Reason)
		return decision{trash, ending}
	case errors.Is(r.err, logbook.ErrFenced), errors.Is(r.err, errClaimLost), errors.Is(r.err, errClaimEnded), errors.Is(r.err, jobs.ErrSessionExpired):
		return decision{letGo, ending}
	case errors.Is(r.err, errHandOver), errors.Is(r.err, logbook.ErrSignalled), errors.Is(r.err, errDrained), errors.Is(r.err, errDoubt),
		errors.Is(r.err, errPaused), errors.Is(r.err, errTimeOver):
		ending.Reason = clip(r.err.Error())
		return decision{abandon, ending}
	case errors.Is(r.err, errElsewhere), errors.Is(r.err, errEncrypted):
		// Other conductors that wait come first. If they are busy and this one claims the job
		// again, they get more time.
		ending.Reason, ending.Delay = clip(r.err.Error()), o.delay(job.Claims)
		return decision{abandon, ending}
	case errors.Is(r.err, engine.ErrPinned):
		ending.Reason, ending.Delay = clip(r.err.Error()), min(pinnedDelay, o.MaxAbandonDelay)
		return decision{abandon, ending}
	case errors.Is(r.err, engine.ErrChanged):
		failure := flow.FailureOf(r.err)
		failure.Kind, failure.Permanent = logbook.FailureChanged, true
		ending.Failure, ending.Reason = flow.FitFailure(failure, o.Limits), clip(r.err.Error())
		return decision{trash, ending}
	case r.err != nil:
		return o.trouble(job, ending, r.err)
	case r.outcome != "" || r.said != nil:
		return o.returned(ending, r)
	case r.interrupted:
		return stopped(ending, r.stopRequest)
	}
	ending.Update = r.end.Update
	if !r.end.WaitUntil.IsZero() {
		return waiting(ending, r)
	}
	switch r.end.State {
	case logbook.FlowSuccess:
		ending.Outcome, ending.Again = jobs.OutcomeSuccess, continuation(r.end.Again)
	case logbook.FlowReverted:
		ending.Outcome, ending.Failure = jobs.OutcomeReverted, r.end.Cause
		if cancelled(r.stopRequest) {
			ending.Outcome, ending.Reason = jobs.OutcomeCancelled, r.stopRequest.Reason
		}
	case logbook.FlowFailure:
		ending.Outcome, ending.Failure = jobs.OutcomeFailed, r.end.Cause
	case logbook.FlowSuspended:
		return stopped(ending, r.stopRequest)
	default:
		ending.Update, ending.Recorded = nil, false
		return o.trouble(job, ending, fmt.Errorf("the engine ended a flow in state %q", r.end.State))
	}
	return decision{consume, ending}
}

// continuation is the next iteration of a job's flow; nil: the job ends.
func continuation(next *engine.Continuation) *jobs.Continuation {
	if next == nil {
		return nil
	}
	return &jobs.Continuation{Store: next.Values, Delay: min(next.After, logbook.MaxWait)}
}

// returned ends a job as its Func requested.
func (o *Options) returned(ending jobs.Ending, r result) decision {
	failure := flow.FitFailure(r.failure, o.Limits)
	if r.said == nil {
		ending.Outcome, ending.Failure = r.outcome, failure
		return decision{consume, ending}
	}
	ending.Reason, ending.Delay = clip(failure.Message), r.said.delay
	if r.said.verb == trash {
		ending.Failure = failure
	}
	return decision{r.said.verb, ending}
}

// stopped ends a job that was stopped before its end.
func stopped(ending jobs.Ending, request *jobs.OperatorRequest) decision {
	if !cancelled(request) || request.Revert {
		ending.Reason = clip("its work was suspended" + suffix(request))
		return decision{abandon, ending}
	}
	ending.Outcome, ending.Reason = jobs.OutcomeCancelled, request.Reason
	return decision{consume, ending}
}

// waiting releases a job until its flow can continue. This does not count as a problem.
func waiting(ending jobs.Ending, r result) decision {
	until := r.end.WaitUntil
	ending.Delay, ending.Waits = min(r.end.Wait, jobs.MaxDelay), true
	switch wait := r.end.Awaits; {
	case wait == nil:
		ending.Reason = clip(fmt.Sprintf("waits until %s to try step %s again", until.UTC().Format(time.RFC3339), r.end.WaitFor))
	case wait.Sleeps():
		ending.Reason = clip(fmt.Sprintf("step %s sleeps until %s", r.end.WaitFor, wait.Until.UTC().Format(time.RFC3339)))
	default:
		ending.Reason = clip(fmt.Sprintf("step %s waits for %s since %s, until %s", r.end.WaitFor, wait.For(),
			wait.Since.UTC().Format(time.RFC3339), wait.Until.UTC().Format(time.RFC3339)))
	}
	return decision{abandon, ending}
}

func cancelled(request *jobs.OperatorRequest) bool {
	return request != nil && request.Kind == jobs.RequestCancel
}

// saidOf describes a stop request in a sentence.
func saidOf(request *jobs.OperatorRequest) string {
	said := "none"
	if request != nil && request.By == jobs.ByDeadline {
		said = "the job was cancelled: " + request.Reason
	} else if request != nil {
		said = string(request.Kind) + " was requested"
		if request.By != "" {
			said += " by " + request.By
		}
		if request.Reason != "" {
			said += ": " + request.Reason
		}
	}
	return said
}

func suffix(request *jobs.OperatorRequest) string {
	if request == nil {
		return ""
	}
	return ": " + saidOf(request)
}

// trouble ends a job after a problem that its flow did not cause.
func (o *Options) trouble(job *jobs.Job, ending jobs.Ending, err error) decision {
	ending.Failure = flow.FitFailure(flow.FailureOf(err), o.Limits)
	tries := job.Failures + 1
	if tries >= o.MaxTries {
		ending.Reason = clip(fmt.Sprintf("trashed after %d failed tries: %v", tries, err))
		return decision{trash, ending}
	}
	ending.Reason = clip(err.Error())
	ending.Delay = o.delay(tries)
	return decision{abandon, ending}
}

// delay doubles with every attempt that ended with a problem.
func (o *Options) delay(tries int) time.Duration {
	delay := o.AbandonDelay
	for range tries - 1 {
		if delay >= o.MaxAbandonDelay/2 {
			return o.MaxAbandonDelay
		}
		delay *= 2
	}
	return min(delay, o.MaxAbandonDelay)
}

func unbuildable(err error) result {
	failure := flow.FailureOf(err)
	failure.Kind, failure.Permanent = logbook.FailureBuild, true
	return result{unbuildable: failure}
}

// clip shortens a text to maxReason bytes of whole characters. It replaces invalid UTF-8,
// because a board refuses that.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxReason {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:maxReason-len(mark)], "") + mark
}

// end carries out a decision, and repeats it until the board has answered or the claim is lost. The board may refuse
// the ending, because of the flow's last update. Then end abandons the job instead. If the board refuses that too, end
// abandons the job without any data that could be refused.
func (r *run) end(d decision, res result) {
	if d.verb == letGo {
		r.lost(res.err)
		return
	}
	err := r.send(d)
	if errors.Is(err, logbook.ErrSignalled) { // the next owner loads the signal
		d = decision{abandon, jobs.Ending{Job: d.ending.Job, Token: d.ending.Token, Reason: clip(err.Error())}}
		err = r.send(d)
	}
	if refused(err) {
		r.logger.Error("board refused the job's ending", "verb", d.verb, "error", err)
		recorded := d.ending.Recorded && d.ending.Update == nil // the first steps can be in this update
		d = r.loop.options.trouble(&r.claimed.Job, jobs.Ending{Job: d.ending.Job, Token: d.ending.Token, Recorded: recorded}, err)
		err = r.send(d)
	}
	if refused(err) {
		bare := jobs.Ending{Job: d.ending.Job, Token: d.ending.Token, Recorded: d.ending.Recorded, Reason: "its ending was refused", Delay: r.loop.options.MaxAbandonDelay}
		d = decision{abandon, bare}
		err = r.send(d)
	}
	if err == nil {
		r.ended(d, res)
		return
	}
	if refused(err) {
		r.logger.Error("job stays claimed until its session ends", "error", err)
	}
	r.lost(err)
}

// send makes the call, and repeats it while its result is ambiguous.
func (r *run) send(d decision) error {
	board := r.loop.options.Client
	return repeat(r.session.alive, func(ctx context.Context) error {
		switch d.verb {
		case consume:
			return board.Consume(ctx, d.ending)
		case abandon:
			return board.Abandon(ctx, d.ending)
		case trash:
			return board.Trash(ctx, d.ending)
		}
		panic(fmt.Sprintf("internal error: no call for %q", d.verb))
	})
}

// refused reports whether the claim still holds and the board has refused the ending.
func refused(err error) bool {
	for _, over := range []error{jobs.ErrFenced, jobs.ErrNotFound, jobs.ErrSessionExpired, errClaimLost, errClaimEnded, errHandOver, errClosed} {
		if errors.Is(err, over) {
			return false
		}
	}
	return err != nil
}

func (r *run) ended(d decision, res result) {
	level := hclog.Info
	if d.ending.Outcome == jobs.OutcomeSuccess {
		level = hclog.Debug // there can be thousands of these per second
	}
	var reason any = d.ending.Reason
	if d.ending.Failure != nil || res.said != nil {
		reason = r.loop.options.loggable(reason)
	}
	r.logger.Log(level, "job ended", "by", d.verb, "outcome", d.ending.Outcome, "state", res.end.State, "reason", reason, "delay", d.ending.Delay)
	r.trace.end(string(d.verb), d.ending.Outcome, reason, d.ending.Failure != nil)
	moment := map[verb]Moment{consume: MomentConsumed, abandon: MomentAbandoned, trash: MomentTrashed}[d.verb]
	notice := Notice{Moment: moment, FlowState: res.end.State, Outcome: d.ending.Outcome, Err: res.err}
	if d.ending.Failure != nil {
		notice.Err = d.ending.Failure
	}
	r.notify(notice)
}

func (r *run) lost(err error) {
	r.logger.Warn("claim lost", "error", err)
	r.trace.end("claim lost", "", err, true)
	r.notify(Notice{Moment: MomentClaimLost, Err: err})
}
