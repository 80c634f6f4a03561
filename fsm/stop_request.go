package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// suspend, resume and cancel are commands of jobs.Controller, which holds their
// table.

// suspend keeps a job from going on.
func (t *txn) suspend(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestSuspend)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot suspend job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
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

// resume lifts a suspension.
func (t *txn) resume(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestResume)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot resume job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
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

// cancel ends a job, or has its owner end it.
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
		return fmt.Errorf("cannot cancel job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
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

// isRepeat reports whether a stop request of the kind that the job is under asks for nothing
// new: its owner, if it has one, does the same with running steps already.
func isRepeat(j *jobRecord, request *jobs.OperatorRequest) bool {
	return j.State != jobs.StateClaimed || j.StopRequest.Interrupts() == request.Interrupts() && j.StopRequest.Grace == request.Grace
}

// endedByRequest reports whether a completed job came to its end by a stop request, and
// under no claim.
func endedByRequest(j *jobRecord) bool { return j.State == jobs.StateCompleted && j.end != endConsumed }

// cancelReopened cancels a job whose flow had ended, which a person has reopened and
// nobody has claimed since: the interventions are taken back. If they undo the flow
// further and the request asks for an undo too, the flow is undone.
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

// haveUndone lets a cancelled job wait for an owner that undoes it. A delay for which it
// was released no longer counts. A job that has lost its owner still cools: steps of that
// owner may still run.
func (t *txn) haveUndone(j *jobRecord, request *jobs.OperatorRequest) {
	j.StopRequest, j.Held = request, false
	if j.end != endLost {
		j.cooled = time.Time{}
	}
	t.placeJob(j)
	t.event(jobs.EventStopRequested, j, jobs.Event{Request: request, Reason: request.Reason})
}

// target reads what every command about a job needs.
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

// tellOwner writes a stop request on a claimed job, for its owner to carry out.
func (t *txn) tellOwner(kind jobs.EventKind, j *jobRecord, request *jobs.OperatorRequest) {
	j.ModifiedAt = t.now
	t.putJob(j)
	t.event(kind, j, jobs.Event{Owner: j.Claim.Owner, Token: j.Token, Request: request, Reason: request.Reason})
}

// remainder is what is left to do about a cancelled job that nobody owns.
type remainder int

const (
	nothing remainder = iota // it can be completed at once
	undoing                  // an owner has to undo its flow
	ended                    // its flow has ended otherwise, and an owner has to consume it
)

// remains tells what is left to do about a job under a request to cancel. The
// flow is nil if the job has none.
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

// settle places a job that has lost its owner, so that others can claim it after a delay,
// or completes it if a cancellation leaves nothing to do, and reports whether it did.
func (t *txn) settle(j *jobRecord, delay time.Duration) (completed bool) {
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

// closeCancelled completes a job about which nothing is left to do. A flow
// that has begun is left suspended, so that another job could take it up; one that has
// failed still needs a person. Pending interventions are taken back. The error is a
// fault.
func (t *txn) closeCancelled(j *jobRecord, flow *flowRecord, owner string) {
	j.Outcome, j.Reason = jobs.OutcomeCancelled, j.StopRequest.Reason
	j.Held, j.Parked = j.Held && !j.Parked, false // what its policy has held is over; what its poster said stays
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
