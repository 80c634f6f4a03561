package fsm

import (
	"github.com/conductord/conductord/jobs"
)

// expireJob cancels a job whose deadline has passed and has it undone. That includes a
// job that a person has reopened and nobody has claimed since. A job that is being
// cancelled stays as it is, and so does one whose flow has ended and waits to be
// consumed.
func (t *txn) expireJob(j *jobRecord) {
	j.watched = false
	if j.State == jobs.StateClaimable {
		// Callers that skipped it since its deadline wait, for this job or those behind it.
		t.becameClaimable(queueOf(&j.jobFacts))
	}
	if j.isUnder(jobs.RequestCancel) {
		t.putJob(j)
		return
	}
	request := &jobs.OperatorRequest{
		Kind: jobs.RequestCancel, Revert: true, By: jobs.ByDeadline,
		Reason: "its deadline, " + deadlineText(j) + ", has passed", At: t.now,
	}
	if j.State == jobs.StateClaimed {
		j.StopRequest = request
		t.tellOwner(jobs.EventStopRequested, j, request)
		return
	}
	remains, flow := t.remains(j, request)
	switch {
	case remains == nothing:
		j.StopRequest = request
		t.closeCancelled(j, flow, "")
	case remains == undoing:
		t.haveUndone(j, request)
	case remains == ended:
		if err := t.cancelReopened(j, flow, request); err != nil { // refused: it waits to be consumed
			t.putJob(j)
		}
	}
}
