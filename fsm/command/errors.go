package command

import (
	"errors"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// The codes of Error: stable words, which clients of any language and any
// version can rely on. A code is never renamed and never reused.
const (
	CodeNotFound         = "not_found"
	CodeConflict         = "conflict"
	CodeUnclaimable      = "unclaimable"
	CodeJobOver          = "job_over"
	CodeDecided          = "decided"
	CodeSignalsFull      = "signals_full"
	CodeSignalled        = "signalled"
	CodeNobodyWaits      = "nobody_waits"
	CodePublicationsFull = "publications_full"
	CodeFenced           = "fenced"
	CodeInvalid          = "invalid"
	CodeOverLimit        = "over_limit"
	CodeNotAllowed       = "not_allowed"
	CodeUnavailable      = "unavailable"
	CodeOverloaded       = "overloaded"
	CodeUncertain        = "uncertain"
	CodeSessionExpired   = "session_expired"
	CodeCompacted        = "compacted"
	CodeWrongCluster     = "wrong_cluster"
	// CodeInternal is for all other errors, which callers need not distinguish. It does not
	// show whether the call happened.
	CodeInternal = "internal"
)

// codes is the table of codes and sentinels. The first row that matches an error is its code. Uncertain is first,
// because it must not be mistaken for another code. If an error matches two rows, the more specific row is first: for
// example, unclaimable is before conflict, and overloaded is before unavailable.
var codes = []struct {
	code     string
	sentinel error
}{
	{CodeUncertain, jobs.ErrUncertain},
	{CodeOverloaded, jobs.ErrOverloaded},
	{CodeUnavailable, jobs.ErrUnavailable},
	{CodeFenced, jobs.ErrFenced},
	{CodeUnclaimable, jobs.ErrUnclaimable},
	{CodeJobOver, jobs.ErrJobOver},
	{CodeDecided, jobs.ErrDecided},
	{CodeSignalled, logbook.ErrSignalled},
	{CodeSignalsFull, jobs.ErrSignalsFull},
	{CodeNobodyWaits, jobs.ErrNobodyWaits},
	{CodePublicationsFull, jobs.ErrPublicationsFull},
	{CodeSessionExpired, jobs.ErrSessionExpired},
	{CodeCompacted, jobs.ErrCompacted},
	{CodeWrongCluster, jobs.ErrWrongCluster},
	{CodeNotAllowed, jobs.ErrNotAllowed},
	{CodeNotFound, jobs.ErrNotFound},
	{CodeOverLimit, jobs.ErrLimit},
	{CodeInvalid, jobs.ErrInvalid},
	{CodeConflict, jobs.ErrConflict},
}

// Codes are all codes of Error.
func Codes() []string {
	all := []string{CodeInternal}
	for _, row := range codes {
		all = append(all, row.code)
	}
	return all
}

// ErrorToProto converts an error; nil stays nil. The caller receives the whole text, so the text
// must not contain anything that the caller may not see.
func ErrorToProto(err error) *v1.Error {
	if err == nil {
		return nil
	}
	message := &v1.Error{Code: CodeInternal, Message: text(err.Error())}
	for _, row := range codes {
		if errors.Is(err, row.sentinel) {
			message.Code = row.code
			break
		}
	}
	var invalid *logbook.InvalidError
	var limit *logbook.LimitError
	var compacted *jobs.CompactedError
	switch {
	case message.Code == CodeInvalid && errors.As(err, &invalid):
		message.Field = text(invalid.Field)
	case message.Code == CodeOverLimit && errors.As(err, &limit):
		message.Field, message.Limit, message.Size, message.Unit = text(limit.Field), limit.Limit, limit.Size, limit.Unit
	case message.Code == CodeCompacted && errors.As(err, &compacted):
		message.Since = PositionToProto(compacted.Since)
	}
	return message
}

// ErrorFromProto converts an error; nil stays nil. The result has the text of the original
// error, and matches the same sentinel; errors.As finds *InvalidError, *LimitError and
// *CompactedError in it. A code that this program does not know, from a newer one, matches no
// sentinel, like internal.
func ErrorFromProto(message *v1.Error) error {
	if message == nil {
		return nil
	}
	return &answer{text: message.GetMessage(), kind: kindOf(message)}
}

// answer is an error from another process: its text, and its kind for errors.Is.
type answer struct {
	text string
	kind error // nil: a kind that callers need not distinguish
}

func (a *answer) Error() string {
	switch {
	case a.text != "":
		return a.text
	case a.kind != nil:
		return a.kind.Error()
	}
	return "internal error of the server, which says no more"
}

func (a *answer) Unwrap() error { return a.kind }

func kindOf(message *v1.Error) error {
	switch {
	case message.GetCode() == CodeInvalid && message.GetField() != "":
		return &logbook.InvalidError{Field: message.GetField(), Reason: reasonOf(message)}
	case message.GetCode() == CodeOverLimit && message.GetField() != "":
		return &logbook.LimitError{
			Field: message.GetField(), Limit: message.GetLimit(), Size: message.GetSize(), Unit: message.GetUnit(),
		}
	}
	if message.GetCode() == CodeCompacted && message.GetSince() != nil {
		return &jobs.CompactedError{Since: PositionFromProto(message.GetSince())}
	}
	for _, row := range codes {
		if row.code == message.GetCode() {
			return row.sentinel
		}
	}
	return nil
}

// reasonOf finds the reason of an InvalidError, which is at the end of a wrapped error's text.
// If it is not there, the whole text is the reason.
func reasonOf(message *v1.Error) string {
	_, reason, found := strings.Cut(message.GetMessage(), message.GetField()+" is invalid: ")
	if !found {
		return message.GetMessage()
	}
	return reason
}
