package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/logbook/fields"
)

// Approval is the question of a step to people: see Approve.
type Approval struct {
	// Text is the question. It can name arguments of the step in braces, as in "Delete {disk}?".
	Text string
	Need []logbook.Need // people that must approve, by role
	Self bool           // the job's poster may decide
	// Fields is the JSON schema of the answers of an approval; nil: no answers.
	Fields json.RawMessage
	// Deadline limits the wait, from its start; 0: MaxWait. AtDeadline is the outcome then; empty: the step fails
	// with the kind logbook.FailureTimeout.
	Deadline   time.Duration
	AtDeadline logbook.AtDeadline
	// Remind are the delays of reminders, from the start of the wait: ascending, shorter than Deadline, at
	// most logbook.MaxReminders. While the approval is open, the cluster writes an event of the kind
	// approval_reminder after each delay.
	Remind []time.Duration
}

// Approve makes a step that waits for approvals. The step succeeds when one person for each need has approved. One
// rejection fails it permanently, with the kind logbook.FailureApproval. The result has the fields outcome, answers and
// decisions. The answers come from the latest approval with answers.
//
// While the flow waits only for such steps, no conductor runs it: see Signal. When the flow runs again, the
// step needs new approvals.
func Approve(name string, approval Approval, options ...StepOption) *Step {
	return NewStep(name, waitTask{}, append([]StepOption{Waits(&Wait{For: approval.Deadline, Approval: &approval})}, options...)...)
}

// Ask makes the approval for a wait that starts now, with the arguments of its step.
func (a *Approval) Ask(s *Step, arguments logbook.Values, now time.Time) (*logbook.Approval, error) {
	text, err := fillTemplate(a.Text, s.hasArgument, func(argument string) (json.RawMessage, bool) {
		value, ok := arguments[argument]
		return value, ok
	}, func(argument string) bool { return !s.isRequired(argument) })
	if err != nil {
		return nil, fmt.Errorf("cannot fill the text of its approval: %w", err)
	}
	if len(text) > maxApprovalText {
		return nil, &logbook.LimitError{Field: "approve text", Limit: maxApprovalText, Size: int64(len(text)), Unit: "bytes"}
	}
	asked := &logbook.Approval{Text: text, Need: a.Need, Self: a.Self, Fields: a.Fields, AtDeadline: a.AtDeadline}
	for _, after := range a.Remind {
		asked.Remind = append(asked.Remind, logbook.Reminder{At: now.Add(after)})
	}
	return asked, nil
}

// maxApprovalText limits the text of an approval with its values. Encryption makes the text a third longer.
const maxApprovalText = logbook.MaxApprovalText * 5 / 8

// result returns the end of an approval: of its decision, or if that is nil, of its deadline. The caller adds the
// decisions to the result of a deadline.
func (a *Approval) result(end *logbook.Signal) (json.RawMessage, *logbook.Failure) {
	switch {
	case end != nil && end.Reject != "":
		return nil, &logbook.Failure{Kind: logbook.FailureApproval, Permanent: true, Message: end.Reject}
	case end != nil:
		return end.Data, nil
	case a.AtDeadline == logbook.ApproveAtDeadline:
		return json.RawMessage("null"), nil
	case a.AtDeadline == logbook.RejectAtDeadline:
		return nil, &logbook.Failure{Kind: logbook.FailureApproval, Permanent: true, Message: "rejected by the deadline: too few people approved in time"}
	}
	return nil, &logbook.Failure{Kind: logbook.FailureTimeout, Message: "too few people approved in time"}
}

// checkApproval reports contradictions of a step that waits for an approval.
func (s *Step) checkApproval(a *Approval) {
	if err := logbook.MaxLimits.CheckApproval(&logbook.Approval{Text: a.Text, Need: a.Need, AtDeadline: a.AtDeadline, Fields: a.Fields}); err != nil {
		s.fault("%w", err)
	}
	if len(a.Text) > maxApprovalText {
		s.fault("%w", &logbook.LimitError{Field: "approve text", Limit: maxApprovalText, Size: int64(len(a.Text)), Unit: "bytes"})
	}
	s.checkTemplate("approval text", a.Text)
	if len(a.Fields) > 0 {
		if err := fields.CheckSchema(a.Fields); err != nil {
			s.fault("%w", err)
		}
	}
	if len(a.Remind) > logbook.MaxReminders {
		s.fault("%w", &logbook.LimitError{Field: "approve remind", Limit: logbook.MaxReminders, Size: int64(len(a.Remind)), Unit: "reminders"})
	}
	last, end := time.Duration(0), cmp.Or(s.wait.For, MaxWait)
	for _, after := range a.Remind {
		if after <= last || after >= end {
			s.fault("it reminds of its approval after %s; the times must be ascending, above 0 and below the deadline, %s", duration.Text(after), duration.Text(end))
		}
		last = after
	}
	if len(s.wait.Signals) > 0 {
		s.fault("it waits for a signal and for an approval; make two steps")
	}
}
