package access

import (
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Limits of the audit log, equal on all nodes. Beyond them, the oldest records are removed.
const (
	MaxRecords     = 100_000
	MaxRecordBytes = 64 << 20
	MaxRecordAge   = 400 * 24 * time.Hour
)

// Record is the record of a principal's action: a change of the work of others, of boards, of the
// cluster or of principals. Posting, claiming and ending jobs are events, not records.
type Record struct {
	Position  jobs.Position // index of the log entry, and number of the record within the entry
	At        time.Time
	Principal string
	From      string // the host that called, or "socket"
	Verb      string // verb of the command, or name of the call
	Target    string // the objects: NAME=VALUE, separated by spaces
	Change    string // the arguments, such as grants, limits and the reason: NAME=VALUE, separated by spaces
	Error     string // code of the refusal; empty: done, or started
}

// RecordQuery selects records. Its zero value selects all records.
type RecordQuery struct {
	Principal string
	Verb      string
	Target    string    // a part of the target
	From, To  time.Time // To is exclusive; zero: any
	After     string    // Page.Next of the previous page; empty: first page
	Limit     int       // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Selects reports whether a query selects a record.
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

// Refusal counts equal calls that a node has refused.
type Refusal struct {
	Node      string
	Principal string // empty: unknown caller
	From      string // the host that called, or "socket"
	Verb      string // verb of the command, or name of the call
	Error     string // text of the latest refusal
	Count     uint64
	Last      time.Time
}
