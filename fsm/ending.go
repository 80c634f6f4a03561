package fsm

import (
	"cmp"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// parting is the end of a claim, worked out before anything is written.
type parting struct {
	jobs.Ending
	job    *jobRecord
	update *flowUpdate // nil: the flow stays
}

// consume completes a job, unless its retry policy has it go on.
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
	}
	p.job.Outcome = outcome
	if p.job.Retry != nil && (outcome == jobs.OutcomeReverted || outcome == jobs.OutcomeFailed) {
		p.job.Attempts++
	}
	if outcome == jobs.OutcomeCancelled && p.Reason == "" {
		p.Reason = p.job.StopRequest.Reason
	}
	t.finish(p, endConsumed, jobs.StateCompleted, jobs.EventCompleted)
	if outcome == jobs.OutcomeReverted || outcome == jobs.OutcomeFailed {
		t.recordEnd(p, howEnded(outcome))
	}
	return nil
}

// trash puts a job aside.
func (t *txn) trash(c *v1.Ending) error {
	p, err := t.planEnding(c, endTrashed)
	if err != nil || p == nil {
		return err
	}
	t.finish(p, endTrashed, jobs.StateTrashed, jobs.EventTrashed)
	t.recordEnd(p, jobs.HowTrashed)
	return nil
}

// abandon gives a job back.
func (t *txn) abandon(c *v1.Ending) error {
	p, err := t.planEnding(c, endAbandoned)
	if err != nil || p == nil {
		return err
	}
	delay := p.Delay
	if undoneSince(p.job) {
		delay = 0
	}
	t.part(p, endAbandoned)
	if p.Failure != nil {
		p.job.Failures++
	}
	completed := t.settle(p.job, delay)
	if !completed {
		t.event(jobs.EventAbandoned, p.job, jobs.Event{Owner: p.job.LastOwner, Token: p.job.Token, Reason: p.Reason})
	}
	if p.Failure != nil {
		t.recordError(p.job, jobs.HowAbandoned, p.Failure)
	}
	return nil
}

// undoneSince reports whether somebody has asked to undo a claimed job
// under its present claim. Its owner may not know that yet, and give the job
// back for a time that does not count any more. The next owner gets the stop request
// with the job, so that a delay which it asks for is meant.
func undoneSince(j *jobRecord) bool {
	return j.isUnder(jobs.RequestCancel) && j.StopRequest.Revert && !j.StopRequest.At.Before(j.Claim.Since)
}

// planEnding checks what the three endings have in common. It answers with
// nil if the very ending has taken place already.
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
		return nil, &logbook.InvalidError{Field: "ending update", Reason: fmt.Sprintf("flow %s is not that of job %s", u.Flow, j.ID)}
	case u.Token != ending.Token:
		return nil, fmt.Errorf("%w: the update carries token %s, and the ending %s", logbook.ErrFenced, u.Token, ending.Token)
	}
	record := t.existingFlow(j.Flow)
	p.update, err = t.planUpdate(record, u, c.GetUpdate().GetDefinitionId())
	return p, err
}

// repeats reports whether an ending is the one that has taken place.
func repeats(j *jobRecord, e *jobs.Ending, how end) bool {
	switch {
	case j.Claim != nil || j.Token != e.Token:
		return false
	case how == endConsumed && j.end == endAttempted:
		return j.Attempted == e.Outcome
	}
	return j.end == how && (how != endConsumed || j.Outcome == e.Outcome)
}

// outcome is that of a job to be consumed. It must agree with how its flow ended.
func (t *txn) outcome(p *parting) (jobs.Outcome, error) {
	switch {
	case p.Outcome == "":
		return "", &logbook.InvalidError{Field: "ending outcome", Reason: "unset"}
	case p.Outcome == jobs.OutcomeCancelled && !p.job.isUnder(jobs.RequestCancel):
		return "", &logbook.InvalidError{Field: "ending outcome", Reason: "cancelled, and nobody has requested that"}
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
			Field: "ending outcome", Reason: fmt.Sprintf("%s, but flow %s may have begun, and is not undone", p.Outcome, p.job.Flow),
		}
	}
	return p.Outcome, nil
}

// agrees reports whether an outcome fits the state of the job's flow. The flow of a
// cancelled job was undone, left as it stood, or never begun.
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

// finish ends a job for good.
func (t *txn) finish(p *parting, how end, to jobs.State, kind jobs.EventKind) {
	if p.update != nil {
		p.update.flow.job = 0
	}
	t.part(p, how)
	t.closeJob(p.job, to)
	t.event(kind, p.job, jobs.Event{
		Owner: p.job.LastOwner, Token: p.job.Token, Outcome: p.job.Outcome, Reason: p.Reason,
	})
	if p.Recorded { // only the owner knows that
		t.own = append(t.own, t.LastEvent)
	}
	if p.update == nil {
		t.detach(p.job)
	}
}

// part writes what every ending brings: the flow's last update, the end of the
// claim, and why. The caller moves the job on.
func (t *txn) part(p *parting, how end) {
	t.writeUpdate(p.update, p.job)
	if !p.Recorded && p.update == nil { // an update records all that has begun
		t.noteBegun(p.job)
	}
	t.release(p.job, how)
	p.job.Reason = p.Reason
	t.setEvidence(p.job, p.Failure)
}

// recordEnd keeps why a job has ended that did not succeed: what its owner said,
// or else what its flow did.
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

// failureOf is why an attempt that is consumed has failed: the failure that its owner
// gives, or else the cause in its flow; nil if there is neither.
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

// unsaid stands for the failure that nobody has told.
func unsaid(p *parting, how jobs.How) *logbook.Failure {
	return &logbook.Failure{Kind: logbook.FailureError, Message: cmp.Or(p.Reason, "the job was "+string(how)+", and nobody said why")}
}
