package logbook

import (
	"errors"
	"fmt"
	"slices"
)

// How a flow has ended that is no success. Both are returned by runs in this process and by waiting
// for jobs, and never by a store. Such an error is an *EndError.
var (
	// ErrReverted: the flow has failed, and all that it did is undone.
	ErrReverted = errors.New("reverted after a failure")
	// ErrFailed: the flow has failed and could not undo everything. A person is needed.
	ErrFailed = errors.New("failed, and not all of it could be undone")
)

// maxNamedFailures bounds the failures that the text of an EndError names.
const maxNamedFailures = 10

// EndError is how a flow has ended that is no success: an ErrReverted or an ErrFailed. errors.As
// finds the first of its failures as a *Failure.
type EndError struct {
	Flow  string // its name
	State FlowState
	// Failures are the flow's cause and those of the other steps that failed, the cause first.
	Failures []Failure
}

func (e *EndError) Error() string {
	text := fmt.Sprintf("flow %q: %v: %v", e.Flow, e.kind(), &e.Failures[0])
	for i := range e.Failures[1:min(len(e.Failures), maxNamedFailures)] {
		text += fmt.Sprintf("; also %v", &e.Failures[i+1])
	}
	if more := len(e.Failures) - maxNamedFailures; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap returns the sentinel and the first failure.
func (e *EndError) Unwrap() []error { return []error{e.kind(), &e.Failures[0]} }

func (e *EndError) kind() error {
	if e.State == FlowReverted {
		return ErrReverted
	}
	return ErrFailed
}

// Err is an *EndError if the flow has ended and is no success; otherwise nil.
func (f *FlowDetail) Err() error {
	if f.State != FlowReverted && f.State != FlowFailure {
		return nil
	}
	cause := f.Cause
	if cause == nil {
		cause = &Failure{Kind: FailureError, Message: "the record does not say why"}
	}
	return &EndError{Flow: f.Name, State: f.State, Failures: append([]Failure{*cause}, f.AlsoFailed(cause)...)}
}

// AlsoFailed are the failures of the steps whose last execution failed, without interrupted ones and
// those of the steps that the cause names. Each says its Step.
func (f *FlowDetail) AlsoFailed(cause *Failure) (failures []Failure) {
	for i := range f.Atoms {
		atom := &f.Atoms[i]
		failure := atom.Failure()
		if failure == nil || failure.Kind == FailureInterrupted || cause.names(atom.Name) || atom.State == AtomPending || atom.State == AtomRunning {
			continue
		}
		also := *failure
		also.Step = atom.Name
		failures = append(failures, also)
	}
	return failures
}

// names reports whether the failure or one of its causes is of the step.
func (f *Failure) names(step string) bool {
	return f != nil && (f.Step == step || slices.ContainsFunc(f.Causes, func(cause Failure) bool { return cause.names(step) }))
}
