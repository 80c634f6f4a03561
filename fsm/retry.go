package fsm

import (
	"cmp"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// retry starts a job again, according to its state. jobs.Historian has the table.
func (t *txn) retry(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestRetry)
	if err != nil {
		return err
	}
	failed := j.Outcome == jobs.OutcomeFailed || j.Outcome == jobs.OutcomeReverted
	switch {
	case j.isParked() && j.Flow.IsZero():
		return t.change(&v1.Change{Job: c.GetJob(), Release: true, By: c.GetBy(), Reason: c.GetReason()})
	case j.isParked():
	case j.State.Pauses():
		return fmt.Errorf("cannot retry job %s: %w", j.ID, stillCooling(j))
	case !j.State.Finished():
		return nil
	case j.State == jobs.StateTrashed, failed && j.Flow.IsZero():
		return t.restore(j, request)
	case !failed:
		return fmt.Errorf("cannot retry job %s: %w: the job is %s: %s, and only a new job can do its work again", j.ID, jobs.ErrConflict, j.State, j.Outcome)
	}
	if flow := t.flow(j.Flow); flow != nil && flow.last != j.Sequence {
		return fmt.Errorf("cannot retry job %s: %w: its flow has a later job", j.ID, jobs.ErrConflict)
	}
	_, err = t.intervene(command.InterventionToProto(t.rerun(j, cmp.Or(request.By, "somebody"), request.Reason)))
	return err
}

// stillCooling refuses a command that cannot start a cooling or waiting job. It names the call that can.
func stillCooling(j *jobRecord) error {
	if j.end == endLost {
		return fmt.Errorf("%w: it is cooling, because its owner was lost; it starts again at %s without a command", jobs.ErrConflict, timeText(j.DueAt))
	}
	if j.State == jobs.StateWaiting {
		return fmt.Errorf("%w: it is waiting, until %s at the latest; `conductord job explain %s` shows the command that ends the wait", jobs.ErrConflict, timeText(j.DueAt), j.ID)
	}
	return fmt.Errorf("%w: it is cooling, and waits until %s for its next attempt; `conductord flow retry-now %s` starts it now (in the API: RetryNow)", jobs.ErrConflict, timeText(j.DueAt), j.ID)
}

// restore puts a finished job back on its board.
func (t *txn) restore(j *jobRecord, request *jobs.OperatorRequest) error {
	flow, err := t.flowToRestore(j)
	if err == nil {
		err = t.roomAgain(j)
	}
	if err != nil {
		return fmt.Errorf("cannot retry job %s: %w", j.ID, err)
	}
	if j.isUnder(jobs.RequestSuspend) {
		j.StopRequest = nil
	}
	if j.end == endConsumed {
		j.end = endNone // the outcome is removed, so a repeat of the ending must not match a later outcome
	}
	t.reopenJob(j)
	j.watched = j.Deadline.After(t.now)
	if flow != nil {
		flow.job, flow.last = j.Sequence, j.Sequence
		t.saveFlow(flow)
		t.moveSubscriptions(j, false)
	}
	if t.settle(j, 0) {
		return nil
	}
	t.event(jobs.EventRestored, j, jobs.Event{Request: request, Reason: request.Reason})
	return nil
}

// flowToRestore reads the flow of a job to restore; nil if the job has none.
func (t *txn) flowToRestore(j *jobRecord) (*flowRecord, error) {
	if j.Flow.IsZero() {
		return nil, nil
	}
	flow := t.flow(j.Flow)
	switch {
	case flow == nil:
		return nil, fmt.Errorf("%w: its book and flow were destroyed", jobs.ErrConflict)
	case flow.job != 0:
		return nil, fmt.Errorf("%w: flow %s belongs to job number %d, which is not finished", jobs.ErrConflict, flow.ID, flow.job)
	}
	// A book that was destroyed and saved again with the same id is another book.
	book, found := t.book(j.Book)
	if !found || book.CreatedAt.After(j.PostedAt) {
		return nil, fmt.Errorf("%w: its book was destroyed, and a new book has the same id", jobs.ErrConflict)
	}
	return flow, nil
}

// retryNow ends the wait of a job's steps for their next attempts. It removes the times of the waiting steps from the
// record, so that every later owner starts them too. If the owner of a claimed job has already decided to abandon the
// job until such a time, the delay of the abandon does not apply.
func (t *txn) retryNow(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestRetryNow)
	if err != nil {
		return err
	}
	if j.State != jobs.StateClaimed && !j.State.Pauses() {
		return fmt.Errorf("cannot retry job %s now: %w: the job is %s, and only a claimed, cooling or waiting job waits for its next attempt", j.ID, jobs.ErrConflict, j.State)
	}
	cools := j.State.Pauses() && j.end != endLost
	waited, err := t.endWaits(j, c.GetStep())
	switch {
	case err != nil:
		return fmt.Errorf("cannot retry job %s now: %w", j.ID, err)
	case !waited && c.GetStep() != "":
		return fmt.Errorf("cannot retry job %s now: %w: step %q does not wait for a next attempt", j.ID, jobs.ErrConflict, c.GetStep())
	case !waited && !cools:
		return fmt.Errorf("cannot retry job %s now: %w: no step waits for a next attempt", j.ID, jobs.ErrConflict)
	}
	event := jobs.Event{Request: request, Reason: request.Reason}
	if c.GetStep() != "" {
		event.Steps = []jobs.StepEvent{{Name: c.GetStep(), State: string(logbook.AtomPending)}}
	}
	if j.State == jobs.StateClaimed {
		j.hurried = true
		t.putJob(j)
		event.Owner, event.Token = j.Claim.Owner, j.Token
		t.event(jobs.EventRetryNow, j, event)
		return nil
	}
	if cools {
		j.cooled = time.Time{}
	}
	t.placeJob(j)
	t.event(jobs.EventRetryNow, j, event)
	return nil
}

// endWaits removes the time of the next attempt from the named step of a job, or from all steps.
func (t *txn) endWaits(j *jobRecord, step string) (waited bool, err error) {
	id := j.Flow
	flow := t.flow(id)
	if flow == nil {
		return false, nil
	}
	steps := []string{step}
	if step == "" {
		steps = nil
		t.scan(tableAtom, id.UUID[:], func(_, value []byte) bool {
			if atom := decodeAtom(value); !atom.detail.RetryAt.IsZero() && !atom.detail.OpenWait().Open() {
				steps = append(steps, atom.detail.Name)
			}
			return true
		})
	}
	for _, name := range steps {
		value := t.get(tableAtom, atomKey(id, name))
		if value == nil {
			return false, fmt.Errorf("%w: its flow has no started step %q", logbook.ErrNotFound, name)
		}
		atom := decodeAtom(value)
		if wait := atom.detail.OpenWait(); wait.Open() {
			return false, fmt.Errorf("%w: step %q waits for %s; %s", jobs.ErrConflict, name, wait.For(), wait.Remedy())
		}
		if atom.detail.RetryAt.IsZero() {
			continue
		}
		atom.detail.RetryAt, waited = time.Time{}, true
		t.saveAtom(id, atom)
	}
	t.forgetRunning(id)
	return waited, nil
}
