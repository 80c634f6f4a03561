package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxReruns bounds the runs of a flow by its job's policy. Every run adds an intervention, and
	// interventions of operators need room too.
	maxReruns = logbook.MaxInterventions / 2
	// maxRetryReason bounds the line about a failed attempt. The failure is recorded too.
	maxRetryReason = 1 << 10
)

// sequel is the plan for a job after a failed attempt that does not end it. Nothing of it is written yet.
type sequel struct {
	parks   bool
	due     time.Duration // from now
	outcome jobs.Outcome
	failure *logbook.Failure
	failed  int                   // failed attempts, including this one
	rerun   *logbook.Intervention // runs the flow again; nil: no flow, or the flow does not run again now
	number  uint32                // number of the intervention
	reason  string
}

// sequel decides by the retry policy whether a consumed job continues; nil if it ends. A job that is being cancelled
// ends, and no attempt starts after the job's deadline.
func (t *txn) sequel(p *parting, outcome jobs.Outcome) (*sequel, error) {
	j, policy := p.job, p.job.Retry
	failed := outcome == jobs.OutcomeReverted || outcome == jobs.OutcomeFailed
	if policy == nil || !failed || j.isUnder(jobs.RequestCancel) {
		return nil, nil
	}
	failure := t.failureOf(p)
	if failure == nil {
		failure = unsaid(p, howEnded(outcome))
	}
	s := &sequel{outcome: outcome, failure: failure, failed: j.Attempts + 1}
	s.due = policy.Wait(j.ID, s.failed)
	next := policy.After(s.failed, failure)
	switch {
	case next != jobs.FailureRetries:
	case outcome == jobs.OutcomeFailed && !j.Flow.IsZero(), !j.Deadline.IsZero() && !t.after(s.due).Before(j.Deadline):
		next = policy.Last()
	case !j.Flow.IsZero():
		if s.number = t.interventionCount(j.Flow); s.number >= maxReruns {
			next = policy.Last()
		}
	}
	if next == jobs.FailureCompletes {
		return nil, nil
	}
	s.parks = next == jobs.FailureParks
	s.reason = attemptText(s.failed, policy.Tries()) + " has failed: " + cmp.Or(p.Reason, failure.Error())
	s.reason = strings.ToValidUTF8(s.reason[:min(len(s.reason), maxRetryReason)], "")
	if s.parks || j.Flow.IsZero() {
		return s, nil
	}
	if t.owns(j) {
		return nil, fmt.Errorf("%w: job %s was claimed in the same log entry; try again", jobs.ErrConflict, j.ID)
	}
	s.rerun = t.rerun(j, jobs.ByRetryPolicy, attemptText(s.failed, policy.Tries())+" has failed")
	return s, nil
}

func attemptText(number, tries int) string {
	return fmt.Sprintf("attempt %d of %d", number, max(tries, number))
}

// rerun makes the intervention that runs the flow of a job again from its start. Its id depends on the job and the
// entry, because an entry has at most one for each job.
func (t *txn) rerun(j *jobRecord, by, reason string) *logbook.Intervention {
	return &logbook.Intervention{
		ID:   uuid.NewSHA1(j.ID.UUID, binary.BigEndian.AppendUint64([]byte("rerun "), t.Index)),
		Flow: j.Flow, Kind: logbook.InterveneRerun, By: by, Reason: reason, At: t.now, Token: t.token(),
	}
}

// goOn ends the claim of a failed attempt. The job then waits for the next attempt, or is parked.
func (t *txn) goOn(p *parting, s *sequel) {
	j := p.job
	if s.rerun != nil {
		t.planRerun(p, s)
	}
	p.Reason = s.reason
	t.part(p, endAttempted)
	j.Attempts, j.Attempted, j.StartedAt = s.failed, s.outcome, time.Time{}
	kind, delay := jobs.EventRetried, s.due
	if s.parks {
		kind, delay = jobs.EventParked, 0
		j.Held, j.Parked = true, true
	} else {
		j.Priority = stepped(j.Priority, j.Retry.PriorityStep)
		t.changes.Retried++
	}
	t.settle(j, delay)
	t.event(kind, j, jobs.Event{Owner: j.LastOwner, Token: j.Token, Outcome: s.outcome, Reason: s.reason})
	t.recordError(j, howEnded(s.outcome), s.failure)
}

// planRerun adds the intervention to the flow. The flow is written with its last update, or now if there is no update.
func (t *txn) planRerun(p *parting, s *sequel) {
	if p.update != nil {
		t.addIntervention(p.update.flow, s.number, s.rerun)
		return
	}
	record := t.existingFlow(p.job.Flow)
	t.addIntervention(record, s.number, s.rerun)
	t.saveFlow(record)
}

func howEnded(outcome jobs.Outcome) jobs.How {
	if outcome == jobs.OutcomeReverted {
		return jobs.HowReverted
	}
	return jobs.HowFailed
}

// stepped adds a step to a priority, and stays within the range of priorities.
func stepped(priority, step jobs.Priority) jobs.Priority {
	return jobs.Priority(min(max(int64(priority)+int64(step), math.MinInt32), math.MaxInt32))
}

// unpark releases a parked job with all its attempts.
func (j *jobRecord) unpark() { j.Held, j.Parked, j.Attempts = false, false, 0 }

// release is the planned effect of releasing a parked job on its flow; nil: none.
type release struct {
	record *flowRecord
	rerun  *logbook.Intervention
	number uint32
}

// planRelease plans the effect of releasing a job on its flow.
func (t *txn) planRelease(j *jobRecord, c jobs.Change) (*release, error) {
	if !c.Release || !j.Parked || j.Flow.IsZero() {
		return nil, nil
	}
	record := t.existingFlow(j.Flow)
	number := t.interventionCount(j.Flow)
	switch {
	case record.State != logbook.FlowReverted:
		return nil, fmt.Errorf("%w: its flow %s is %s; an operator must repair the flow with an intervention", jobs.ErrConflict, record.ID, record.State)
	case number >= logbook.MaxInterventions:
		return nil, &logbook.LimitError{Field: "interventions", Limit: logbook.MaxInterventions, Size: int64(number) + 1, Unit: "interventions"}
	case t.owns(j):
		return nil, fmt.Errorf("%w: it was released in the same log entry; try again", jobs.ErrConflict)
	}
	return &release{record, t.rerun(j, cmp.Or(c.By, "somebody"), c.Reason), number}, nil
}

// letRun writes a planned release.
func (t *txn) letRun(j *jobRecord, r *release) {
	if r == nil {
		return
	}
	t.addIntervention(r.record, r.number, r.rerun)
	t.saveFlow(r.record)
	j.end = endNone
}

// giveUp ends a cancelled parked job whose flow could not be undone, because an owner could do nothing more.
// Interventions with Hold are taken back.
func (t *txn) giveUp(j *jobRecord, flow *flowRecord, request *jobs.OperatorRequest) {
	t.takeBack(flow, request)
	flow.job = 0
	t.saveFlow(flow)
	j.StopRequest, j.Outcome = request, jobs.OutcomeFailed
	j.Held, j.Parked = false, false
	t.closeJob(j, jobs.StateCompleted)
	t.event(jobs.EventCompleted, j, jobs.Event{Token: j.Token, Outcome: j.Outcome, Reason: request.Reason, Request: request})
}
