package fsm

import (
	"bytes"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// An open approval with reminders has one row in tableReminder, for its next reminder. The approval's own row has the
// time of this reminder, so that the end of the approval finds the row.

// reminderKey returns the key of a reminder of an open approval.
func reminderKey(at time.Time, approval []byte) []byte {
	return append(appendTime(make([]byte, 0, dueTimeSize+len(approval)), at), approval...)
}

// putApproval stores the rows of an open approval, with its next reminder after a time.
func (t *txn) putApproval(flow logbook.FlowID, a *atomRecord, wait *logbook.Wait, after time.Time) {
	key, row := approvalKey(flow, wait.Number, a.number), &v1.ApprovalRow{Step: a.detail.Name}
	for _, reminder := range wait.Approval.Remind {
		if reminder.At.After(after) {
			row.RemindAt = command.TimeToProto(reminder.At)
			t.put(tableReminder, reminderKey(reminder.At, key), nil)
			break
		}
	}
	t.putMessage(tableApproval, key, nil, row)
}

// deleteApproval removes the rows of an open approval, if there are any.
func (t *txn) deleteApproval(key []byte) {
	value := t.get(tableApproval, key)
	if value == nil {
		return
	}
	if at := decodeMessage(value, &v1.ApprovalRow{}).GetRemindAt(); at != nil {
		t.delete(tableReminder, reminderKey(at.AsTime(), key))
	}
	t.delete(tableApproval, key)
}

// remind records an event for each reminder whose time has passed, the earliest first, and plans the next reminder of
// the approval. Nobody can decide an approval of a trashed job, or after its deadline, so its reminders have no events.
func (t *txn) remind(most int) (done int, more bool) {
	var due [][]byte
	cursor := t.cursor(tableReminder)
	for key, _ := cursor.First(); key != nil && !timeOfKey(key).After(t.now); key, _ = cursor.Next() {
		if more = len(due) >= most; more {
			break
		}
		due = append(due, bytes.Clone(key))
	}
	for _, key := range due {
		t.delete(tableReminder, key)
		approval := key[dueTimeSize:]
		a := t.approvalOf(flowOfApproval(approval), decodeMessage(t.get(tableApproval, approval), &v1.ApprovalRow{}).GetStep())
		if a == nil {
			continue // its flow is removed
		}
		t.putApproval(a.flow, a.atom, a.wait, timeOfKey(key))
		if a.isOpen() && a.wait.Until.After(t.now) {
			t.eventOfApproval(jobs.EventApprovalReminder, a.job, a.atom.detail.Name, a.wait.Approval)
		}
	}
	return len(due), more
}

// eventOfApproval records that an approval asks, or asks again.
func (t *txn) eventOfApproval(kind jobs.EventKind, j *jobRecord, step string, approval *logbook.Approval) {
	t.event(kind, j, jobs.Event{
		Reason: approval.Text + " Needs " + logbook.NeedText(approval.Missing()) + ".",
		Steps:  []jobs.StepEvent{{Name: step, State: string(logbook.AtomPending)}},
	})
}
