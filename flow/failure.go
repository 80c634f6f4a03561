package flow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Bounds of a recorded failure, so that one long error text cannot make an
// update too large to be written.
const (
	maxMessage = 4 << 10
	maxStack   = 16 << 10
	maxCauses  = 16
)

// Permanent marks an error that trying again would only repeat: the step is
// not retried, whatever its policy. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{permanent: true, err: err}
}

// Fail gives an error a kind, by which it is known after it was recorded:
// (*logbook.Failure).Matches. Fail(kind, nil) is nil.
func Fail(kind string, err error) error {
	if err == nil {
		return nil
	}
	return &markedError{kind: kind, err: err}
}

type markedError struct {
	kind      string // empty: that of err
	permanent bool
	err       error
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

// PanicError is a panic that was caught in a task or factory.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the error that was panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// FailureOf makes an error lasting. A *logbook.Failure is kept as it is, but
// for its bounds. Otherwise the kind is the outermost one in the chain that
// Fail, a panic or a *logbook.Failure has given, or "error"; it is permanent
// if any error in the chain is; and the chain below is kept as Causes. The
// failure of no error is nil.
func FailureOf(err error) *logbook.Failure {
	if err == nil {
		return nil
	}
	if failure, ok := err.(*logbook.Failure); ok {
		return bounded(*failure, maxCauses)
	}
	failure := &logbook.Failure{Kind: kindOf(err), Message: clip(err.Error(), maxMessage), Permanent: permanent(err)}
	var caught *PanicError
	if errors.As(err, &caught) {
		failure.Stack = clip(caught.Stack, maxStack)
	}
	var recorded *logbook.Failure
	if errors.As(err, &recorded) {
		failure.Code = recorded.Code
	}
	failure.Causes = causes(err, failure.Message)
	return failure
}

func kindOf(err error) string {
	kind := logbook.FailureError
	walk(err, func(e error) bool {
		switch e := e.(type) {
		case *markedError:
			kind = e.kind
		case *PanicError:
			kind = logbook.FailurePanic
		case *logbook.Failure:
			kind = e.Kind
		default:
			return true
		}
		return kind == ""
	})
	if kind == "" {
		return logbook.FailureError
	}
	return kind
}

func permanent(err error) bool {
	found := false
	walk(err, func(e error) bool {
		switch e := e.(type) {
		case *markedError:
			found = e.permanent
		case *logbook.Failure:
			found = e.Permanent
		}
		return !found
	})
	return found
}

// causes lists the errors below err. Wrappers that add no words are left out.
func causes(err error, message string) []logbook.Failure {
	var list []logbook.Failure
	walk(err, func(e error) bool {
		if failure, ok := e.(*logbook.Failure); ok && e != err {
			list = append(list, *bounded(*failure, 1))
			return len(list) < maxCauses
		}
		text := clip(e.Error(), maxMessage)
		if text != message {
			list = append(list, logbook.Failure{Kind: kindOf(e), Message: text})
			message = text
		}
		return len(list) < maxCauses
	})
	return list
}

// walk visits err and everything it wraps, outermost first, until visit says
// no. Joined errors are visited in their order.
func walk(err error, visit func(error) bool) bool {
	if err == nil {
		return true
	}
	if !visit(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if !walk(each, visit) {
				return false
			}
		}
	}
	return true
}

// bounded copies a failure that a program or a handler has made, with at most
// so many causes and no cause's own causes below the first level.
func bounded(f logbook.Failure, causes int) *logbook.Failure {
	if f.Kind == "" {
		f.Kind = logbook.FailureError
	}
	f.Kind, f.Message, f.Stack = clip(f.Kind, maxMessage), clip(f.Message, maxMessage), clip(f.Stack, maxStack)
	kept := f.Causes[:min(len(f.Causes), causes)]
	f.Causes = nil
	for i := range kept {
		f.Causes = append(f.Causes, *bounded(kept[i], 0))
	}
	return &f
}

// clip cuts a text to a number of bytes, and replaces what is not UTF-8: the
// wire refuses it.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) > limit {
		text = text[:limit-len(ellipsis)-3]
		text = strings.ToValidUTF8(text, "") + ellipsis
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
