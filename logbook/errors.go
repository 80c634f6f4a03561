package logbook

import (
	"errors"
	"fmt"
)

// The errors of a store, for errors.Is. The API carries them as stable codes.
var (
	// ErrNotFound: the object does not exist, or no longer exists.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the same id has other content, or the object is in a state that does not
	// allow the call.
	ErrConflict = errors.New("conflict")
	// ErrFenced: the token of the write is not the job's current token. The sender has lost
	// the claim and must stop.
	ErrFenced = errors.New("fenced: this token holds no claim")
	// ErrSignalled: the update ends a wait without the signal that the wait has taken. It wraps
	// ErrConflict. Load the flow again.
	ErrSignalled = fmt.Errorf("%w: the step's wait has taken a signal", ErrConflict)
	// ErrInvalid: the input is wrong. *InvalidError has the field.
	ErrInvalid = errors.New("invalid")
	// ErrLimit: the input is too large. *LimitError has the field, the limit and the size.
	ErrLimit = errors.New("over the limit")
	// ErrNotAllowed: the caller lacks the permission.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnavailable: the call had no effect, because no leader could take it. Try again
	// later.
	ErrUnavailable = errors.New("unavailable: it did not happen")
	// ErrUncertain: it is unknown whether the call had its effect. Repeat the call with the
	// same ids: a repeat is harmless, and its result is certain.
	ErrUncertain = errors.New("uncertain: it may have happened")
)

// InvalidError is an ErrInvalid with the wrong field and the reason.
type InvalidError struct {
	Field  string
	Reason string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s is invalid: %s", e.Field, e.Reason) }

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// LimitError is an ErrLimit with the field, its limit and its size.
type LimitError struct {
	Field string
	Limit int64
	Size  int64
	Unit  string // "bytes", "steps", …
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s is too large: %d %s, and the limit is %d", e.Field, e.Size, e.Unit, e.Limit)
}

// Is makes errors.Is(err, ErrLimit) hold.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }
