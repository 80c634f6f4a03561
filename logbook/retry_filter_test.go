package logbook_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/conductord/conductord/logbook"
)

// TestRetryFilterAllows: failures that are retried.
func TestRetryFilterAllows(t *testing.T) {
	failure := func(kind string, code int, causes ...logbook.Failure) *logbook.Failure {
		return &logbook.Failure{Kind: kind, Code: code, Causes: causes}
	}
	busy, spoilt := failure(logbook.FailureExit, 75), failure("spoilt", 0)
	list := func(entries ...string) []string { return entries }
	for _, row := range []struct {
		name        string
		only, never []string
		failure     *logbook.Failure
		want        bool
	}{
		{"no entries", nil, nil, busy, true},
		{"no failure", list("timeout"), list("timeout"), nil, true},
		{"only: its kind", list("timeout", "spoilt"), nil, spoilt, true},
		{"only: another kind", list("timeout"), nil, spoilt, false},
		{"only: its status", list("74", "75"), nil, busy, true},
		{"only: another status", list("7"), nil, busy, false},
		{"only: the kind of a cause", list("spoilt"), nil, failure("error", 0, *spoilt), false},
		{"never: its kind", nil, list("spoilt"), spoilt, false},
		{"never: another kind", nil, list("timeout"), spoilt, true},
		{"never: part of its kind", nil, list("spoil", "spoilt.milk"), spoilt, true},
		{"never: its status", nil, list("75"), busy, false},
		{"never: the status of another kind", nil, list("75"), failure("bank.closed", 75), false},
		{"never: the status of a cause", nil, list("75"), failure("error", 0, *failure("error", 1, *busy)), true},
		{"never: the kind of a cause", nil, list("spoilt"), failure("timeout", 0, *spoilt), true},
		{"never: a status, and a timeout with this code", nil, list("15"), failure(logbook.FailureTimeout, 15), true},
		{"never: a status, and a signal of this number", nil, list("9"), failure(logbook.FailureSignal, 9), true},
		{"never: signals", nil, list("handler.signal"), failure(logbook.FailureSignal, 9), false},
		{"both", list(logbook.FailureExit), list("75"), busy, false},
		{"both, another status", list(logbook.FailureExit), list("75"), failure(logbook.FailureExit, 1), true},
		{"a permanent failure", nil, nil, &logbook.Failure{Kind: "k", Permanent: true}, true},
	} {
		if got := (logbook.RetryFilter{Only: row.only, Never: row.never}).Allows(row.failure); got != row.want {
			t.Errorf("%s: allowed %t, want %t", row.name, got, row.want)
		}
	}
}

// TestRetryFilterCheck: the limits of entries, and entries that match no failure.
func TestRetryFilterCheck(t *testing.T) {
	several := func(n, length int) (entries []string) {
		for i := range n {
			entries = append(entries, fmt.Sprintf("%0*d", length, i)+"k")
		}
		return entries
	}
	for _, row := range []struct {
		name    string
		entries []string
		want    error
		message string
	}{
		{"nothing", nil, nil, ""},
		{"kinds and statuses", []string{"card.declined", "65", "1", "2147483647", "5xx", "nan", "größe"}, nil, ""},
		{"as many as can be", several(16, 63), nil, ""},
		{"too many", several(17, 3), logbook.ErrLimit, "retry never is too large: 17 entries, and the limit is 16"},
		{"too many bytes", several(16, 64), logbook.ErrLimit, "retry never is too large: 1040 bytes, and the limit is 1024"},
		{"too long", several(1, 255), logbook.ErrLimit, "retry never is too large: 256 bytes, and the limit is 255"},
		{"empty", []string{""}, logbook.ErrInvalid, "retry never is invalid: empty"},
		{"twice", []string{"a", "b", "a"}, logbook.ErrInvalid, `"a" is listed twice`},
		{"success", []string{"0"}, logbook.ErrInvalid, "0 is no exit status"},
		{"negative", []string{"-1"}, logbook.ErrInvalid, "-1 is no exit status"},
		{"with a zero", []string{"065"}, logbook.ErrInvalid, "065 is no exit status"},
		{"with a sign", []string{"+65"}, logbook.ErrInvalid, "+65 is no exit status"},
		{"half a status", []string{"6.5"}, logbook.ErrInvalid, "6.5 is no exit status"},
		{"too great", []string{"2147483648"}, logbook.ErrInvalid, "2147483648 is no exit status"},
		{"a pattern", []string{"card.*"}, logbook.ErrInvalid, `"card.*" is neither a kind nor an exit status`},
		{"words", []string{"status 65"}, logbook.ErrInvalid, `"status 65" is neither a kind nor an exit status`},
	} {
		err := logbook.RetryFilter{Only: []string{"a"}, Never: row.entries}.Check(logbook.MaxLimits, "retry")
		if !errors.Is(err, row.want) || err != nil && !strings.Contains(err.Error(), row.message) {
			t.Errorf("%s: %v, want %v: %s", row.name, err, row.want, row.message)
		}
		if other := (logbook.RetryFilter{Only: row.entries}).Check(logbook.MaxLimits, "retry"); (other == nil) != (err == nil) {
			t.Errorf("%s: only is checked as %v, never as %v", row.name, other, err)
		}
	}
}
