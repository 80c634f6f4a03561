package logbook

import (
	"errors"
	"fmt"
	"slices"
)

// The ends of a flow without success. Runs in this process, and calls that wait for a job, return them
// as an *EndError. A store never returns them.
var (
	// ErrReverted: the flow failed, and all its work is undone.
	ErrReverted = errors.New("reverted after a failure")
	// ErrFailed: the flow failed, and not all its work is undone: a revert failed, or the flow is held
	// (HoldOnFailure). An operator is needed.
	ErrFailed = errors.New("failed, and not all steps are reverted")
)

// maxNamedFailures bounds the failures that the text of an EndError names.
const maxNamedFailures = 10

// EndError is the end of a flow without success: an ErrReverted or an ErrFailed. errors.As finds its
// first failure as a *Failure.
type EndError struct {
	Flow  string // name
	State FlowState
	// Failures are the flow's cause, and then the failures of the other failed steps.
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

// Err returns an *EndError if the flow is reverted or in failure, and otherwise nil.
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

// AlsoFailed returns the failures of all steps whose latest execution failed, each with its Step. It
// omits interrupted steps, steps that wait or run again, steps whose failure is ignored, and steps that
// the cause names.
func (f *FlowDetail) AlsoFailed(cause *Failure) (failures []Failure) {
	for i := range f.Atoms {
		atom := &f.Atoms[i]
		failure := atom.Failure()
		if failure == nil || failure.Kind == FailureInterrupted || cause.names(atom.Name) || atom.State == AtomPending || atom.State == AtomRunning || atom.FailureIgnored() {
			continue
		}
		also := *failure
		also.Step = atom.Name
		failures = append(failures, also)
	}
	return failures
}

// names reports whether the failure or one of its causes belongs to the step.
func (f *Failure) names(step string) bool {
	return f != nil && (f.Step == step || slices.ContainsFunc(f.Causes, func(cause Failure) bool { return cause.names(step) }))
}
