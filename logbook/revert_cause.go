package logbook

import (
	"encoding/json"
	"strings"
)

// CauseKind is the kind of a RevertCause.
type CauseKind string

// The kinds of cause.
const (
	CauseFailure  CauseKind = "failure"  // a step failed permanently
	CauseCancel   CauseKind = "cancel"   // an operator cancelled the job
	CauseDeadline CauseKind = "deadline" // the job's deadline passed
	CauseRetry    CauseKind = "retry"    // the step runs again: a retry of the flow starts a round, or flow.UndoLast applies
	CauseOperator CauseKind = "operator" // an operator reverted a held flow
	CauseDropped  CauseKind = "dropped"  // enough other members of a flow have succeeded: see flow.Flow.Enough
)

// RevertCause is the reason why a step is reverted. It is derived from the flow's record, so it is the
// same after a takeover.
type RevertCause struct {
	Kind CauseKind `json:"kind"`
	// By is the operator; empty without one.
	By string `json:"by,omitempty"`
	// Reason is the operator's reason or the text of the failure; empty if there is none.
	Reason string `json:"reason,omitempty"`
}

// The details of a cancelled flow's cause.
const (
	detailCause  = "cause"
	detailBy     = "by"
	detailReason = "reason"
)

// maxCauseReason bounds the reason in the details of a failure: longer details would be omitted.
const maxCauseReason = 1 << 10

// Cancelled is the failure to record in a flow that is reverted by request. CauseOf returns its cause.
func (c RevertCause) Cancelled(message string) *Failure {
	failure := &Failure{Kind: FailureOperator, Message: message, Permanent: true, Details: make(Values)}
	for name, text := range map[string]string{detailCause: string(c.Kind), detailBy: c.By, detailReason: strings.ToValidUTF8(c.Reason[:min(len(c.Reason), maxCauseReason)], "")} {
		if text != "" {
			failure.Details[name], _ = json.Marshal(text) // a string: it cannot fail
		}
	}
	return failure
}

// CauseOf is the cause of a revert that starts with a failure.
func CauseOf(failure *Failure) RevertCause {
	failure = failure.Origin()
	switch {
	case failure == nil:
		return RevertCause{Kind: CauseFailure}
	case failure.Kind != FailureOperator:
		return RevertCause{Kind: CauseFailure, Reason: failure.Error()}
	}
	text := func(name string) (text string) {
		_ = json.Unmarshal(failure.Details[name], &text) // absent: empty
		return text
	}
	if kind := CauseKind(text(detailCause)); kind == CauseCancel || kind == CauseDeadline {
		return RevertCause{Kind: kind, By: text(detailBy), Reason: text(detailReason)}
	}
	return RevertCause{Kind: CauseCancel, Reason: failure.Message}
}
