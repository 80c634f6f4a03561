package fsm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// A step that waits for an approval has a row in tableWait, like a step that waits for a signal, and one in
// tableApproval for lists. The atom has the decisions. The decision that ends the approval gives the atom a signal:
// the step's result, or a rejection.

// approvalKeySize is the size of a key of tableApproval.
const approvalKeySize = 8 + idSize + 4

// approvalKey returns the key of an open approval. Approvals sort by their starts. The flow is in the key, because
// approvals of several flows can start in one log entry.
func approvalKey(flow logbook.FlowID, number uint64, atom uint32) []byte {
	key := append(binary.BigEndian.AppendUint64(make([]byte, 0, approvalKeySize), number), flow.UUID[:]...)
	return binary.BigEndian.AppendUint32(key, atom)
}

// approvalKeyOf returns the key of the approval with the given key of tableWait.
func approvalKeyOf(wait []byte) []byte {
	flow, number, atom := wait[:idSize], wait[idSize:idSize+8], wait[idSize+8:]
	return slices.Concat(number, flow, atom)
}

// flowOfApproval returns the flow in a key of tableApproval.
func flowOfApproval(key []byte) logbook.FlowID {
	return logbook.FlowID{UUID: [idSize]byte(key[8 : 8+idSize])}
}

// stepApproval is the latest approval of a step.
type stepApproval struct {
	flow logbook.FlowID
	job  *jobRecord
	atom *atomRecord
	wait *logbook.Wait // of the atom's latest attempt
}

// isOpen reports whether people can decide. The approval of a trashed job is open again after a retry.
func (a *stepApproval) isOpen() bool { return a.atom.waited != 0 && !a.job.State.Finished() }

// findApproval reads the latest approval of a step. Without a step, it reads the one open approval of the job.
func (v *view) findApproval(id jobs.JobID, step string) (*stepApproval, error) {
	j, err := v.jobByID(id)
	if err != nil {
		return nil, err
	}
	if step == "" {
		switch open := v.openApprovals(j); len(open) {
		case 0:
			return nil, fmt.Errorf("%w: no step of job %s waits for an approval", jobs.ErrConflict, id)
		case 1:
			step = open[0]
		default:
			return nil, &logbook.InvalidError{Field: "decision step", Reason: fmt.Sprintf("empty; job %s has open approvals at the steps %s: name one", id, strings.Join(open, ", "))}
		}
	}
	value := v.get(tableAtom, atomKey(j.Flow, step))
	if j.Flow.IsZero() || value == nil {
		return nil, fmt.Errorf("job %s has not started a step %q: %w", id, step, jobs.ErrNotFound)
	}
	a := &stepApproval{flow: j.Flow, job: j, atom: decodeAtom(value)}
	if n := len(a.atom.detail.Attempts); n > 0 {
		a.wait = a.atom.detail.Attempts[n-1].Wait
	}
	if a.wait == nil || a.wait.Approval == nil {
		return nil, fmt.Errorf("%w: step %q of job %s waits for no approval", jobs.ErrConflict, step, id)
	}
	return a, nil
}

// openApprovals returns the steps of a job that wait for an approval, by their starts.
func (v *view) openApprovals(j *jobRecord) (steps []string) {
	if j.Flow.IsZero() {
		return nil
	}
	v.scan(tableWait, j.Flow.UUID[:], func(_, value []byte) bool {
		if row := decodeMessage(value, &v1.WaitRow{}); len(row.GetSignals()) == 0 && row.GetTopic() == "" {
			steps = append(steps, row.GetStep())
		}
		return true
	})
	return steps
}

// decideApproval applies the decision of a person.
func (t *txn) decideApproval(c *v1.DecideCommand) (*v1.Result, error) {
	given, err := command.DecideCommandFromProto(c)
	if err != nil {
		return nil, err
	}
	return t.judge(&given)
}

// overrideApproval applies the decision of a person that decides alone.
func (t *txn) overrideApproval(c *v1.DecideCommand) (*v1.Result, error) {
	given, err := command.OverrideCommandFromProto(c)
	if err != nil {
		return nil, err
	}
	return t.judge(&given)
}

// judge admits a decision, and applies it.
func (t *txn) judge(given *jobs.DecisionCommand) (*v1.Result, error) {
	a, err := t.findApproval(given.Job, given.Step)
	if err != nil {
		return nil, fmt.Errorf("cannot decide: %w", err)
	}
	approval, d := a.wait.Approval, given.Decision
	if slices.ContainsFunc(approval.Decisions, func(earlier logbook.Decision) bool { return earlier.ID == d.ID }) {
		return judged(a.atom.detail.Name, approval, true), nil
	}
	if err := t.admitsDecision(a, given); err != nil {
		return nil, fmt.Errorf("cannot decide the approval of step %q of job %s: %w", a.atom.detail.Name, a.job.ID, err)
	}
	if d.Roles, err = t.rolesOf(a, &d); err != nil {
		return nil, fmt.Errorf("cannot decide the approval of step %q of job %s: %w", a.atom.detail.Name, a.job.ID, err)
	}
	d.At = t.now
	return judged(a.atom.detail.Name, t.addDecision(a, &d), false), nil
}

// admitsDecision checks a decision against the state of the approval.
func (t *txn) admitsDecision(a *stepApproval, given *jobs.DecisionCommand) error {
	approval, d := a.wait.Approval, &given.Decision
	switch {
	case approval.Outcome() != "":
		return fmt.Errorf("%w: %s", jobs.ErrDecided, approval.Verdict())
	case a.atom.waited == 0:
		return fmt.Errorf("%w: its wait ended without a decision, at the latest at its deadline %s", jobs.ErrDecided, timeText(a.wait.Until))
	case a.job.State == jobs.StateTrashed:
		return fmt.Errorf("%w: it is trashed; retry the job first", jobs.ErrJobOver)
	case a.job.State.Finished():
		return fmt.Errorf("%w: its outcome is %s", jobs.ErrJobOver, a.job.Outcome)
	case !a.wait.Until.After(t.now):
		return fmt.Errorf("%w: its deadline %s has passed", jobs.ErrDecided, timeText(a.wait.Until))
	case given.Wait != 0 && given.Wait != a.wait.Number:
		return fmt.Errorf("%w: the step waits for a new approval since you read this one: read the approval again, and then decide", jobs.ErrConflict)
	case given.Wait == 0 && d.Kind == logbook.Approve && len(approval.Fields) > 0:
		return fmt.Errorf("%w: the approval started at the same time, so the leader has not checked the answers; try again", jobs.ErrConflict)
	}
	return approval.Admits(d)
}

// rolesOf returns the needed roles that a person has. It refuses a person that may not decide. Without access control,
// the caller names the person, which has every role.
func (t *txn) rolesOf(a *stepApproval, d *logbook.Decision) ([]string, error) {
	switch {
	case d.By == "":
		return nil, &logbook.InvalidError{Field: "decision by", Reason: "empty; without access control, the caller names the person that decides"}
	case t.by == "":
		return a.wait.Approval.Needed(), nil
	case d.Override, d.Kind == logbook.Withdraw:
		return nil, nil
	case !a.wait.Approval.Self && a.job.PostedBy == t.by:
		return nil, fmt.Errorf("%w: %s posted the job, and the approval excludes the poster; another person must decide, or cancel the job", jobs.ErrNotAllowed, t.by)
	}
	principal, err := t.findPrincipal(t.by)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return nil, err
	}
	has, err := a.wait.Approval.NeededOf(t.by, principal.Approves)
	if err != nil {
		return nil, fmt.Errorf("%w; an administrator gives roles with `conductord access save`", err)
	}
	return has, nil
}

// addDecision stores an approval with a new decision, and ends the wait if the approval is decided.
func (t *txn) addDecision(a *stepApproval, latest *logbook.Decision) *logbook.Approval {
	t.forgetRunning(a.job.Flow)
	approval := a.atom.detail.Decide(latest)
	decided := approval.Outcome() != ""
	if decided {
		t.deleteWait(a.job.Flow, a.atom)
		a.atom.waited = 0
	}
	t.saveAtom(a.job.Flow, a.atom)
	if decided {
		t.hurry(a.job)
	}
	text := string(latest.Kind) + " by " + latest.By
	if latest.Override {
		text = "override: " + text
	}
	if latest.Reason != "" {
		text += ": " + latest.Reason
	}
	event := jobs.Event{Reason: text, Steps: []jobs.StepEvent{{Name: a.atom.detail.Name, State: string(logbook.AtomPending)}}}
	if a.job.Claim != nil {
		event.Owner, event.Token = a.job.Claim.Owner, a.job.Token
	}
	t.event(jobs.EventDecided, a.job, event)
	return approval
}

// deleteWait removes the rows of an atom's open wait.
func (t *txn) deleteWait(flow logbook.FlowID, a *atomRecord) {
	key := waitKey(flow, a.waited, a.number)
	if subscription := subscriptionOf(key, t.get(tableWait, key)); subscription != nil {
		t.delete(tableSubscription, subscription)
	}
	t.delete(tableWait, key)
	t.deleteApproval(approvalKey(flow, a.waited, a.number))
}

func judged(step string, approval *logbook.Approval, repeated bool) *v1.Result {
	receipt := jobs.DecisionReceipt{Step: step, Outcome: approval.Outcome(), Repeated: repeated}
	if receipt.Outcome == "" {
		receipt.Missing = approval.Missing()
	}
	return &v1.Result{Kind: &v1.Result_Decide{Decide: command.DecisionReceiptToProto(&receipt)}}
}

// answer returns an approval for a reader.
func (a *stepApproval) answer() jobs.StepApproval {
	j := a.job
	answer := jobs.StepApproval{
		Job: j.ID, Board: j.Board, JobName: j.Name, Flow: j.Flow, Step: a.atom.detail.Name, PostedBy: j.PostedBy,
		Wait: *a.wait, Outcome: a.wait.Approval.Outcome(), Open: a.isOpen(),
	}
	if answer.Outcome == "" {
		answer.Missing = a.wait.Approval.Missing()
	}
	return answer
}

// Approval reads the latest approval of a step. Without a step, it reads the one open approval of the job.
// ErrNotFound, ErrConflict.
func (m *Machine) Approval(id jobs.JobID, step string) (answer jobs.StepApproval, err error) {
	err = m.read(func(v *view) error {
		a, err := v.findApproval(id, step)
		if err == nil {
			answer = a.answer()
		}
		return err
	})
	return answer, err
}

// QueueOfDecision returns the queue in which a waiting job becomes claimable when an approval gets a decision, if the
// person may decide. It returns false if the approval stays open, or if only some conductors can claim the job.
func (m *Machine) QueueOfDecision(c *v1.DecideCommand, override bool) (queue Queue, claimable bool) {
	err := m.read(func(v *view) error {
		id, err := jobs.ParseJobID(c.GetJob())
		if err != nil {
			return err
		}
		a, err := v.findApproval(id, c.GetStep())
		if err == nil && a.wait.Open() && a.job.isClaimedByNext() {
			queue, claimable = queueOf(&a.job.jobFacts), override || a.wait.Approval.EndsWith(logbook.DecisionKind(c.GetKind()))
		}
		return err
	})
	return queue, claimable && err == nil
}

// maxApprovalsRead limits the approvals that one page reads, because another board can have all of them.
const maxApprovalsRead = 1_000

// Approvals reads a page of the open approvals, the oldest first.
func (m *Machine) Approvals(query jobs.ApprovalQuery) (page jobs.Page[jobs.StepApproval], err error) {
	after, err := approvalsAfter(query.After)
	if err != nil {
		return page, err
	}
	err = m.read(func(v *view) error {
		limit, read, size := pageSize(query.Limit), 0, 0
		cursor := v.cursor(tableApproval)
		key, value := cursor.Seek(after)
		if slices.Equal(key, after) && key != nil {
			key, value = cursor.Next()
		}
		for ; key != nil; key, value = cursor.Next() {
			if len(page.Items) >= limit || read >= maxApprovalsRead || size >= maxPageBytes {
				page.Next = hex.EncodeToString(after)
				return nil
			}
			after = slices.Clone(key)
			read++
			if a := v.approvalOf(flowOfApproval(key), decodeMessage(value, &v1.ApprovalRow{}).GetStep()); a != nil && a.isOpen() && (query.Board == "" || query.Board == a.job.Board) {
				page.Items = append(page.Items, a.answer())
				size += len(a.wait.Approval.Text) + len(a.wait.Approval.Fields) + logbook.MaxDecisionBytes
			}
		}
		return nil
	})
	return page, err
}

// approvalOf reads the open approval of a step; nil for a removed flow.
func (v *view) approvalOf(flow logbook.FlowID, step string) *stepApproval {
	record := v.flow(flow)
	if record == nil {
		return nil // removed, and its rows are garbage
	}
	j := v.findJob(record.last)
	if j == nil {
		j = &jobRecord{} // removed before its flow
		j.State = jobs.StateCompleted
	}
	atom := decodeAtom(v.get(tableAtom, atomKey(flow, step)))
	return &stepApproval{flow: flow, job: j, atom: atom, wait: atom.detail.OpenWait()}
}

// approvalsAfter reads the position of a page.
func approvalsAfter(text string) ([]byte, error) {
	after, err := hex.DecodeString(text)
	if err != nil || len(after) != 0 && len(after) != approvalKeySize {
		return nil, &logbook.InvalidError{Field: "query after", Reason: fmt.Sprintf("%.64q is not a next value from an earlier page", text)}
	}
	return after, nil
}
