package fsm_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// asking makes an atom that waits for an approval.
func asking(step string, approval *v1.Approval) *v1.AtomChange {
	attempt := executing(1)
	attempt.Asked = 1
	attempt.Wait = &v1.Wait{Since: timestamppb.New(start), Until: timestamppb.New(start.Add(48 * time.Hour)), Approval: approval}
	return task(step, "pending", attempt)
}

// decidedBy is a decision of a principal.
func decidedBy(principal, job, kind, nonce string) *v1.Command {
	reason := ""
	if kind == "reject" {
		reason = "no"
	}
	return &v1.Command{Principal: principal, Kind: &v1.Command_Decide{Decide: &v1.DecideCommand{Job: job, Step: "ask", Kind: kind, Id: nonce, By: principal, Reason: reason}}}
}

func approver(name string, roles ...string) *v1.Command {
	return &v1.Command{Kind: &v1.Command_SavePrincipal{SavePrincipal: &v1.SavePrincipalCommand{Name: name, Grants: []*v1.Grant{{Role: "approver", Boards: "*"}}, Approves: roles}}}
}

// TestApproversHaveRoles: with access control, only principals with a needed role decide, and each fills one need. The poster does not
// count.
func TestApproversHaveRoles(t *testing.T) {
	r := newRig(t)
	r.ok(open("worker"))
	for _, c := range []*v1.Command{approver("ann", "owner", "dba"), approver("bob", "dba"), approver("cid", "owner"), approver("eve", "hr"), approver("poster", "owner")} {
		r.ok(c)
	}
	ask := func(p *v1.Posting, self bool) string {
		r.postedBy("poster", p)
		token := r.claimedAgain("worker", p.Id)
		approval := &v1.Approval{Text: "Go?", Self: self, Need: []*v1.Need{{Role: "owner", Count: 1}, {Role: "dba", Count: 1}}}
		r.ok(updateFlow(update("flow of "+p.Name, token, 1, "running", asking("ask", approval))))
		return p.Id
	}
	refused := func(c *v1.Command, code string) string {
		t.Helper()
		fault := r.do(c)[0].GetError() // only the audit log has it
		if fault.GetCode() != code {
			t.Errorf("%v: got %v, want %s", c, fault, code)
		}
		return fault.GetMessage()
	}
	job := ask(flowPosting("a"), false)
	if text := refused(decidedBy("eve", job, "approve", "1"), "not_allowed"); !strings.Contains(text, "eve has none of the needed roles owner, dba") {
		t.Error(text)
	}
	if text := refused(decidedBy("poster", job, "approve", "2"), "not_allowed"); !strings.Contains(text, "poster posted the job") {
		t.Error(text)
	}
	refused(decidedBy("eve", job, "reject", "3"), "not_allowed")
	refused(decidedBy("local/root", job, "approve", "4"), "not_allowed")
	// ann fills owner first, and dba when cid comes.
	if got := r.ok(decidedBy("ann", job, "approve", "5")).GetDecide(); got.Outcome != "" || len(got.Missing) != 1 {
		t.Errorf("after ann: %v", got)
	}
	if s, err := r.Situation(jobID(job), r.now); err != nil || logbook.NeedText(s.Awaits.Missing) != "1 of dba" {
		t.Errorf("explained after ann: %+v, %v", s.Awaits, err)
	}
	if got := r.ok(decidedBy("cid", job, "approve", "6")).GetDecide(); got.Outcome != "approved" {
		t.Errorf("after cid: %v", got)
	}
	if got := r.ok(decidedBy("cid", job, "approve", "6")).GetDecide(); !got.Repeated {
		t.Errorf("the repeat: %v", got)
	}
	if text := refused(decidedBy("bob", job, "approve", "7"), "decided"); !strings.Contains(text, "approved by ann, cid at 2030-01-02T03:04:05Z") {
		t.Error(text)
	}
	own := ask(flowPosting("b"), true)
	r.ok(decidedBy("poster", own, "approve", "1"))
	if got := r.ok(decidedBy("bob", own, "approve", "2")).GetDecide(); got.Outcome != "approved" {
		t.Errorf("after the poster and bob: %v", got)
	}
}

// TestApprovalsThatStartTogether: approvals of two flows that start in one log entry are both listed, and the decision
// of one removes only its own row.
func TestApprovalsThatStartTogether(t *testing.T) {
	r := newRig(t)
	r.ok(open("worker"))
	needs := &v1.Approval{Text: "Go?", Need: []*v1.Need{{Role: "dba", Count: 1}}}
	a, b := r.claimed("worker", flowPosting("a")), r.claimed("worker", flowPosting("b"))
	r.do(updateFlow(update("flow of a", a, 1, "running", asking("ask", needs))), updateFlow(update("flow of b", b, 1, "running", asking("ask", needs))))
	listed := func() (found []jobs.JobID) {
		for after := ""; ; {
			page, err := r.Approvals(jobs.ApprovalQuery{After: after, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, approval := range page.Items {
				found = append(found, approval.Job)
			}
			if after = page.Next; after == "" {
				return found
			}
		}
	}
	if got := listed(); len(got) != 2 {
		t.Errorf("listed are %v, want two approvals", got)
	}
	r.ok(trash(ending("a", a)))
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
	r.ok(&v1.Command{Kind: &v1.Command_Purge{Purge: &v1.JobCommand{Job: id("a")}}})
	if got := listed(); len(got) != 1 || got[0] != jobID(id("b")) {
		t.Errorf("after the purge, listed are %v", got)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestApprovalsOfRemovedJobs: no list has the approval of a job that is gone.
func TestApprovalsOfRemovedJobs(t *testing.T) {
	r := newRig(t)
	r.ok(open("worker"))
	token := r.claimed("worker", flowPosting("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "running", asking("ask", &v1.Approval{Text: "Go?", Need: []*v1.Need{{Role: "dba", Count: 1}}}))))
	listed := func() int {
		page, err := r.Approvals(jobs.ApprovalQuery{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items)
	}
	if n := listed(); n != 1 {
		t.Errorf("%d approvals are listed, want 1", n)
	}
	r.ok(trash(ending("a", token)))
	r.ok(&v1.Command{Kind: &v1.Command_Purge{Purge: &v1.JobCommand{Job: id("a")}}})
	if n := listed(); n != 0 {
		t.Errorf("%d approvals are listed after the purge", n)
	}
	if err := fsm.Verify(r.Machine); err != nil {
		t.Error(err)
	}
}

// TestAttemptKeepsItsWait: an update cannot turn an open wait for a signal into an approval, or the other way round. The
// lists of open waits would not have it.
func TestAttemptKeepsItsWait(t *testing.T) {
	approval := asking("ask", &v1.Approval{Text: "Go?", Need: []*v1.Need{{Role: "dba", Count: 1}}})
	signal := asking("ask", nil)
	signal.Attempts[0].Wait.Signals = []string{"paid"}
	for name, waits := range map[string][2]*v1.AtomChange{"signal": {signal, approval}, "approval": {approval, signal}} {
		r := newRig(t)
		r.ok(open("worker"))
		token := r.claimed("worker", flowPosting("a"))
		r.ok(updateFlow(update("flow of a", token, 1, "running", waits[0])))
		r.ok(updateFlow(update("flow of a", token, 2, "running", waits[1])))
		if err := fsm.Verify(r.Machine); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
