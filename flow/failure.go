package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/conductord/conductord/logbook"
)

// Limits of a recorded failure: one long error text must not make an update too large to be
// written.
const (
	maxMessage = 4 << 10
	maxStack   = 16 << 10
	maxDetails = 8 << 10
	detailRoom = 192 // for the encryption of one detail
	maxCauses  = 16  // of one failure
	// maxWrapped bounds the wrapped errors that are visited, because an error can wrap itself.
	maxWrapped = 1_000
	// maxFailure and maxFailures bound a failure with all of its causes. Two such failures together
	// are within the logbook's limits: a failed revert has the failure that caused it as a cause.
	maxFailure  = 32 << 10
	maxFailures = 48
	// Shares of a command and of a value that one failure may take. The last update of a flow holds
	// its cause, and so does the ending of the job in the same command.
	commandShare = 32
	valueShare   = 2
)

// Permanent marks an error that would only repeat: the step is not tried again, whatever its
// policy. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{permanent: true, err: err}
}

// Fail gives an error a kind, which identifies the error after it was recorded: see
// (*logbook.Failure).Matches. Fail(kind, nil) is nil.
func Fail(kind string, err error) error {
	if err == nil {
		return nil
	}
	return &markedError{kind: kind, err: err}
}

// WithDetails adds facts for programs to an error, such as {"status": 402}. The details are
// recorded as JSON with the failure, at most logbook.MaxDetails of them and 8 KiB together.
// Details beyond a limit, or without JSON, are left out, and the failure's message reports
// that. If an error is wrapped several times, the outermost details are recorded.
// WithDetails(nil, details) is nil.
func WithDetails(err error, details map[string]any) error {
	if err == nil {
		return nil
	}
	encoded := make(logbook.Values, len(details))
	for name, value := range details {
		text, unfit := json.Marshal(value)
		if unfit != nil {
			return &markedError{err: fmt.Errorf("%w; its details are omitted: cannot encode %.80q: %w", err, name, unfit)}
		}
		encoded[name] = text
	}
	return &markedError{details: encoded, err: err}
}

type markedError struct {
	kind      string // empty: the kind of err
	permanent bool
	details   logbook.Values
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

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// CatchPanic, when deferred, turns a panic into the function's error.
func CatchPanic(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: string(debug.Stack())}
	}
}

// FailureOf makes an error recordable. A *logbook.Failure is kept, but cut to its limits. Any
// other error becomes a failure:
//
//   - Its kind is the outermost in the chain from Fail, a panic or a *logbook.Failure; if there
//     is none, "error".
//   - It is permanent if any error in the chain is.
//   - Its Causes are the rest of the chain.
//
// FailureOf(nil) is nil; a nil *logbook.Failure is an error. The result fits a logbook of the
// largest limits; FitFailure makes it fit others. FailureOf calls the methods of a program's own
// errors. If one of them panics, the panic is the failure.
func FailureOf(err error) (failure *logbook.Failure) {
	defer func() {
		if value := recover(); value != nil {
			failure = failureOf(&PanicError{Value: fmt.Sprintf("while reading an error of the type %T: %v", err, value), Stack: string(debug.Stack())})
		}
	}()
	return failureOf(err)
}

func failureOf(err error) *logbook.Failure {
	if err == nil {
		return nil
	}
	if failure, ok := err.(*logbook.Failure); ok && failure == nil {
		return &logbook.Failure{Kind: logbook.FailureError, Message: "the error is a nil *logbook.Failure, which is not nil as an error: return nil where nothing has failed"}
	} else if ok {
		return FitFailure(failure, logbook.MaxLimits)
	}
	failure := &logbook.Failure{Kind: kindOf(err), Message: clip(err.Error(), maxMessage), Permanent: permanent(err), Details: detailsOf(err)}
	walk(err, func(e error) bool {
		switch e := e.(type) {
		case *PanicError:
			failure.Stack = cmp.Or(failure.Stack, e.Stack)
		case *logbook.Failure:
			failure.Code = cmp.Or(failure.Code, e.Code)
		}
		return true
	})
	failure.Causes = causes(err, failure.Message)
	return FitFailure(failure, logbook.MaxLimits)
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

func detailsOf(err error) (details logbook.Values) {
	walk(err, func(e error) bool {
		switch e := e.(type) {
		case *markedError:
			details = e.details
		case *logbook.Failure:
			details = e.Details
		}
		return len(details) == 0
	})
	return details
}

// causes lists the errors below err, without wrappers that add no words.
func causes(err error, message string) []logbook.Failure {
	var list []logbook.Failure
	walk(err, func(e error) bool {
		if failure, ok := e.(*logbook.Failure); ok && e != err {
			list = append(list, *failure)
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

// walk visits err and everything it wraps, up to maxWrapped, outermost first, until visit returns
// false. Joined errors are visited in their order.
func walk(err error, visit func(error) bool) {
	left := maxWrapped
	walkSome(err, &left, visit)
}

func walkSome(err error, left *int, visit func(error) bool) bool {
	if err == nil {
		return true
	}
	if *left--; *left < 0 || !visit(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walkSome(e.Unwrap(), left, visit)
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if !walkSome(each, left, visit) {
				return false
			}
		}
	}
	return true
}

// FitFailure copies a failure so that it fits the limits of a logbook. It cuts texts, replaces
// characters that a name cannot have, and leaves out causes beyond the limit, the furthest first.
func FitFailure(f *logbook.Failure, limits logbook.Limits) *logbook.Failure {
	if f == nil {
		return nil
	}
	left := allowance{bytes: min(maxFailure, limits.Value/valueShare, limits.Command/commandShare), failures: maxFailures, name: limits.Name}
	fitted := left.fit(*f)
	return &fitted
}

// allowance is the remaining size for a failure and its causes.
type allowance struct {
	bytes    int // of messages and stacks
	failures int
	name     int // bytes of one name
}

func (a *allowance) fit(f logbook.Failure) logbook.Failure {
	a.failures--
	f.Kind, f.Step = fitName(f.Kind, a.name), fitName(f.Step, a.name)
	if f.Kind == "" {
		f.Kind = logbook.FailureError
	}
	a.fitDetails(&f)
	f.Message, f.Stack = a.text(f.Message, maxMessage), a.text(f.Stack, maxStack)
	causes := f.Causes[:min(len(f.Causes), maxCauses)]
	f.Causes = nil
	for i := range causes {
		if a.failures == 0 || a.bytes == 0 {
			break
		}
		f.Causes = append(f.Causes, a.fit(causes[i]))
	}
	return f
}

// fitDetails drops invalid or oversized details, and notes that in the failure. It also drops
// details for which other failures leave no room.
func (a *allowance) fitDetails(f *logbook.Failure) {
	err := logbook.Limits{Name: a.name, Value: maxDetails}.CheckDetails("failure details", f.Details)
	if size := f.Details.Size(); err == nil && size > maxDetails {
		err = &logbook.LimitError{Field: "failure details", Limit: maxDetails, Size: int64(size), Unit: "bytes"}
	}
	if err != nil {
		const most = 1 << 10 // so that the reason has room in the message
		f.Message = fmt.Sprintf("%s; its details are omitted: %v", clip(f.Message, maxMessage-most), err)
	}
	room := func() int { return f.Details.Size() + detailRoom*len(f.Details) }
	if err != nil || room() > a.bytes {
		f.Details = nil
	}
	a.bytes -= room()
}

func (a *allowance) text(text string, limit int) string {
	text = clip(text, min(limit, a.bytes))
	a.bytes -= len(text)
	return text
}

// fitName makes a valid name of any text: see logbook.Limits.CheckName.
func fitName(name string, limit int) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, name)
	return clip(name, limit)
}

// clip cuts a text to a number of bytes, and replaces invalid UTF-8, which the wire refuses.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) > utf8.UTFMax*limit {
		text = text[:utf8.UTFMax*limit] // the part that is cut off is not checked
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	switch {
	case len(text) <= limit:
		return text
	case limit < len(ellipsis):
		return ""
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
