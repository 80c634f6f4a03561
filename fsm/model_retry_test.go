package fsm_test

import (
	"cmp"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// The model's retry policies. Package jobs decides the delays, and the failures that are retried.

// goesOn continues a consumed job under its retry policy; empty if the job ends. The flow has the
// state after the ending.
func (m *model) goesOn(j *modelJob, flow *modelFlow, c *v1.Ending) (next jobs.OnFailure, due time.Time) {
	outcome := jobs.Outcome(c.Outcome)
	if j.Retry == nil || under(j, jobs.RequestCancel) || outcome != jobs.OutcomeReverted && outcome != jobs.OutcomeFailed {
		return "", due
	}
	failure := command.FailureFromProto(c.Failure)
	if failure == nil && flow != nil {
		failure = flow.Cause
	}
	next, due = j.Retry.After(j.Attempts+1, failure), m.now.Add(j.Retry.Wait(j.ID, j.Attempts+1))
	late := !j.Deadline.IsZero() && !due.Before(j.Deadline)
	if next == jobs.FailureRetries && (late || flow != nil && outcome == jobs.OutcomeFailed) {
		next = j.Retry.Last()
	}
	if next == jobs.FailureCompletes {
		return "", due
	}
	return next, due
}

// tryAgain lets a job wait for its next attempt, or parks it.
func (m *model) tryAgain(j *modelJob, flow *modelFlow, outcome string, next jobs.OnFailure, due time.Time) {
	m.letGo(j, "consumed"+outcome)
	j.Attempts, j.Attempted, j.Reason, j.StartedAt = j.Attempts+1, jobs.Outcome(outcome), "failed", time.Time{}
	j.cooled = time.Time{}
	if next == jobs.FailureParks {
		j.Held, j.Parked = true, true
	} else {
		j.cooled = due
		j.Priority += j.Retry.PriorityStep
		m.runAgain(flow)
	}
	m.place(j)
}

// runAgain restarts a flow.
func (m *model) runAgain(flow *modelFlow) {
	if flow != nil {
		flow.Interventions = append(flow.Interventions[:len(flow.Interventions):len(flow.Interventions)],
			logbook.Intervention{Kind: logbook.InterveneRerun, At: m.now, Token: m.token()})
		m.said(flow)
	}
}

func (j *modelJob) unpark() { j.Held, j.Parked, j.Attempts = false, false, 0 }

// halfUndone reports whether the flow of a parked job cannot run again at once.
func (m *model) halfUndone(j *modelJob) bool {
	flow := m.flowOf(j)
	return flow != nil && (flow.State != logbook.FlowReverted || m.isOwned(j))
}

// unparked releases a parked job, whose flow runs again.
func (m *model) unparked(j *modelJob) {
	if flow := m.flowOf(j); flow != nil {
		m.runAgain(flow)
		j.ended = ""
	}
	j.unpark()
}

// retry retries a job according to its state.
func (m *model) retry(c *v1.JobCommand) error {
	j, _, err := m.ordered(c, "retry")
	if err != nil {
		return err
	}
	waits := j.Parked && (j.State == jobs.StateHeld || j.State == jobs.StateSuspended)
	undone := j.Outcome == jobs.OutcomeReverted || j.Outcome == jobs.OutcomeFailed
	flow := m.flowOf(j)
	switch {
	case waits && j.Flow.IsZero():
		return m.change(&v1.Change{Job: c.Job, Release: true})
	case j.State.Pauses():
		return jobs.ErrConflict
	case !waits && !j.State.Finished():
		return nil
	case j.State == jobs.StateTrashed, undone && j.Flow.IsZero():
		return m.restore(j)
	case !waits && !undone:
		return jobs.ErrConflict
	case flow == nil:
		return jobs.ErrNotFound
	case flow.last != j:
		return jobs.ErrConflict
	}
	_, err = m.intervene(&v1.Intervention{
		Id: uuid.NewString(), Flow: j.Flow.String(), Kind: string(logbook.InterveneRerun), By: cmp.Or(c.By, "somebody"), Reason: c.Reason,
	})
	return err
}

// knows reports whether a change has been made already, by its id.
func (j *modelJob) knows(c *v1.Change) (bool, error) {
	for _, known := range j.changes {
		switch {
		case proto.Equal(known, c):
			return true, nil
		case known.Id == c.Id:
			return false, jobs.ErrConflict
		}
	}
	return false, nil
}

func (j *modelJob) learn(c *v1.Change) {
	if c.Id != "" && !j.State.Finished() {
		j.changes = append(j.changes, c)
		j.changes = j.changes[max(0, len(j.changes)-jobs.MaxKnownChanges):]
	}
}

// keptAs is the group of finished jobs in which the job is retained.
func (j *modelJob) keptAs() string {
	switch {
	case j.Retention > 0:
		return "own"
	case j.State == jobs.StateTrashed || j.Outcome == jobs.OutcomeFailed:
		return "stuck"
	}
	return "done"
}

func (j *modelJob) keptUntil() time.Time { return j.FinishedAt.Add(j.Retention) }

func (m *model) retryNow(c *v1.JobCommand) error {
	j, _, err := m.ordered(c, jobs.RequestRetryNow)
	switch {
	case err != nil:
		return err
	case j.State != jobs.StateClaimed && !j.State.Pauses():
		return jobs.ErrConflict
	}
	waited, known := false, c.Step == "" || m.flowOf(j) == nil
	if flow := m.flowOf(j); flow != nil {
		for i := range flow.Atoms {
			atom := &flow.Atoms[i]
			if c.Step == atom.Name && atom.OpenWait().Open() {
				return jobs.ErrConflict
			}
			if c.Step == "" && !atom.OpenWait().Open() || atom.Name == c.Step {
				known, waited, atom.RetryAt = true, waited || !atom.RetryAt.IsZero(), time.Time{}
			}
		}
	}
	cools := j.State.Pauses() && j.ended != "lost"
	switch {
	case !known:
		return jobs.ErrNotFound
	case !waited && (c.Step != "" || !cools):
		return jobs.ErrConflict
	case j.State == jobs.StateClaimed:
		j.hurried = true
		return nil
	case cools:
		j.cooled = time.Time{}
	}
	m.touch(j)
	return nil
}
