package fsm

import (
	"github.com/conductord/conductord/jobs"
)

// expireJob cancels a job whose deadline has passed, and requests the undo of its flow. This includes a job
// that an operator has reopened. A job that is being cancelled stays unchanged. A job whose flow has ended
// and that waits for its consume also stays unchanged.
func (t *txn) expireJob(j *jobRecord) {
	j.watched = false
	if j.State == jobs.StateClaimable {
		// Callers that skipped the job after its deadline wait for this job or for later
		// jobs of the queue.
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
		if err := t.cancelReopened(j, flow, request); err != nil { // refused: the job waits to be consumed
			t.putJob(j)
		}
	}
}
