package fsm

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// beginLeadership starts a leadership. From now on, timer commands of earlier leaders are refused.
func (t *txn) beginLeadership(*v1.BeginLeadershipCommand) error {
	t.TimerEpoch = t.Index
	t.writes++
	return nil
}

// checkEpoch refuses timer commands of a deposed leader.
func (t *txn) checkEpoch(epoch uint64) error {
	if epoch != t.TimerEpoch {
		return fmt.Errorf("%w: the timer epoch is %d, not %d", jobs.ErrConflict, t.TimerEpoch, epoch)
	}
	return nil
}

// wakeDue cancels jobs whose deadline has passed, makes due jobs claimable, ends reservations, reminds of
// approvals, and removes kept publications whose time has passed. Deadlines come first,
// because a job that is due only at its deadline is too late.
func (t *txn) wakeDue(c *v1.WakeDueCommand) (*v1.Result, error) {
	if err := t.checkEpoch(c.GetTimerEpoch()); err != nil {
		return nil, fmt.Errorf("cannot wake jobs: %w", err)
	}
	most := int(c.GetMax())
	late, moreLate := t.passed(tableDeadline, most)
	for _, j := range late {
		t.expireJob(j)
	}
	due, more := t.passed(tableDue, most-len(late))
	for _, j := range due {
		kind := jobs.EventDue
		switch j.State {
		case jobs.StateCooling, jobs.StateWaiting:
			kind = jobs.EventCooled
		case jobs.StateClaimable:
			kind = jobs.EventUnreserved
		}
		t.placeJob(j)
		t.event(kind, j, jobs.Event{})
	}
	reminded, moreReminders := t.remind(most - len(late) - len(due))
	done := len(late) + len(due) + reminded
	expired, moreKept := t.expireKept(most - done)
	return counted(done+expired, moreLate || more || moreReminders || moreKept), nil
}

// passed reads the jobs in a table of times whose time has passed, earliest first.
func (t *txn) passed(tab table, most int) (due []*jobRecord, more bool) {
	cursor := t.cursor(tab)
	for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
		at := timeOfKey(key)
		if at.After(t.now) {
			return due, false
		}
		if len(due) >= most {
			return due, true
		}
		due = append(due, t.job(sequenceAtEnd(key)))
	}
	return due, false
}

func counted(done int, more bool) *v1.Result {
	return &v1.Result{Kind: &v1.Result_Count{Count: &v1.CountResult{Done: uint32(done), More: more}}}
}
