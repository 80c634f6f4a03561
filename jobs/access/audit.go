package access

import (
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Bounds of the audit log, which are the same on all nodes: the oldest records go first.
const (
	MaxRecords     = 100_000
	MaxRecordBytes = 64 << 20
	MaxRecordAge   = 400 * 24 * time.Hour
)

// Record is a deed of a principal: a change of others' work, of boards, of the cluster or of
// principals. What happens to jobs that are posted, claimed and ended stands in the events.
type Record struct {
	Position  jobs.Position // of the log entry, and its number among the records of that
	At        time.Time
	Principal string
	From      string // the host that called, or "socket"
	Verb      string // of a command, or the name of a call
	Target    string // what it was done to: NAME=VALUE, separated by spaces
	Change    string // what was given or asked for, such as grants, limits and the reason: NAME=VALUE, separated by spaces
	Error     string // the code of the error with which it was refused; empty: it was done, or begun
}

// RecordQuery selects records. What is unset does not matter.
type RecordQuery struct {
	Principal string
	Verb      string
	Target    string // a part of it
	From, To  time.Time
	After     string // the next of the page before
	Limit     int    // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Selects reports whether a query asks for a record.
func (q *RecordQuery) Selects(r *Record) bool {
	return (q.Principal == "" || q.Principal == r.Principal) && (q.Verb == "" || q.Verb == r.Verb) &&
		strings.Contains(r.Target, q.Target) && !r.At.Before(q.From) && (q.To.IsZero() || r.At.Before(q.To))
}

// CheckRecordQuery checks a query.
func CheckRecordQuery(q *RecordQuery) error {
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return &logbook.InvalidError{Field: "query to", Reason: "is not after from"}
	}
	return nil
}

// Refusal is what a node has refused, alike calls together.
type Refusal struct {
	Node      string
	Principal string // empty: the caller was not known
	From      string // the host that called, or "socket"
	Verb      string // of a command, or the name of a call
	Error     string // the text of the last one
	Count     uint64
	Last      time.Time
}
