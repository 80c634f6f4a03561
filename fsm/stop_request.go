package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// suspend, resume and cancel are the commands of jobs.Controller, which has the table of their effects.

// suspend stops a job until it is resumed.
func (t *txn) suspend(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestSuspend)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot suspend job %s: %w: the job is %s", j.ID, jobs.ErrConflict, j.State)
	case j.isUnder(jobs.RequestCancel):
		return fmt.Errorf("cannot suspend job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case j.isUnder(jobs.RequestSuspend) && isRepeat(j, request):
		return nil
	}
	j.StopRequest = request
	if j.State == jobs.StateClaimed {
		t.tellOwner(jobs.EventStopRequested, j, request)
		return nil
	}
	t.placeJob(j)
	t.event(jobs.EventSuspended, j, jobs.Event{Request: request, Reason: request.Reason})
	return nil
}

// resume ends a suspension.
func (t *txn) resume(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestResume)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot resume job %s: %w: the job is %s", j.ID, jobs.ErrConflict, j.State)
	case j.isUnder(jobs.RequestCancel):
		return fmt.Errorf("cannot resume job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case !j.isUnder(jobs.RequestSuspend):
		return nil
	}
	j.StopRequest = nil
	if j.State == jobs.StateClaimed {
		t.tellOwner(jobs.EventResumed, j, request)
		return nil
	}
	t.placeJob(j)
	t.event(jobs.EventResumed, j, jobs.Event{Request: request, Reason: request.Reason})
	return nil
}

// cancel ends an unclaimed job, or requests the end from the owner.
func (t *txn) cancel(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestCancel)
	if err != nil {
		return err
	}
	repeated := j.isUnder(jobs.RequestCancel) && j.StopRequest.Revert == request.Revert
	switch {
	case repeated && !j.State.Finished() && isRepeat(j, request), repeated && (j.Outcome == jobs.OutcomeCancelled || endedByRequest(j)):
		return nil
	case j.State.Finished():
		return fmt.Errorf("cannot cancel job %s: %w: the job is %s", j.ID, jobs.ErrConflict, j.State)
	case j.State == jobs.StateClaimed:
		j.StopRequest = request
		t.tellOwner(jobs.EventStopRequested, j, request)
		return nil
	}
	remains, flow := t.remains(j, request)
	switch {
	case remains == ended && j.Parked:
		t.giveUp(j, flow, request)
		return nil
	case remains == ended:
		return t.cancelReopened(j, flow, request)
	case remains == nothing:
		j.StopRequest = request
		t.closeCancelled(j, flow, "")
		return nil
	}
	t.haveUndone(j, request)
	return nil
}

// isRepeat reports whether a stop request of the job's current kind changes nothing. The job is unclaimed, or its owner
// already handles running steps in the requested way.
func isRepeat(j *jobRecord, request *jobs.OperatorRequest) bool {
	return j.State != jobs.StateClaimed || j.StopRequest.Interrupts() == request.Interrupts() && j.StopRequest.Grace == request.Grace
}

// endedByRequest reports whether a stop request completed the job without a claim.
func endedByRequest(j *jobRecord) bool { return j.State == jobs.StateCompleted && j.end != endConsumed }

// cancelReopened cancels a job that an intervention reopened and that has not been claimed since. It takes the
// interventions back. If they continue an undo and the request has Revert, the flow is undone instead.
func (t *txn) cancelReopened(j *jobRecord, flow *flowRecord, request *jobs.OperatorRequest) error {
	pending := t.pending(flow)
	switch {
	case !logbook.Released(pending):
		return fmt.Errorf("cannot cancel job %s: %w: its flow is %s already", j.ID, jobs.ErrConflict, flow.State)
	case request.Revert && !logbook.Forwards(pending):
		t.haveUndone(j, request)
		return nil
	}
	j.StopRequest = request
	t.closeCancelled(j, flow, "")
	return nil
}

// haveUndone makes a cancelled job claimable, for an owner that reverts its flow. The delay of an abandon no longer
// applies. A job of a lost owner still cools, because steps of that owner can still run.
func (t *txn) haveUndone(j *jobRecord, request *jobs.OperatorRequest) {
	j.StopRequest, j.Held = request, false
	if j.end != endLost {
		j.cooled = time.Time{}
	}
	t.placeJob(j)
	t.event(jobs.EventStopRequested, j, jobs.Event{Request: request, Reason: request.Reason})
}

// target reads the job of a command, and makes the record of the request.
func (t *txn) target(c *v1.JobCommand, kind jobs.RequestKind) (*jobRecord, *jobs.OperatorRequest, error) {
	request, err := command.JobCommandFromProto(c)
	if err != nil {
		return nil, nil, err
	}
	j, err := t.jobByID(request.Job)
	if err != nil {
		return nil, nil, err
	}
	return j, &jobs.OperatorRequest{Kind: kind, Revert: request.Revert, By: request.By, Reason: request.Reason, At: t.now,
		Steps: request.Steps, Grace: request.Grace, To: request.To, Within: request.Within}, nil
}

// tellOwner stores a claimed job with a changed stop request, and records the event for its owner.
func (t *txn) tellOwner(kind jobs.EventKind, j *jobRecord, request *jobs.OperatorRequest) {
	j.ModifiedAt = t.now
	t.putJob(j)
	t.event(kind, j, jobs.Event{Owner: j.Claim.Owner, Token: j.Token, Request: request, Reason: request.Reason})
}

// remainder is the remaining work of a cancelled job without an owner.
type remainder int

const (
	nothing remainder = iota // the job can be completed at once
	undoing                  // an owner must undo the flow
	ended                    // the flow has ended in success or failure, and an owner must consume the job
)

// remains returns the remaining work of a job under a request to cancel. The flow is nil if the job has none.
func (t *txn) remains(j *jobRecord, request *jobs.OperatorRequest) (remainder, *flowRecord) {
	if j.Flow.IsZero() {
		return nothing, nil
	}
	flow := t.existingFlow(j.Flow)
	switch {
	case flow.State == logbook.FlowSuccess, flow.State == logbook.FlowFailure:
		return ended, flow
	case request.Revert && flow.hasBegun() && flow.State != logbook.FlowReverted:
		return undoing, flow
	}
	return nothing, flow
}

// settle places a job after the end of its claim, so that others can claim it after a delay. If the job is cancelled
// and has nothing left to do, settle completes it and returns true.
func (t *txn) settle(j *jobRecord, delay time.Duration) (completed bool) {
	j.hurried = false
	if j.cooled = (time.Time{}); delay > 0 {
		j.cooled = t.after(delay)
	}
	if j.isUnder(jobs.RequestCancel) {
		remains, flow := t.remains(j, j.StopRequest)
		if remains == nothing {
			t.closeCancelled(j, flow, j.LastOwner)
			return true
		}
	}
	t.placeJob(j)
	return false
}

// closeCancelled completes a cancelled job with nothing left to do. A started flow becomes suspended, so another
// job can continue it. A flow in failure still needs an operator, so the outcome is failed. Pending interventions are
// taken back.
func (t *txn) closeCancelled(j *jobRecord, flow *flowRecord, owner string) {
	j.Outcome, j.Reason = jobs.OutcomeCancelled, j.StopRequest.Reason
	j.Held, j.Parked = j.Held && !j.Parked, false // the policy's hold has ended; the poster's hold remains
	if flow != nil {
		if flow.State == logbook.FlowFailure {
			j.Outcome = jobs.OutcomeFailed
		}
		t.takeBack(flow, j.StopRequest)
		flow.job = 0
		stopped := flow.State == logbook.FlowRunning || flow.State == logbook.FlowReverting
		if stopped {
			flow.State, flow.UpdatedAt = logbook.FlowSuspended, t.now
		}
		t.saveFlow(flow)
		if stopped {
			t.event(jobs.EventFlow, j, jobs.Event{Token: j.Token, FlowState: string(flow.State)})
		}
	}
	t.closeJob(j, jobs.StateCompleted)
	t.event(jobs.EventCompleted, j, jobs.Event{
		Owner: owner, Token: j.Token, Outcome: j.Outcome, Reason: j.Reason, Request: j.StopRequest,
	})
}
