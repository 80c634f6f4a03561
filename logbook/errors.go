package logbook

import (
	"errors"
	"fmt"
)

// The kinds of failure that a caller can tell apart, by errors.Is. They cross
// the wire as stable codes; package command keeps the table.
var (
	// ErrNotFound: what was named does not exist, or no longer does.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the same id has other content, or the thing is in
	// a state that does not allow the call.
	ErrConflict = errors.New("conflict")
	// ErrFenced: the write carries a token that is no longer the job's.
	// The sender has lost the claim and must stop.
	ErrFenced = errors.New("fenced: this token holds no claim")
	// ErrInvalid: the input is wrong; *InvalidError names the field.
	ErrInvalid = errors.New("invalid")
	// ErrLimit: the input is too large or too much; *LimitError names the
	// field, the limit and the size.
	ErrLimit = errors.New("over the limit")
	// ErrNotAllowed: the caller may not do this.
	ErrNotAllowed = errors.New("not allowed")
	// ErrUnavailable: it did not happen, because no leader could take it.
	// Try again later.
	ErrUnavailable = errors.New("unavailable: it did not happen")
	// ErrUncertain: it is unknown whether it happened. Repeating the same
	// call, with the same ids, is harmless and settles it.
	ErrUncertain = errors.New("uncertain: it may have happened")
)

// InvalidError says which field is wrong, and why. It is an ErrInvalid.
type InvalidError struct {
	Field  string
	Reason string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s is invalid: %s", e.Field, e.Reason) }

// Is makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// LimitError says which field is too large. It is an ErrLimit.
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
