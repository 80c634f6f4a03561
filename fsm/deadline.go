package fsm

import (
	"github.com/conductord/conductord/jobs"
)

// expireJob cancels a job whose deadline has passed and has it undone. That includes a
// job that a person has reopened and nobody has claimed since. A job that is being
// cancelled stays as it is, and so does one whose flow has ended and waits to be
// consumed. The error is a fault.
func (t *txn) expireJob(j *jobRecord) error {
	j.watched = false
	if j.State == jobs.StateClaimable {
		// Callers that skipped it since its deadline wait, for this job or those behind it.
		t.becameClaimable(queueOf(&j.jobFacts))
	}
	if j.isUnder(jobs.RequestCancel) {
		t.putJob(j)
		return nil
	}
	request := &jobs.OperatorRequest{
		Kind: jobs.RequestCancel, Revert: true, By: jobs.ByDeadline,
		Reason: "its deadline, " + deadlineText(j) + ", has passed", At: t.now,
	}
	if j.State == jobs.StateClaimed {
		j.StopRequest = request
		t.tellOwner(jobs.EventStopRequested, j, request)
		return nil
	}
	remains, flow, err := t.remains(j, request)
	switch {
	case err != nil:
		return err
	case remains == nothing:
		j.StopRequest = request
		return t.closeCancelled(j, flow, "")
	case remains == undoing:
		t.haveUndone(j, request)
	case remains == ended:
		err := t.cancelReopened(j, flow, request)
		if isFault(err) {
			return err
		}
		if err != nil { // refused: it waits to be consumed
			t.putJob(j)
		}
	}
	return nil
}
