package fsm

import (
	"cmp"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// parting is the planned end of a claim. Nothing of it is written yet.
type parting struct {
	jobs.Ending
	job    *jobRecord
	update *flowUpdate // nil: the flow does not change
}

// consume completes a job, unless its retry policy continues or parks it, or its flow continues with another iteration.
func (t *txn) consume(c *v1.Ending) error {
	p, err := t.planEnding(c, endConsumed)
	if err != nil || p == nil {
		return err
	}
	outcome, err := t.outcome(p)
	if err != nil {
		return err
	}
	next, err := t.sequel(p, outcome)
	switch {
	case err != nil:
		return err
	case next != nil:
		t.goOn(p, next)
		return nil
	case t.continues(p):
		return t.beginIteration(p)
	}
	p.job.Outcome = outcome
	if p.job.Retry != nil && (outcome == jobs.OutcomeReverted || outcome == jobs.OutcomeFailed) {
		p.job.Attempts++
	}
	if (outcome == jobs.OutcomeCancelled || p.Again != nil) && p.Reason == "" {
		p.Reason = p.job.StopRequest.Reason
	}
	t.finish(p, endConsumed, jobs.StateCompleted, jobs.EventCompleted)
	if outcome == jobs.OutcomeReverted || outcome == jobs.OutcomeFailed {
		t.recordEnd(p, howEnded(outcome))
	}
	return nil
}

// trash trashes a job that no conductor can do.
func (t *txn) trash(c *v1.Ending) error {
	p, err := t.planEnding(c, endTrashed)
	if err != nil || p == nil {
		return err
	}
	t.finish(p, endTrashed, jobs.StateTrashed, jobs.EventTrashed)
	t.recordEnd(p, jobs.HowTrashed)
	return nil
}

// abandon releases a job to its board.
func (t *txn) abandon(c *v1.Ending) error {
	p, err := t.planEnding(c, endAbandoned)
	if err != nil || p == nil {
		return err
	}
	undone := undoneSince(p.job)
	t.part(p, endAbandoned)
	delay := p.Delay
	if undone || p.job.hurried { // the update can have ended a wait
		delay = 0
	}
	if p.Failure != nil {
		p.job.Failures++
	}
	p.job.waits = p.Waits
	completed := t.settle(p.job, delay)
	if !completed {
		t.event(jobs.EventAbandoned, p.job, jobs.Event{Owner: p.job.LastOwner, Token: p.job.Token, Reason: p.Reason})
	}
	if p.Failure != nil {
		t.recordError(p.job, jobs.HowAbandoned, p.Failure)
	}
	return nil
}

// undoneSince reports whether a request to undo the job came during its current claim. The owner may not
// know the request, so the delay of its abandon does not apply. The next owner gets the request with the
// job, so its delay applies.
func undoneSince(j *jobRecord) bool {
	return j.isUnder(jobs.RequestCancel) && j.StopRequest.Revert && !j.StopRequest.At.Before(j.Claim.Since)
}

// planEnding makes the common checks of the three endings. It returns nil for a repeat of an ending that took effect.
func (t *txn) planEnding(c *v1.Ending, how end) (*parting, error) {
	ending, err := command.EndingFromProto(c)
	if err != nil {
		return nil, err
	}
	j, err := t.jobByID(ending.Job)
	if err != nil {
		return nil, err
	}
	if repeats(j, &ending, how) {
		return nil, nil
	}
	if err := t.checkToken(j, ending.Token); err != nil {
		return nil, err
	}
	p := &parting{Ending: ending, job: j}
	u := ending.Update
	switch {
	case u == nil:
		return p, nil
	case u.Flow.IsZero() || u.Flow != j.Flow:
		return nil, &logbook.InvalidError{Field: "ending update", Reason: fmt.Sprintf("flow %s does not belong to job %s", u.Flow, j.ID)}
	case u.Token != ending.Token:
		return nil, fmt.Errorf("%w: the update has token %s, and the ending has token %s", logbook.ErrFenced, u.Token, ending.Token)
	}
	record := t.existingFlow(j.Flow)
	p.update, err = t.planUpdate(record, u, c.GetUpdate().GetDefinitionId())
	return p, err
}

// repeats reports whether an ending is a repeat of the job's last ending.
func repeats(j *jobRecord, e *jobs.Ending, how end) bool {
	switch {
	case j.Claim != nil || j.Token != e.Token:
		return false
	case how == endConsumed && j.end == endAttempted:
		return j.Attempted == e.Outcome
	case how == endConsumed && j.end == endContinued:
		return e.Again != nil
	}
	return j.end == how && (how != endConsumed || j.Outcome == e.Outcome)
}

// outcome returns the outcome of a consume. It must agree with the state of the flow.
func (t *txn) outcome(p *parting) (jobs.Outcome, error) {
	switch {
	case p.Outcome == "":
		return "", &logbook.InvalidError{Field: "ending outcome", Reason: "unset"}
	case p.Outcome == jobs.OutcomeCancelled && !p.job.isUnder(jobs.RequestCancel):
		return "", &logbook.InvalidError{Field: "ending outcome", Reason: "cancelled, but the job has no cancel request"}
	}
	if p.job.Flow.IsZero() {
		return p.Outcome, nil
	}
	var record *flowRecord
	if p.update != nil {
		record = p.update.flow
	} else {
		record = t.existingFlow(p.job.Flow)
	}
	switch {
	case !agrees(p.Outcome, record.State):
		return "", &logbook.InvalidError{
			Field: "ending outcome", Reason: fmt.Sprintf("%s, but flow %s is %s", p.Outcome, p.job.Flow, record.State),
		}
	case p.Outcome == jobs.OutcomeCancelled && p.job.StopRequest.Revert && record.mayHaveBegun(p.job.Claim, p.Recorded):
		return "", &logbook.InvalidError{
			Field: "ending outcome", Reason: fmt.Sprintf("%s, but flow %s may have started, and its steps are not reverted", p.Outcome, p.job.Flow),
		}
	}
	return p.Outcome, nil
}

// agrees reports whether an outcome agrees with the state of the job's flow. The flow of a cancelled job is undone,
// suspended, or not started.
func agrees(outcome jobs.Outcome, state logbook.FlowState) bool {
	switch outcome {
	case jobs.OutcomeSuccess:
		return state == logbook.FlowSuccess
	case jobs.OutcomeReverted:
		return state == logbook.FlowReverted
	case jobs.OutcomeCancelled:
		return state == logbook.FlowReverted || state == logbook.FlowSuspended || state == logbook.FlowPending
	}
	return state == logbook.FlowFailure
}

// finish ends a claim and finishes its job.
func (t *txn) finish(p *parting, how end, to jobs.State, kind jobs.EventKind) {
	if p.update != nil {
		p.update.flow.job = 0
	}
	t.part(p, how)
	t.closeJob(p.job, to)
	t.event(kind, p.job, jobs.Event{
		Owner: p.job.LastOwner, Token: p.job.Token, Outcome: p.job.Outcome, Reason: p.Reason,
	})
	if p.Recorded { // only the owner knows this
		t.own = append(t.own, t.LastEvent)
	}
	if p.update == nil {
		t.detach(p.job)
	}
}

// part writes the common parts of every ending: the flow's last update, the end of the claim, the reason and the
// failure. The caller changes the job's other facts and calls placeJob.
func (t *txn) part(p *parting, how end) {
	t.writeUpdate(p.update, p.job)
	if !p.Recorded && p.update == nil { // an update records all started work
		t.noteBegun(p.job)
	}
	t.release(p.job, how)
	p.job.Reason = p.Reason
	t.setEvidence(p.job, p.Failure)
}

// recordEnd records the error of a job that ended without success: the failure of the ending, or else the failure of
// its flow.
func (t *txn) recordEnd(p *parting, how jobs.How) {
	failure := p.Failure
	if how != jobs.HowTrashed {
		failure = t.failureOf(p)
	}
	if failure == nil {
		failure = unsaid(p, how)
	}
	t.recordError(p.job, how, failure)
}

// failureOf returns the failure of a failed attempt that is consumed: the failure of the ending, or else the cause of
// the flow; nil if there is neither.
func (t *txn) failureOf(p *parting) *logbook.Failure {
	switch {
	case p.Failure != nil || p.job.Flow.IsZero():
		return p.Failure
	case p.update != nil && p.update.recaused:
		return p.update.flow.Cause
	}
	flow := t.existingFlow(p.job.Flow)
	whole := t.flowBody(flow)
	return whole.Cause
}

// unsaid makes the failure for an ending without one.
func unsaid(p *parting, how jobs.How) *logbook.Failure {
	return &logbook.Failure{Kind: logbook.FailureError, Message: cmp.Or(p.Reason, "the job was "+string(how)+", without a reason")}
}
