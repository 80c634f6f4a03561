package logbook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of one approval.
const (
	// MaxApprovalText limits the text, in bytes. For longer texts, write a link.
	MaxApprovalText = 4 << 10
	// MaxNeeds limits the roles of one approval.
	MaxNeeds = 8
	// MaxApprovers limits the people that one approval needs, because each decision matches them with the needs.
	MaxApprovers = 16
	// MaxFields limits the JSON schema of the answers, in bytes.
	MaxFields = 16 << 10
	// MaxAnswers limits the answers of one decision, in bytes of JSON.
	MaxAnswers = 8 << 10
	// MaxDecisionReason limits the reason of one decision, in bytes.
	MaxDecisionReason = 1 << 10
	// MaxReminders limits the reminders of one approval, because each is an event.
	MaxReminders = 10
	// MaxDecisions limits the decisions of one approval. A person can use several of them.
	MaxDecisions = 64
	// MaxDecisionBytes limits the decisions of one approval together: the step's result contains them, and must fit
	// into a signal, even with escaped characters and encrypted.
	MaxDecisionBytes = 20 << 10
)

// Approval is a question to people; a step waits for the answer: see Wait. The cluster adds the decisions, and ends the
// wait with a signal when the approval is decided: one person for each need has approved, or one person has rejected.
type Approval struct {
	Text       string          `json:"text"`
	Need       []Need          `json:"need"`
	Self       bool            `json:"self,omitempty"`   // the job's poster may decide
	Fields     json.RawMessage `json:"fields,omitempty"` // JSON schema of the answers; nil: an approval has no answers
	AtDeadline AtDeadline      `json:"at_deadline,omitempty"`
	// Remind are the times of reminders, in order. At each of them, the cluster writes an event if the
	// approval is still open.
	Remind []Reminder `json:"remind,omitempty"`
	// Decisions are all decisions in the order of the log, including withdrawn ones.
	Decisions []Decision `json:"decisions,omitempty"`
}

// Need is a number of people with a role.
type Need struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
}

// Reminder is the time of a reminder of an approval.
type Reminder struct {
	At time.Time `json:"at"`
}

// AtDeadline is the outcome of an approval that nobody has decided in time.
type AtDeadline string

// The outcomes at the deadline.
const (
	FailAtDeadline    AtDeadline = "fail"    // the step fails with the kind FailureTimeout, and its retry policy applies
	ApproveAtDeadline AtDeadline = "approve" // the step succeeds
	RejectAtDeadline  AtDeadline = "reject"  // the step fails permanently with the kind FailureApproval
)

// AtDeadlines are all outcomes at the deadline.
var AtDeadlines = []AtDeadline{FailAtDeadline, ApproveAtDeadline, RejectAtDeadline}

// DecisionKind is the kind of a person's decision.
type DecisionKind string

// The kinds of decisions.
const (
	Approve  DecisionKind = "approve"
	Reject   DecisionKind = "reject"
	Withdraw DecisionKind = "withdraw" // takes back the person's approval
)

// DecisionKinds are all kinds of decisions.
var DecisionKinds = []DecisionKind{Approve, Reject, Withdraw}

// Decision is the decision of one person.
type Decision struct {
	Kind     DecisionKind    `json:"kind"`
	Override bool            `json:"override,omitempty"` // it decides alone, whatever the approval needs
	ID       string          `json:"id"`                 // identifies repeats
	By       string          `json:"by"`                 // the person
	Roles    []string        `json:"roles,omitempty"`    // needed roles that the person had, set by the cluster
	Reason   string          `json:"reason,omitempty"`
	Answers  json.RawMessage `json:"answers,omitempty"`
	At       time.Time       `json:"at,omitzero"` // set by the cluster
}

// Outcome is the outcome of an approval. Empty: not decided yet.
type Outcome string

// The outcomes of an approval.
const (
	Approved Outcome = "approved"
	Rejected Outcome = "rejected"
)

// Outcome returns the outcome that the decisions lead to.
func (a *Approval) Outcome() Outcome {
	if len(a.Decisions) == 0 {
		return ""
	}
	switch latest := &a.Decisions[len(a.Decisions)-1]; {
	case latest.Kind == Reject:
		return Rejected
	case latest.Kind == Approve && (latest.Override || len(a.Missing()) == 0):
		return Approved
	}
	return ""
}

// Decide adds a decision to the approval of a step that waits. The decision that ends the approval also ends the wait,
// with a signal: the step's result, or a rejection. The caller has checked the decision with Approval.Admits.
func (a *AtomDetail) Decide(d *Decision) *Approval {
	latest := &a.Attempts[len(a.Attempts)-1]
	wait, approval := *latest.Wait, *latest.Wait.Approval
	approval.Decisions = append(slices.Clip(approval.Decisions), *d)
	wait.Approval = &approval
	latest.Wait = &wait
	switch approval.Outcome() {
	case Approved:
		a.Take(&Signal{Name: a.Name, ID: d.ID, By: d.By, At: d.At, Data: approval.Result(false)})
	case Rejected:
		a.Take(&Signal{Name: a.Name, ID: d.ID, By: d.By, At: d.At, Reject: approval.Verdict()})
	}
	return &approval
}

// Admits checks a decision against the earlier ones of an open approval. ErrConflict, ErrLimit.
func (a *Approval) Admits(d *Decision) error {
	decided, size := len(a.Decisions), d.Size()
	for i := range a.Decisions {
		size += a.Decisions[i].Size()
	}
	ends := d.Kind == Reject || d.Override // has the last place, so that a full approval can end
	switch {
	case decided >= MaxDecisions, decided == MaxDecisions-1 && !ends:
		return &LimitError{Field: "decisions of the approval", Limit: MaxDecisions, Size: int64(decided) + 1, Unit: "decisions"}
	case size > MaxDecisionBytes && !ends:
		return &LimitError{Field: "decisions of the approval", Limit: MaxDecisionBytes, Size: int64(size), Unit: "bytes"}
	case d.Kind == Withdraw && !slices.ContainsFunc(a.Standing(), func(s Decision) bool { return s.By == d.By }):
		return fmt.Errorf("%w: %s has not approved it, so there is nothing to withdraw", ErrConflict, cmp.Or(d.By, "the caller"))
	}
	return nil
}

// Needed returns the needed roles, each once.
func (a *Approval) Needed() []string {
	var needed []string
	for _, need := range a.Need {
		if !slices.Contains(needed, need.Role) {
			needed = append(needed, need.Role)
		}
	}
	return needed
}

// NeededOf returns the needed roles among the roles of a person. ErrNotAllowed if the person has none of them.
func (a *Approval) NeededOf(person string, roles []string) ([]string, error) {
	needed := a.Needed()
	has := slices.DeleteFunc(slices.Clone(needed), func(role string) bool { return !slices.Contains(roles, role) })
	if len(has) == 0 {
		return nil, fmt.Errorf("%w: %s has none of the needed roles %s", ErrNotAllowed, person, strings.Join(needed, ", "))
	}
	return has, nil
}

// Standing returns the latest approval of each person, without the withdrawn ones, in the order of the log.
func (a *Approval) Standing() []Decision {
	var standing []Decision
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Kind == Reject {
			continue
		}
		standing = slices.DeleteFunc(standing, func(earlier Decision) bool { return earlier.By == d.By })
		if d.Kind == Approve {
			standing = append(standing, *d)
		}
	}
	return standing
}

// EndsWith reports whether one more decision of a kind ends an open approval, if the person has a role that is missing.
func (a *Approval) EndsWith(kind DecisionKind) bool {
	missing := 0
	for _, need := range a.Missing() {
		missing += need.Count
	}
	return kind == Reject || kind == Approve && missing == 1
}

// Missing returns the needs that the standing approvals do not fill. A person fills one need at most. People are
// assigned so that as many needs as possible are filled: a maximum bipartite matching, by augmenting paths in the
// order of the log, so all nodes find the same assignment.
func (a *Approval) Missing() []Need {
	var roles []string // one for each needed person
	for _, need := range a.Need {
		for range need.Count {
			roles = append(roles, need.Role)
		}
	}
	people, filled := a.Standing(), make([]int, len(roles)) // the person of each role, from 1; 0: none
	var place func(person int, seen []bool) bool
	place = func(person int, seen []bool) bool {
		for i, role := range roles {
			if seen[i] || !slices.Contains(people[person-1].Roles, role) {
				continue
			}
			seen[i] = true
			if filled[i] == 0 || place(filled[i], seen) {
				filled[i] = person
				return true
			}
		}
		return false
	}
	for person := range people {
		place(person+1, make([]bool, len(roles)))
	}
	var missing []Need
	for i, role := range roles {
		switch last := len(missing) - 1; {
		case filled[i] != 0:
		case last >= 0 && missing[last].Role == role:
			missing[last].Count++
		default:
			missing = append(missing, Need{Role: role, Count: 1})
		}
	}
	return missing
}

// Result is the result of a step whose approval has ended without a rejection: people, reasons and answers.
func (a *Approval) Result(atDeadline bool) json.RawMessage {
	result := struct {
		Outcome    Outcome         `json:"outcome"`
		AtDeadline bool            `json:"at_deadline,omitempty"`
		Answers    json.RawMessage `json:"answers"`
		Decisions  []Decision      `json:"decisions"`
	}{Approved, atDeadline, json.RawMessage("null"), a.Standing()}
	for i := range result.Decisions {
		if answers := result.Decisions[i].Answers; len(answers) > 0 {
			result.Answers = answers
		}
	}
	if result.Decisions == nil {
		result.Decisions = []Decision{}
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		panic(fmt.Sprintf("internal error: checked answers are no JSON: %s", err))
	}
	return bytes.TrimSpace(encoded.Bytes())
}

// Verdict describes the end of a decided approval: who decided, and when.
func (a *Approval) Verdict() string {
	if len(a.Decisions) == 0 {
		return ""
	}
	latest := &a.Decisions[len(a.Decisions)-1]
	by, how := latest.By, string(a.Outcome())
	if latest.Kind == Approve && !latest.Override {
		standing := a.Standing()
		names := make([]string, len(standing))
		for i := range standing {
			names[i] = standing[i].By
		}
		by = strings.Join(names, ", ")
	}
	if latest.Override {
		how += " with an override"
	}
	text := fmt.Sprintf("%s by %s at %s", how, by, latest.At.UTC().Format(time.RFC3339))
	if latest.Reason != "" {
		text += ": " + latest.Reason
	}
	return text
}

// NeedText is a list of needs as text, such as "2 of dba and 1 of owner".
func NeedText(needs []Need) string {
	parts := make([]string, len(needs))
	for i, need := range needs {
		parts[i] = fmt.Sprintf("%d of %s", need.Count, need.Role)
	}
	return strings.Join(parts, " and ")
}

// Size returns the bytes of the texts and answers of a decision.
func (d *Decision) Size() int {
	size := len(d.ID) + len(d.By) + len(d.Reason) + len(d.Answers)
	for _, role := range d.Roles {
		size += len(role)
	}
	return size
}

// CheckApproval checks an approval before it is written.
func (l Limits) CheckApproval(a *Approval) error {
	people := 0
	for _, need := range a.Need {
		if err := l.CheckName("approve need role", need.Role); err != nil {
			return err
		}
		if need.Count < 1 || need.Count > MaxApprovers {
			return &InvalidError{Field: "approve need count", Reason: fmt.Sprintf("%d people; a role needs 1 to %d", need.Count, MaxApprovers)}
		}
		people += need.Count
	}
	switch {
	case a.Text == "":
		return &InvalidError{Field: "approve text", Reason: "empty"}
	case !utf8.ValidString(a.Text):
		return &InvalidError{Field: "approve text", Reason: "not UTF-8"}
	case len(a.Text) > MaxApprovalText:
		return &LimitError{Field: "approve text", Limit: MaxApprovalText, Size: int64(len(a.Text)), Unit: "bytes"}
	case len(a.Need) == 0:
		return &InvalidError{Field: "approve need", Reason: "empty; an approval needs at least one role"}
	case len(a.Need) > MaxNeeds:
		return &LimitError{Field: "approve need", Limit: MaxNeeds, Size: int64(len(a.Need)), Unit: "roles"}
	case people > MaxApprovers:
		return &LimitError{Field: "approve need", Limit: MaxApprovers, Size: int64(people), Unit: "people"}
	case a.AtDeadline != "" && !slices.Contains(AtDeadlines, a.AtDeadline):
		return &InvalidError{Field: "approve at_deadline", Reason: fmt.Sprintf("%.64q is not one of %v", a.AtDeadline, AtDeadlines)}
	case len(a.Remind) > MaxReminders:
		return &LimitError{Field: "approve remind", Limit: MaxReminders, Size: int64(len(a.Remind)), Unit: "reminders"}
	case !slices.IsSortedFunc(a.Remind, func(a, b Reminder) int { return a.At.Compare(b.At) }):
		return &InvalidError{Field: "approve remind", Reason: "the times are not in order"}
	case len(a.Decisions) > MaxDecisions:
		return &LimitError{Field: "approve decisions", Limit: MaxDecisions, Size: int64(len(a.Decisions)), Unit: "decisions"}
	}
	l.Value = min(l.Value, MaxFields)
	return l.CheckValue("approve fields", a.Fields)
}

// CheckDecision checks a decision before it is written.
func (l Limits) CheckDecision(d *Decision) error {
	if err := l.CheckName("decision id", d.ID); err != nil {
		return err
	}
	if err := l.checkOptionalName("decision by", d.By); err != nil {
		return err
	}
	switch {
	case !slices.Contains(DecisionKinds, d.Kind):
		return &InvalidError{Field: "decision kind", Reason: fmt.Sprintf("%.64q is not one of %v", d.Kind, DecisionKinds)}
	case d.Override && d.Kind == Withdraw:
		return &InvalidError{Field: "decision kind", Reason: "withdraw cannot be an override; use approve or reject"}
	case len(d.Reason) > MaxDecisionReason:
		return &LimitError{Field: "decision reason", Limit: MaxDecisionReason, Size: int64(len(d.Reason)), Unit: "bytes"}
	case !utf8.ValidString(d.Reason):
		return &InvalidError{Field: "decision reason", Reason: "not UTF-8"}
	case strings.ContainsFunc(d.Reason, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return &InvalidError{Field: "decision reason", Reason: "contains a control character"}
	case strings.TrimSpace(d.Reason) == "" && (d.Kind == Reject || d.Override):
		return &InvalidError{Field: "decision reason", Reason: "empty; a rejection and an override need a reason"}
	case d.Kind != Approve && len(d.Answers) > 0:
		return &InvalidError{Field: "decision answers", Reason: fmt.Sprintf("set for the decision %s; only approve has answers", d.Kind)}
	}
	l.Value = min(l.Value, MaxAnswers)
	return l.CheckValue("decision answers", d.Answers)
}
