package spec

import (
	"encoding/json"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/fields"
)

// Approve is the approval for which a step waits.
type Approve struct {
	Text       string             `json:"text"`
	Need       []logbook.Need     `json:"need"`
	Self       bool               `json:"self,omitempty"`
	Fields     json.RawMessage    `json:"fields,omitempty"`   // a JSON schema of an object
	Deadline   string             `json:"deadline,omitempty"` // a time such as "72h"; empty: flow.MaxWait
	AtDeadline logbook.AtDeadline `json:"at_deadline,omitempty"`
	Remind     []string           `json:"remind,omitempty"` // times after the start
}

// approve reads the approval of a step.
func (r *reader) approve(t *table, s *Step) *Approve {
	r.waitArguments(t, s)
	inner := t.inner("approve")
	if inner == nil {
		return &Approve{}
	}
	a := &Approve{Text: inner.text("text"), Self: inner.truth("self"), Deadline: inner.text("deadline")}
	if !inner.has("text") {
		inner.fault("text", "missing; write the question to the approvers")
	}
	a.Need = r.needs(inner)
	if inner.has("fields") {
		a.Fields = r.json(inner, "fields", inner.values["fields"])
		if err := fields.CheckSchema(a.Fields); err != nil && !inner.failed("fields") {
			inner.fault("fields", "%s", reasonOf(err))
		}
	}
	if inner.has("deadline") && !inner.failed("deadline") {
		r.checkWaitTime(inner, "deadline", a.Deadline, "write a time such as 72h")
	}
	a.AtDeadline = logbook.AtDeadline(inner.choice("at_deadline", []string{string(logbook.FailAtDeadline), string(logbook.ApproveAtDeadline), string(logbook.RejectAtDeadline)}))
	if inner.has("at_deadline") && !inner.has("deadline") {
		inner.fault("at_deadline", "set without a deadline")
	}
	a.Remind = r.reminders(inner, a.Deadline)
	inner.rest()
	return a
}

// reminders reads the times of the reminders.
func (r *reader) reminders(t *table, deadline string) []string {
	times := t.texts("remind")
	if len(times) > logbook.MaxReminders {
		t.fault("remind", "%d times, and the limit is %d", len(times), logbook.MaxReminders)
		return nil
	}
	end, err := time.ParseDuration(deadline)
	if err != nil {
		end = flow.MaxWait
	}
	last := time.Duration(0)
	for _, text := range times {
		after, err := time.ParseDuration(text)
		switch {
		case err != nil:
			t.fault("remind", "%.40q is not a time; write times such as 24h", text)
		case after <= last || after >= end:
			t.fault("remind", "%.40q: the times must be ascending, above 0 and below the deadline, %s", text, end)
		}
		last = after
	}
	return times
}

// needs reads the roles and numbers of the approvers.
func (r *reader) needs(t *table) (needs []logbook.Need) {
	tables := t.tables("need")
	if len(tables) == 0 && !t.failed("need") {
		t.fault("need", `missing; write need = [{role = "dba"}]`)
	}
	for i, values := range tables {
		if i == logbook.MaxNeeds {
			t.fault("need", "%d roles, and the limit is %d", len(tables), logbook.MaxNeeds)
			break
		}
		inner := newTable(t.faults, t.pathOf("need"), t.where+", need", values)
		need := logbook.Need{Role: r.name(inner, "role"), Count: 1}
		if inner.has("count") {
			need.Count = inner.integer("count", 1, logbook.MaxApprovers)
		}
		inner.rest()
		needs = append(needs, need)
	}
	return needs
}

// approval makes the approval of a step. Parse has checked all that could fail.
func (a *Approve) approval() *flow.Approval {
	deadline, _ := time.ParseDuration(a.Deadline) // empty: no limit of its own
	approval := &flow.Approval{Text: a.Text, Need: a.Need, Self: a.Self, Fields: a.Fields, Deadline: deadline, AtDeadline: a.AtDeadline}
	for _, text := range a.Remind {
		after, _ := time.ParseDuration(text)
		approval.Remind = append(approval.Remind, after)
	}
	return approval
}
