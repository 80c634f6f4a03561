package fsm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
)

// tomorrow is the deadline of the jobs in this file.
var tomorrow = start.Add(24 * time.Hour)

func withDeadline(p *v1.Posting) { p.Deadline = timestamppb.New(tomorrow) }

// TestDeadlines: the effect of a passed deadline on a job in every state.
func TestDeadlines(t *testing.T) {
	for _, row := range []struct {
		state       jobs.State
		plain, flow string // state after the deadline, without a flow and with a started flow
	}{
		{jobs.StateHeld, "completed", "claimable"},
		{jobs.StateDelayed, "completed", "claimable"},
		{jobs.StateClaimable, "completed", "claimable"},
		{jobs.StateCooling, "completed", "claimable"},
		{jobs.StateWaiting, "completed", "claimable"},
		{jobs.StateClaimed, "claimed", "claimed"},
		{jobs.StateSuspended, "completed", "claimable"},
	} {
		for begun, want := range map[bool]string{false: row.plain, true: row.flow} {
			t.Run(fmt.Sprint(row.state, ", flow begun: ", begun), func(t *testing.T) {
				r := broughtWith(t, row.state, begun, withDeadline)
				r.now = tomorrow.Add(-time.Second)
				r.harmlessDeadline()
				r.now = tomorrow
				if !r.NextDue().Before(r.now.Add(1)) {
					t.Errorf("the leader is to wake at %s", r.NextDue())
				}
				r.ok(wake(r.TimerEpoch(), 10))
				job := r.job(id("a"))
				if string(job.State) != want || job.StopRequest == nil || job.StopRequest.Kind != jobs.RequestCancel || !job.StopRequest.Revert || job.StopRequest.By != jobs.ByDeadline {
					t.Fatalf("the job is %s under %+v", job.State, job.StopRequest)
				}
				if want == "completed" && (job.Outcome != jobs.OutcomeCancelled || !strings.Contains(job.Reason, "deadline, 2030-01-03T03:04:05Z, has passed")) {
					t.Errorf("the job ended as %s: %s", job.Outcome, job.Reason)
				}
				if want == "claimable" {
					r.claimedAgain("bob", id("a")) // to be reverted
				}
				r.harmless(wake(r.TimerEpoch(), 10))
			})
		}
	}
}

// harmlessDeadline checks that time before the deadline only makes jobs claimable.
func (r *rig) harmlessDeadline() {
	r.Helper()
	r.ok(wake(r.TimerEpoch(), 10))
	if job := r.job(id("a")); job.StopRequest != nil && job.StopRequest.By == jobs.ByDeadline {
		r.Errorf("cancelled before the deadline: %+v", job.StopRequest)
	}
}

// TestNobodyClaimsTooLate: no claim succeeds between the deadline and the leader's command.
func TestNobodyClaimsTooLate(t *testing.T) {
	r := newRig(t)
	r.ok(open("bob"))
	late := posting("a", "k")
	withDeadline(late)
	r.posted(late)
	r.posted(posting("b", "k"))
	r.now = tomorrow
	if message := r.refused(claim("bob", id("a"), "n"), "unclaimable"); !strings.Contains(message, "deadline") {
		t.Errorf("the refusal does not say why: %s", message)
	}
	if got := r.ok(claimNext("bob", "m", 10, nil, nil)).GetClaim().Granted; len(got) != 1 || got[0].Job != id("b") {
		t.Errorf("claimed %v", got)
	}
}

func TestDeadlinesThatPassUnseen(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	past := posting("past", "k")
	past.Deadline = timestamppb.New(start)
	if posted := r.do(post(past))[0].GetPost().Posted[0]; posted.GetError().GetCode() != "invalid" {
		t.Errorf("a job that is late from the start: %v", posted)
	}
	for _, name := range []string{"a", "b", "c"} {
		p := posting(name, "k")
		withDeadline(p)
		r.posted(p)
	}
	r.posted(posting("d", "k"))
	r.ok(open("bob"))
	r.ok(consume(success("a", r.claimedAgain("bob", id("a")))))
	r.now = tomorrow.Add(time.Hour)
	r.harmless(post(func() *v1.Posting { p := posting("b", "k"); withDeadline(p); return p }()))
	for _, want := range []struct {
		done uint32
		more bool
	}{{1, true}, {1, false}, {0, false}} {
		if count := r.ok(wake(r.TimerEpoch(), 1)).GetCount(); count.Done != want.done || count.More != want.more {
			t.Errorf("cancelled %v, not %v", count, want)
		}
	}
	if counts := r.Counts(); counts[jobs.StateCompleted] != 3 || counts[jobs.StateClaimable] != 1 {
		t.Errorf("counted %v", counts)
	}
	if job := r.job(id("a")); job.Outcome != jobs.OutcomeSuccess {
		t.Errorf("the job that was done in time is %s", job.Outcome)
	}
}

// TestADeadlineDuringTheLastStep: a flow that has ended is consumed, even after its
// deadline.
func TestADeadlineDuringTheLastStep(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	p := flowPosting("a")
	withDeadline(p)
	token := r.begin(p, "flow of a")
	e := ending("a", token)
	e.Update = update("flow of a", token, 2, "success")
	r.ok(abandon(e))
	r.now = tomorrow
	r.wakesWhoPassedBy()
	r.ok(consume(success("a", r.claimedAgain("bob", id("a")))))
}

// wakesWhoPassedBy: a claim between the deadline and the leader's command finds nothing, and is
// woken when the job is claimable again.
func (r *rig) wakesWhoPassedBy() {
	r.Helper()
	if got := r.ok(claimNext("bob", "early", 1, nil, nil)).GetClaim().GetGranted(); len(got) != 0 {
		r.Fatalf("claimed %v, which is late", got)
	}
	r.ok(wake(r.TimerEpoch(), 10))
	if woken := r.changes[len(r.changes)-1].Claimable; len(woken) != 1 {
		r.Errorf("the waiter is woken for %v, not for one queue", woken)
	}
}

// TestADeadlineOfJobsInTheWay: so many jobs are overdue that no claim reaches the job after them.
func TestADeadlineOfJobsInTheWay(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	for n := range fsm.MaxPassed + 1 {
		p := posting(fmt.Sprint("late ", n), "k")
		withDeadline(p)
		r.do(post(p))
	}
	r.posted(posting("behind", "k"))
	r.now = tomorrow
	if got := r.ok(claimNext("bob", "early", 1, nil, nil)).GetClaim().GetGranted(); len(got) != 0 {
		t.Fatalf("claimed %v", got)
	}
	r.ok(wake(r.TimerEpoch(), fsm.MaxPassed+1))
	if woken := r.changes[len(r.changes)-1].Claimable; len(woken) != 1 {
		t.Errorf("the waiter is woken for %v, not for one queue", woken)
	}
}

// TestADeadlineOfACancelledJob: a job that waits for its revert continues to wait.
func TestADeadlineOfACancelledJob(t *testing.T) {
	r := newRig(t)
	r.ok(beginLeadership())
	r.ok(open("bob"))
	p := flowPosting("a")
	withDeadline(p)
	token := r.begin(p, "flow of a")
	r.ok(abandon(ending("a", token)))
	r.ok(cancel(&v1.JobCommand{Job: id("a"), Revert: true}))
	r.now = tomorrow
	r.wakesWhoPassedBy()
}

// TestADeadlineOfAReopenedJob: the deadline of a reopened job cancels it like an operator. A revert
// continues, and an intervention that would continue the flow forwards is withdrawn.
func TestADeadlineOfAReopenedJob(t *testing.T) {
	for word, want := range map[*v1.Intervention]string{asked("retry-revert", ""): "claimable ", asked("skip", "x"): "claimable ", asked("rerun", ""): "completed failed"} {
		r := stuck(t, "failure")
		r.ok(intervene(word))
		r.ok(change(&v1.Change{Job: id("a"), Deadline: timestamppb.New(tomorrow)}))
		r.now = tomorrow
		r.ok(wake(r.TimerEpoch(), 10))
		job := r.job(id("a"))
		if got := fmt.Sprint(job.State, " ", job.Outcome); got != want || job.StopRequest == nil || job.StopRequest.By != jobs.ByDeadline {
			t.Errorf("after %s the job is %s under %+v; want %s", word.Kind, got, job.StopRequest, want)
		}
		r.harmless(wake(r.TimerEpoch(), 10))
	}
}
