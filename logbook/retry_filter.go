package logbook

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RetryFilter selects the failures after which a step, the flow of a retry, or a job is tried again. Each entry is a
// kind of failure, or a number: an exit status, or another Failure.Code. An entry matches only the failure's own kind
// and code. It ignores causes: an attempt that runs at its deadline fails with a cause, but an attempt that starts
// after the deadline fails without one. Signals and timeouts have no exit status: select them by their kinds,
// FailureSignal and FailureTimeout.
type RetryFilter struct {
	Only  []string // retried failures; empty: all
	Never []string // failures that are not retried, even if Only matches them too
}

const (
	// MaxRetryEntries bounds each list, and MaxRetryBytes the bytes of its entries. A job is
	// stored with its filter, and is written often.
	MaxRetryEntries = 16
	MaxRetryBytes   = 1 << 10
)

// Check checks both lists. ErrInvalid or ErrLimit, with a field that starts with the given owner
// of the filter.
func (r RetryFilter) Check(l Limits, owner string) error {
	if err := CheckRetryEntries(l, owner+" only", r.Only); err != nil {
		return err
	}
	return CheckRetryEntries(l, owner+" never", r.Never)
}

// CheckRetryEntries checks one list of a RetryFilter. It refuses entries that match no failure.
// ErrInvalid or ErrLimit, with the given field.
func CheckRetryEntries(l Limits, field string, entries []string) error {
	if len(entries) > MaxRetryEntries {
		return &LimitError{Field: field, Limit: MaxRetryEntries, Size: int64(len(entries)), Unit: "entries"}
	}
	size := 0
	for i, entry := range entries {
		if err := l.CheckName(field, entry); err != nil {
			return err
		}
		_, isCode := code(entry)
		switch {
		case slices.Contains(entries[:i], entry):
			return &InvalidError{field, fmt.Sprintf("%q is listed twice", entry)}
		case !isCode && isNumber(entry):
			return &InvalidError{field, fmt.Sprintf("%s is not an exit status; write a whole number from 1, such as 75", entry)}
		case strings.ContainsAny(entry, "* "):
			return &InvalidError{field, fmt.Sprintf("%q is neither a kind nor an exit status; list each kind, without spaces and *", entry)}
		}
		size += len(entry)
	}
	if size > MaxRetryBytes {
		return &LimitError{Field: field, Limit: MaxRetryBytes, Size: int64(size), Unit: "bytes"}
	}
	return nil
}

// Allows reports whether the filter allows another attempt after a failure. It ignores
// Failure.Permanent.
func (r RetryFilter) Allows(f *Failure) bool {
	return f == nil || (len(r.Only) == 0 || slices.ContainsFunc(r.Only, f.isSelected)) && !slices.ContainsFunc(r.Never, f.isSelected)
}

// Notes describe the filter in short phrases for display; none if it has no entries.
func (r RetryFilter) Notes() (notes []string) {
	if len(r.Only) > 0 {
		notes = append(notes, "only after "+strings.Join(r.Only, " or "))
	}
	if len(r.Never) > 0 {
		notes = append(notes, "never after "+strings.Join(r.Never, " or "))
	}
	return notes
}

// isSelected reports whether an entry of a RetryFilter matches the failure.
func (f *Failure) isSelected(entry string) bool {
	if number, ok := code(entry); ok && f.Kind != FailureSignal && f.Kind != FailureTimeout {
		return f.Code == number
	}
	return f.Kind == entry
}

// code returns the number of an entry that is one.
func code(entry string) (number int, ok bool) {
	parsed, err := strconv.ParseInt(entry, 10, 32)
	return int(parsed), err == nil && parsed > 0 && strconv.FormatInt(parsed, 10) == entry
}

// isNumber reports whether an entry is a number in any form, such as -1 or 6.5.
func isNumber(entry string) bool {
	_, err := strconv.ParseFloat(entry, 64)
	return err == nil && strings.ContainsAny(entry[:1], "+-.0123456789")
}
