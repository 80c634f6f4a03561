package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
)

// askingFlow deletes a disk after an approval.
func askingFlow(t *testing.T, ran map[string]int, atDeadline logbook.AtDeadline) *flow.Plan {
	count := func(name string) *flow.Step {
		return act(name, func(context.Context) error { ran[name]++; return nil })
	}
	find := flow.Func("find", func(context.Context, none) (string, error) { return "sda", nil }, flow.Provides("disk"))
	approval := flow.Approval{Text: "Delete {disk}?", Need: []logbook.Need{{Role: "dba", Count: 1}}, Deadline: 48 * time.Hour, AtDeadline: atDeadline, Remind: []time.Duration{24 * time.Hour}}
	return compiled(t, flow.Linear("delete", count("stop"), find, flow.Approve("ask", approval, flow.Requires("disk")), count("wipe")))
}

// TestApprovals: a flow that asks is released until the decision or the deadline, and continues with the outcome.
func TestApprovals(t *testing.T) {
	yes := &logbook.Decision{Kind: logbook.Approve, ID: "1", By: "ann", Roles: []string{"dba"}, Answers: json.RawMessage(`{"ticket":"CHG-1"}`)}
	no := &logbook.Decision{Kind: logbook.Reject, ID: "1", By: "bob", Roles: []string{"dba"}, Reason: "in use"}
	for _, row := range []struct {
		name       string
		decision   *logbook.Decision
		atDeadline logbook.AtDeadline
		state      logbook.FlowState
		result     string // a part of it
		failure    string // kind
		after      time.Duration
	}{
		{"approved", yes, "", logbook.FlowSuccess, `"outcome":"approved","answers":{"ticket":"CHG-1"},"decisions":[{"kind":"approve","id":"1","by":"ann"`, "", 0},
		{"rejected", no, "", logbook.FlowReverted, "", logbook.FailureApproval, 0},
		{"fails at the deadline", nil, "", logbook.FlowReverted, "", logbook.FailureTimeout, 48 * time.Hour},
		{"rejected at the deadline", nil, logbook.RejectAtDeadline, logbook.FlowReverted, "", logbook.FailureApproval, 48 * time.Hour},
		{"approved at the deadline", nil, logbook.ApproveAtDeadline, logbook.FlowSuccess, `"at_deadline":true`, "", 48 * time.Hour},
	} {
		for crash := -1; crash < 10; crash++ {
			synctest.Test(t, func(t *testing.T) {
				ran, began := map[string]int{}, time.Now()
				j := newJournal(newDetail())
				end, _ := liveWith(t, askingFlow(t, ran, row.atDeadline), j, nil, row.decision, crash)
				detail := j.snapshot()
				attempts := detail.Atoms[j.index["ask"]].Attempts
				attempt, kind := attempts[0], ""
				if attempt.Failure != nil {
					kind = attempt.Failure.Kind
				}
				if end.State != row.state || !strings.Contains(string(attempt.Result), row.result) || kind != row.failure || time.Since(began).Truncate(time.Minute) != row.after {
					t.Errorf("%s, crash at %d: %s with %s or %q after %s", row.name, crash, end.State, attempt.Result, kind, time.Since(began))
				}
				if remind := attempt.Wait.Approval.Remind; len(remind) != 1 || remind[0].At.Sub(attempt.Wait.Since) != 24*time.Hour {
					t.Errorf("%s, crash at %d: the reminders are %v", row.name, crash, remind)
				}
				if attempt.Wait == nil || attempt.Wait.Approval.Text != "Delete sda?" || (ran["wipe"] > 0) != (row.state == logbook.FlowSuccess) {
					t.Errorf("%s, crash at %d: the attempt has the wait %+v, and the calls are %v", row.name, crash, attempt.Wait, ran)
				}
			})
		}
	}
}

// TestApprovalText: a text whose value is missing fails the step, and asks nobody.
func TestApprovalText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		find := flow.Func("find", func(context.Context, none) (map[string]any, error) { return map[string]any{"id": 7}, nil }, flow.Provides("disk"))
		approval := flow.Approval{Text: "Delete {disk.name}?", Need: []logbook.Need{{Role: "dba", Count: 1}}}
		j := newJournal(newDetail())
		end, _ := live(t, compiled(t, flow.Linear("delete", find, flow.Approve("ask", approval, flow.Requires("disk")))), j, nil, -1)
		detail := j.snapshot()
		if attempt := detail.Atoms[j.index["ask"]].Attempts[0]; end.State != logbook.FlowReverted || attempt.Failure == nil || attempt.Failure.Kind != logbook.FailureArgument || attempt.Wait != nil {
			t.Errorf("%s: %+v", end.State, attempt)
		}
	})
}
