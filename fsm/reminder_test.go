package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// approvalEvents are the events of approvals: kind, step, hours after the start, and reason.
func (r *rig) approvalEvents() (found []string) {
	r.Helper()
	events, err := r.Events(jobs.Position{}, 0)
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range events {
		if strings.HasPrefix(string(e.Kind), "approval_") {
			found = append(found, fmt.Sprintf("%s %s %.0f %s", e.Kind, e.Steps[0].Name, e.Time.Sub(start).Hours(), e.Reason))
		}
	}
	return found
}

// remindedAfter makes an approval by 2 dbas with reminders after some hours.
func remindedAfter(hours ...time.Duration) *v1.Approval {
	approval := &v1.Approval{Text: "Go?", Need: []*v1.Need{{Role: "dba", Count: 2}}}
	for _, h := range hours {
		approval.Remind = append(approval.Remind, &v1.Reminder{At: timestamppb.New(start.Add(h * time.Hour))})
	}
	return approval
}

// wakeAt wakes what is due some hours after the start.
func (r *rig) wakeAt(hours time.Duration, epoch uint64) {
	r.Helper()
	r.now = start.Add(hours * time.Hour)
	for r.ok(wake(epoch, 1)).GetCount().GetMore() {
		continue
	}
}

// TestReminders: each reminder of an open approval is one event at its time, under any leader and after a restore. The
// end of the approval ends them.
func TestReminders(t *testing.T) {
	r := newRig(t)
	r.ok(open("worker"))
	r.ok(updateFlow(update("flow of a", r.claimed("worker", flowPosting("a")), 1, "running", asking("ask", remindedAfter(1, 2, 5)))))
	r.ok(updateFlow(update("flow of b", r.claimed("worker", flowPosting("b")), 1, "running", asking("other", remindedAfter(2)))))
	if due := r.NextDue(); !due.Equal(start.Add(time.Hour)) {
		t.Errorf("the first timer is due at %s", due)
	}
	r.ok(beginLeadership())
	r.wakeAt(1, r.index)
	r.wakeAt(1, r.index-1)
	other := newRig(t)
	if err := other.Restore(bytes.NewReader(snapshot(t, r.Machine))); err != nil {
		t.Fatal(err)
	}
	other.index = r.index
	other.ok(beginLeadership()) // a new leader
	epoch := other.index
	other.now = start.Add(90 * time.Minute)
	other.ok(&v1.Command{Kind: &v1.Command_Decide{Decide: &v1.DecideCommand{Job: id("a"), Kind: "approve", Id: "1", By: "ann"}}})
	other.wakeAt(3, epoch)
	other.ok(&v1.Command{Kind: &v1.Command_Decide{Decide: &v1.DecideCommand{Job: id("a"), Kind: "approve", Id: "2", By: "bob"}}})
	other.wakeAt(6, epoch)
	want := []string{
		"approval_requested ask 0 Go? Needs 2 of dba.", "approval_requested other 0 Go? Needs 2 of dba.", "approval_reminder ask 1 Go? Needs 2 of dba.",
		"approval_reminder ask 3 Go? Needs 1 of dba.", "approval_reminder other 3 Go? Needs 2 of dba.",
	}
	if got := other.approvalEvents(); !slices.Equal(got, want) {
		t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if due := other.NextDue(); !due.IsZero() {
		t.Errorf("after the end, a timer is due at %s", due)
	}
	if err := fsm.Verify(other.Machine); err != nil {
		t.Error(err)
	}
}

// TestNoReminderOfAnEnd: a trashed job, a job that is gone, and an approval after its deadline have no reminders.
func TestNoReminderOfAnEnd(t *testing.T) {
	r := newRig(t)
	r.ok(open("worker"))
	var tokens []string
	for _, name := range []string{"trashed", "gone", "late"} {
		token := r.claimed("worker", flowPosting(name))
		hours := time.Duration(1)
		if name == "late" {
			hours = 49 // the deadline is at 48
		}
		r.ok(updateFlow(update("flow of "+name, token, 1, "running", asking("ask", remindedAfter(hours)))))
		if name != "late" {
			r.ok(trash(ending(name, token)))
		}
		tokens = append(tokens, name)
	}
	r.ok(&v1.Command{Kind: &v1.Command_Purge{Purge: &v1.JobCommand{Job: id("gone")}}})
	r.ok(beginLeadership())
	epoch := r.index
	r.wakeAt(2, epoch)
	r.wakeAt(50, epoch)
	if got := r.approvalEvents(); len(got) != len(tokens) || slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "reminder") }) {
		t.Errorf("the events are %q", got)
	}
	if due := r.NextDue(); !due.IsZero() {
		t.Errorf("a timer is due at %s", due)
	}
}
