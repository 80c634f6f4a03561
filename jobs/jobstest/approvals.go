package jobstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

var approvalRows = []row{
	{"an approval ends when one person for each need has approved", approvedByAll},
	{"one rejection ends an approval", rejectedByOne},
	{"an approval can be withdrawn, and given again", withdrawn},
	{"an override ends an approval alone", overridden},
	{"a decision after the end is refused, with the person and the time", decidedLate},
	{"an owner that does not know the decisions cannot lose them", keptDecisions},
	{"approvals are listed while they wait", listedApprovals},
	{"decisions over the limits are refused", fullOfDecisions},
}

// asks makes an update with which a step waits for an approval.
func asks(claimed jobs.Claimed, sequence uint64, step string, attempt int, needs ...logbook.Need) logbook.Update {
	u := waitsFor(claimed, sequence, step, attempt)
	wait := u.Atoms[0].Attempts[0].Wait
	wait.Since = time.Now().UTC()
	wait.Until = wait.Since.Add(48 * time.Hour)
	wait.Approval = &logbook.Approval{Text: "Go?", Need: needs}
	return u
}

func of(count int, role string) logbook.Need { return logbook.Need{Role: role, Count: count} }

// says decides the approval of a step, and checks the answer.
func (k *kit) says(job jobs.JobID, step, by string, kind logbook.DecisionKind, want logbook.Outcome, missing string) {
	k.Helper()
	reason := ""
	if kind == logbook.Reject {
		reason = "not today"
	}
	receipt, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: job, Step: step, Decision: logbook.Decision{Kind: kind, By: by, Reason: reason}})
	if err != nil || receipt.Outcome != want || logbook.NeedText(receipt.Missing) != missing || receipt.Repeated {
		k.Errorf("%s by %s: got %+v, %v, want %q with %q missing", kind, by, receipt, err, want, missing)
	}
}

func (k *kit) approval(job jobs.JobID, step string) jobs.StepApproval {
	k.Helper()
	approval, err := k.Board.Approval(k.ctx, job, step)
	k.wants("Approval", err, nil)
	return approval
}

func approvedByAll(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	k.wants("Update", k.update(asks(claimed, 1, "fly", 1, of(1, "owner"), of(2, "dba"))), nil)
	k.wants("RetryNow of a step that waits for an approval", k.Board.RetryNow(k.ctx, jobs.JobCommand{Job: id, Step: "fly"}), jobs.ErrConflict)
	ending := release(claimed)
	ending.Delay, ending.Waits = time.Hour, true
	k.wants("Abandon", k.Board.Abandon(k.ctx, ending), nil)
	k.stands(id, jobs.StateWaiting)
	k.signal(id, "fly", "one", jobs.SignalKept)
	k.says(id, "fly", "ann", logbook.Approve, "", "2 of dba")
	k.says(id, "", "ann", logbook.Approve, "", "2 of dba")
	k.says(id, "fly", "bob", logbook.Approve, "", "1 of dba")
	k.stands(id, jobs.StateWaiting)
	last := jobs.DecisionCommand{Job: id, Step: "fly", Decision: logbook.Decision{ID: "last", Kind: logbook.Approve, By: "cid", Reason: "fine"}}
	receipt, err := k.Board.Decide(k.ctx, last)
	k.wants("Decide", err, nil)
	k.same("the last receipt", receipt, jobs.DecisionReceipt{Step: "fly", Outcome: logbook.Approved})
	k.stands(id, jobs.StateClaimable)
	receipt, err = k.Board.Decide(k.ctx, last)
	k.wants("Decide, repeated", err, nil)
	k.same("the receipt of the repeat", receipt, jobs.DecisionReceipt{Step: "fly", Outcome: logbook.Approved, Repeated: true})
	k.same("the signal of fly", k.taken(flow, "fly"), "last")
	wait := k.flow(flow).Atoms[0].Attempts[0].Wait
	var result struct {
		Outcome   string
		Decisions []logbook.Decision
	}
	if err := json.Unmarshal(wait.Signal.Data, &result); err != nil || result.Outcome != "approved" || len(result.Decisions) != 3 || result.Decisions[2].Reason != "fine" || result.Decisions[2].At.IsZero() {
		k.Errorf("the result is %s, %v", wait.Signal.Data, err)
	}
	k.same("the decisions", len(wait.Approval.Decisions), 4)
	events := k.events(jobs.Watch{Job: id, Kinds: []jobs.EventKind{jobs.EventDecided}}, 4)
	if got := events[3]; got.Reason != "approve by cid: fine" || got.Steps[0].Name != "fly" {
		k.Errorf("the last event is %s", render(got))
	}
}

func rejectedByOne(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id, flow := claimed.Job.ID, claimed.Job.Flow
	k.wants("Update", k.update(asks(claimed, 1, "fly", 1, of(2, "dba"))), nil)
	_, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: id, Step: "fly", Decision: logbook.Decision{Kind: logbook.Reject, By: "ann"}})
	k.wantsInvalid("a rejection without a reason", err)
	k.says(id, "fly", "bob", logbook.Approve, "", "1 of dba")
	k.says(id, "fly", "ann", logbook.Reject, logbook.Rejected, "")
	if signal := k.flow(flow).Atoms[0].Attempts[0].Wait.Signal; signal == nil || !strings.HasPrefix(signal.Reject, "rejected by ann at ") || !strings.HasSuffix(signal.Reject, ": not today") || signal.Data != nil {
		k.Errorf("the end is %+v", signal)
	}
	k.same("the outcome", k.approval(id, "fly").Outcome, logbook.Rejected)
}

func withdrawn(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	k.wants("Update", k.update(asks(claimed, 1, "fly", 1, of(2, "dba"))), nil)
	k.says(id, "fly", "ann", logbook.Approve, "", "1 of dba")
	k.says(id, "fly", "ann", logbook.Withdraw, "", "2 of dba")
	_, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: id, Step: "fly", Decision: logbook.Decision{Kind: logbook.Withdraw, By: "ann"}})
	k.wants("a second withdrawal", err, jobs.ErrConflict)
	k.says(id, "fly", "bob", logbook.Approve, "", "1 of dba")
	k.says(id, "fly", "ann", logbook.Approve, logbook.Approved, "")
}

func overridden(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	k.wants("Update", k.update(asks(claimed, 1, "fly", 1, of(9, "dba"))), nil)
	override := jobs.DecisionCommand{Job: id, Step: "fly", Decision: logbook.Decision{Kind: logbook.Approve, By: "ann"}}
	_, err := k.Board.Override(k.ctx, override)
	k.wantsInvalid("an override without a reason", err)
	override.Decision.Reason = "outage"
	receipt, err := k.Board.Override(k.ctx, override)
	k.wants("Override", err, nil)
	k.same("the receipt", receipt, jobs.DecisionReceipt{Step: "fly", Outcome: logbook.Approved})
	if d := k.approval(id, "fly").Wait.Approval.Decisions; len(d) != 1 || !d[0].Override {
		k.Errorf("the decisions are %+v", d)
	}
}

func decidedLate(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	decide := func(step string, wait uint64) error {
		_, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: id, Step: step, Wait: wait, Decision: logbook.Decision{Kind: logbook.Approve, By: "bob"}})
		return err
	}
	k.wants("a decision before the flow", decide("fly", 0), jobs.ErrNotFound)
	k.wants("a decision without a step", decide("", 0), jobs.ErrConflict)
	k.wants("Update", k.update(waitsFor(claimed, 1, "stay", 1, "paid")), nil)
	k.wants("a decision about a signal", decide("stay", 0), jobs.ErrConflict)
	k.wants("Update", k.update(asks(claimed, 2, "fly", 1, of(1, "dba"))), nil)
	k.wants("a decision about an earlier wait", decide("fly", 1), jobs.ErrConflict)
	k.says(id, "fly", "ann", logbook.Approve, logbook.Approved, "")
	err := decide("fly", 0)
	k.wants("a late decision", err, jobs.ErrDecided)
	if !strings.Contains(fmt.Sprint(err), "approved by ann at 20") {
		k.Errorf("the error is %v", err)
	}
	overdue := asks(claimed, 3, "drive", 1, of(1, "dba"))
	wait := overdue.Atoms[0].Attempts[0].Wait
	wait.Since, wait.Until = wait.Since.Add(-2*time.Hour), wait.Since.Add(-time.Hour)
	k.wants("Update", k.update(overdue), nil)
	k.wants("a decision after the deadline", decide("drive", 0), jobs.ErrDecided)
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	k.wants("a decision about a trashed job", decide("drive", 0), jobs.ErrJobOver)
	_, err = k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: jobs.NewJobID(), Decision: logbook.Decision{Kind: logbook.Approve, By: "bob"}})
	k.wants("a decision about no job", err, jobs.ErrNotFound)
}

func keptDecisions(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	first := asks(claimed, 1, "fly", 1, of(2, "dba"))
	k.wants("Update", k.update(first), nil)
	k.says(id, "fly", "ann", logbook.Approve, "", "1 of dba")
	again := first
	again.Sequence = 2
	k.wants("Update by an owner that does not know the decision", k.update(again), nil)
	k.same("the missing people", logbook.NeedText(k.approval(id, "fly").Missing), "1 of dba")
	k.says(id, "fly", "bob", logbook.Approve, logbook.Approved, "")
	k.wants("a timeout after the end", k.update(ends(first, 3, nil)), logbook.ErrSignalled)
	k.wants("the end", k.update(ends(first, 3, &logbook.Signal{Name: "fly", ID: "end"})), nil)
	if got := k.approval(id, "fly"); got.Outcome != logbook.Approved || got.Open || len(got.Wait.Approval.Decisions) != 2 {
		k.Errorf("after the end, the approval is %+v", got)
	}
}

func listedApprovals(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	listed := func() (steps []string) {
		k.Helper()
		for after := ""; ; {
			page, err := k.Board.Approvals(k.ctx, jobs.ApprovalQuery{Board: claimed.Job.Board, After: after, Limit: 1})
			k.wants("Approvals", err, nil)
			for _, a := range page.Items {
				if a.Job == id {
					steps = append(steps, a.Step)
				}
			}
			if after = page.Next; after == "" {
				return steps
			}
		}
	}
	k.wants("Update", k.update(asks(claimed, 1, "stay", 1, of(1, "dba"))), nil)
	k.wants("Update", k.update(asks(claimed, 2, "fly", 1, of(1, "dba"))), nil)
	if got := listed(); !slices.Equal(got, []string{"stay", "fly"}) {
		k.Errorf("listed are %v", got)
	}
	_, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: id, Decision: logbook.Decision{Kind: logbook.Approve, By: "ann"}})
	k.wantsInvalid("a decision that names none of two steps", err)
	k.says(id, "stay", "ann", logbook.Approve, logbook.Approved, "")
	if got := listed(); !slices.Equal(got, []string{"fly"}) {
		k.Errorf("listed are %v", got)
	}
	k.wants("Trash", k.Board.Trash(k.ctx, release(claimed)), nil)
	if got := listed(); len(got) > 0 {
		k.Errorf("of a trashed job, listed are %v", got)
	}
	_, err = k.Board.Approvals(k.ctx, jobs.ApprovalQuery{After: "x"})
	k.wantsInvalid("Approvals after no position", err)
}

func fullOfDecisions(k *kit) {
	claimed := k.travelling(k.session("worker"), "asks")
	id := claimed.Job.ID
	k.wants("Update", k.update(asks(claimed, 1, "fly", 1, of(2, "dba"))), nil)
	decide := func(d logbook.Decision) error {
		_, err := k.Board.Decide(k.ctx, jobs.DecisionCommand{Job: id, Step: "fly", Decision: d})
		return err
	}
	k.wantsLimit("a long reason", decide(logbook.Decision{Kind: logbook.Approve, By: "ann", Reason: strings.Repeat("x", logbook.MaxDecisionReason+1)}), logbook.MaxDecisionReason, logbook.MaxDecisionReason+1)
	k.wantsInvalid("a decision of no kind", decide(logbook.Decision{Kind: "accept", By: "ann"}))
	k.wantsInvalid("answers of a rejection", decide(logbook.Decision{Kind: logbook.Reject, By: "ann", Reason: "no", Answers: json.RawMessage("{}")}))
	kinds := []logbook.DecisionKind{logbook.Approve, logbook.Withdraw}
	for i := range logbook.MaxDecisions - 1 {
		k.wants("Decide", decide(logbook.Decision{Kind: kinds[i%2], By: "ann"}), nil)
	}
	k.wantsLimit("a decision over the limit", decide(logbook.Decision{Kind: logbook.Approve, By: "bob"}), logbook.MaxDecisions, logbook.MaxDecisions)
	k.says(id, "fly", "bob", logbook.Reject, logbook.Rejected, "")
}
