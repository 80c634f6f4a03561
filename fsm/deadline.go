package fsm

import (
	"time"

	"github.com/conductord/conductord/jobs"
)

// overdue tells whether a job's deadline has passed and nobody has dealt with
// that yet. Whoever claims a job afterwards is to undo it, to consume what has
// come to its end, or to do what a person has said since.
func (t *txn) overdue(j *jobRecord) bool {
	return !j.Deadline.IsZero() && !j.Deadline.After(t.now) && j.watched
}

func deadlineText(j *jobRecord) string { return j.Deadline.UTC().Format(time.RFC3339) }

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
