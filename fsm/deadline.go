package fsm

import (
	"github.com/conductord/conductord/jobs"
)

// expireJob cancels a job whose deadline has passed, as a person would who
// wants it undone, also one that a person had reopened and nobody has claimed
// since. One that is being cancelled already stays as it is, and so does one
// whose flow has come to an end that waits to be consumed. The error is a fault.
func (t *txn) expireJob(j *jobRecord) error {
	j.watched = false
	if j.State == jobs.StateClaimable {
		// Whoever has passed it by since its deadline waits, perhaps for this very
		// job, or for those behind it.
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
