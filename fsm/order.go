package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// suspend, resume and cancel are the orders of jobs.Controller, which holds
// their table.

// suspend keeps a job from going on.
func (t *txn) suspend(c *v1.OrderCommand) error {
	j, order, err := t.ordered(c, jobs.OrderSuspend)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot suspend job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
	case j.isUnder(jobs.OrderCancel):
		return fmt.Errorf("cannot suspend job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case j.isUnder(jobs.OrderSuspend):
		return nil
	}
	j.Order = order
	if j.State == jobs.StateClaimed {
		t.tellOwner(jobs.EventOrdered, j, order)
		return nil
	}
	t.placeJob(j)
	t.event(jobs.EventSuspended, j, jobs.Event{Order: order, Reason: order.Reason})
	return nil
}

// resume lifts a suspension.
func (t *txn) resume(c *v1.OrderCommand) error {
	j, order, err := t.ordered(c, jobs.OrderResume)
	if err != nil {
		return err
	}
	switch {
	case j.State.Finished():
		return fmt.Errorf("cannot resume job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
	case j.isUnder(jobs.OrderCancel):
		return fmt.Errorf("cannot resume job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case !j.isUnder(jobs.OrderSuspend):
		return nil
	}
	j.Order = nil
	if j.State == jobs.StateClaimed {
		t.tellOwner(jobs.EventResumed, j, order)
		return nil
	}
	t.placeJob(j)
	t.event(jobs.EventResumed, j, jobs.Event{Order: order, Reason: order.Reason})
	return nil
}

// cancel ends a job, or has its owner end it.
func (t *txn) cancel(c *v1.OrderCommand) error {
	j, order, err := t.ordered(c, jobs.OrderCancel)
	if err != nil {
		return err
	}
	repeated := j.isUnder(jobs.OrderCancel) && j.Order.Revert == order.Revert
	switch {
	case repeated && (!j.State.Finished() || j.Outcome == jobs.OutcomeCancelled || endedByOrder(j)):
		return nil
	case j.State.Finished():
		return fmt.Errorf("cannot cancel job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
	case j.State == jobs.StateClaimed:
		j.Order = order
		t.tellOwner(jobs.EventOrdered, j, order)
		return nil
	}
	remains, flow, err := t.remains(j, order)
	switch {
	case err != nil:
		return err
	case remains == ended && j.Parked:
		return t.giveUp(j, flow, order)
	case remains == ended:
		return t.cancelReopened(j, flow, order)
	case remains == nothing:
		j.Order = order
		return t.closeCancelled(j, flow, "")
	}
	t.haveUndone(j, order)
	return nil
}

// endedByOrder tells whether a completed job came to its end by an order, and
// under no claim.
func endedByOrder(j *jobRecord) bool { return j.State == jobs.StateCompleted && j.end != endConsumed }

// cancelReopened cancels a job whose flow had come to its end, and which nobody
// has claimed since a person had the flow go on: that is taken back. Where it
// was to go on backwards, and the order wants that too, it does.
func (t *txn) cancelReopened(j *jobRecord, flow *flowRecord, order *jobs.StandingOrder) error {
	pending, err := t.pending(flow)
	switch {
	case err != nil:
		return err
	case !logbook.Released(pending):
		return fmt.Errorf("cannot cancel job %s: %w: its flow is %s already", j.ID, jobs.ErrConflict, flow.State)
	case order.Revert && !logbook.Forwards(pending):
		t.haveUndone(j, order)
		return nil
	}
	j.Order = order
	return t.closeCancelled(j, flow, "")
}

// haveUndone lets a cancelled job wait for an owner that undoes it. One that
// was given back for a later time is wanted now. One that has lost its owner
// still cools: that owner's steps may not have noticed yet.
func (t *txn) haveUndone(j *jobRecord, order *jobs.StandingOrder) {
	j.Order, j.Held = order, false
	if j.end != endLost {
		j.cooled = time.Time{}
	}
	t.placeJob(j)
	t.event(jobs.EventOrdered, j, jobs.Event{Order: order, Reason: order.Reason})
}

// ordered reads what every order needs.
func (t *txn) ordered(c *v1.OrderCommand, kind jobs.OrderKind) (*jobRecord, *jobs.StandingOrder, error) {
	order, err := command.OrderFromProto(c)
	if err != nil {
		return nil, nil, err
	}
	j, err := t.jobByID(order.Job)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot %s: %w", kind, err)
	}
	return j, &jobs.StandingOrder{Kind: kind, Revert: order.Revert, By: order.By, Reason: order.Reason, At: t.now}, nil
}

// tellOwner writes an order on a claimed job, for its owner to carry out.
func (t *txn) tellOwner(kind jobs.EventKind, j *jobRecord, order *jobs.StandingOrder) {
	j.ModifiedAt = t.now
	t.putJob(j)
	t.event(kind, j, jobs.Event{Owner: j.Claim.Owner, Token: j.Token, Order: order, Reason: order.Reason})
}

// remainder is what is left to do about a cancelled job that nobody owns.
type remainder int

const (
	nothing remainder = iota // it can be completed at once
	undoing                  // its flow is to be undone, by an owner
	ended                    // its flow has come to another end, which an owner is to tell
)

// remains tells what is left to do about a job under an order to cancel. The
// flow is nil if the job has none. The error is a fault.
func (t *txn) remains(j *jobRecord, order *jobs.StandingOrder) (remainder, *flowRecord, error) {
	if j.Flow.IsZero() {
		return nothing, nil, nil
	}
	flow, err := t.existingFlow(j.Flow)
	if err != nil {
		return nothing, nil, err
	}
	switch {
	case flow.State == logbook.FlowSuccess, flow.State == logbook.FlowFailure:
		return ended, flow, nil
	case order.Revert && flow.hasBegun() && flow.State != logbook.FlowReverted:
		return undoing, flow, nil
	}
	return nothing, flow, nil
}

// settle brings a job that has lost its owner to where it is to wait: where
// its order says, or else where others can claim it after a delay. It tells
// whether the job has been completed by that. The error is a fault.
func (t *txn) settle(j *jobRecord, delay time.Duration, owner string) (completed bool, err error) {
	if j.cooled = (time.Time{}); delay > 0 {
		j.cooled = t.after(delay)
	}
	if j.isUnder(jobs.OrderCancel) {
		remains, flow, err := t.remains(j, j.Order)
		if err != nil {
			return false, err
		}
		if remains == nothing {
			return true, t.closeCancelled(j, flow, owner)
		}
	}
	t.placeJob(j)
	return false, nil
}

// closeCancelled completes a job about which nothing is left to do. A flow
// that has begun is left suspended, so that another job could take it up; one
// that has failed still needs a person. What was to be carried out in it is
// taken back. The error is a fault.
func (t *txn) closeCancelled(j *jobRecord, flow *flowRecord, owner string) error {
	j.Outcome, j.Reason = jobs.OutcomeCancelled, j.Order.Reason
	j.Held, j.Parked = j.Held && !j.Parked, false // what its policy has held is over; what its poster said stays
	if flow != nil {
		if flow.State == logbook.FlowFailure {
			j.Outcome = jobs.OutcomeFailed
		}
		if err := t.takeBack(flow, j.Order); err != nil {
			return err
		}
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
		Owner: owner, Token: j.Token, Outcome: j.Outcome, Reason: j.Reason, Order: j.Order,
	})
	return nil
}
