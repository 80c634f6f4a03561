package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Historian looks back at what has become of jobs, and puts right what has
// gone wrong with them.
//
//	the job    retry                                                   purge
//	─────────  ──────────────────────────────────────────────────────  ───────────
//	trashed    restored: back on its board, as if just posted          removed
//	completed  if it was reverted or failed: without a flow restored,  removed
//	           with one that is rerun; or ErrConflict
//	parked     released, or its flow rerun                             ErrConflict
//	any other  nothing to do                                           ErrConflict
type Historian interface {
	// Retry has a job begin again, in the way that its state needs.
	//
	// Restored, crashes and failures are counted from zero; outcome, reason and evidence
	// are removed, and a suspension is lifted. The not-before time and a hold count again.
	// The flow goes on where it stands: recorded results are not done again, and a flow that
	// was being undone is undone further. A deadline that has passed is removed. ErrLimit if
	// the board has no room for the job, unless its flow is undone further. ErrConflict if the
	// flow is gone, or belongs to another unfinished job, or if another unfinished job of the
	// board has the key: see KeyTaken.
	//
	// A release is a Change, and a rerun an intervention logbook.InterveneRerun, with their
	// errors: it runs all of the flow again, and undoes nothing first. ErrConflict also if the
	// job has succeeded or was cancelled, or if another job of its flow came later: post such
	// a job again, as Job.Again makes it. ErrNotFound.
	Retry(ctx context.Context, command JobCommand) error

	// Purge removes a finished job at once, as its retention would later: its
	// book goes with the last job that refers to it. ErrNotFound, also to a
	// repeat.
	Purge(ctx context.Context, command JobCommand) error

	// Errors reads a page of the attempts at jobs that did not succeed, the
	// latest first. The latest MaxJobErrors of a job are kept, as long as the job
	// itself is.
	Errors(ctx context.Context, query ErrorQuery) (Page[JobError], error)

	// Bulk does the same to each job of one page of a listing, or counts them.
	// Each job is dealt with for itself; what was done to some stays done if
	// others are refused. A repeat finds those left that have not been dealt with
	// yet. ErrInvalid without an action, or if it means nothing for any of the
	// states that the query names.
	Bulk(ctx context.Context, bulk Bulk) (BulkReport, error)
}

// MaxJobErrors is how many errors of a job are kept: more of the same say
// nothing new, and a job that fails for days must not fill the disk.
const MaxJobErrors = 50

// How says how an attempt at a job ended that did not succeed.
type How string

// The ways in which an attempt does not succeed.
const (
	HowAbandoned How = "abandoned" // its owner gave it back with a failure
	HowCrashed   How = "crashed"   // its owner vanished
	HowTrashed   How = "trashed"   // its owner put it aside
	HowReverted  How = "reverted"  // its flow has failed, and was undone
	HowFailed    How = "failed"    // its flow has failed, and could not be undone
)

// Hows are all of them.
var Hows = []How{HowAbandoned, HowCrashed, HowTrashed, HowReverted, HowFailed}

// JobError is an attempt at a job that did not succeed. The output of the step that
// failed is in the flow, at the Step of the failure.
type JobError struct {
	Position Position // of the event that told of it
	Job      JobID
	Board    string
	Name     string // this and the next two are the job's
	Kind     string
	Key      string
	Flow     logbook.FlowID
	At       time.Time
	How      How
	Owner    string
	Token    Token
	Reason   string
	Failure  logbook.Failure
	Abridged bool // the failure was too long to be kept whole
}

// ErrorQuery selects errors. Its zero value selects all. An index leads to
// those of a job, of a key, of a type, of a kind, of a board, and of a time;
// where several are asked for, the first of these counts.
type ErrorQuery struct {
	Job      JobID
	Board    string
	Key      string
	Kind     string    // of the job
	Type     string    // the failure's kind
	Code     *int      // the failure's
	How      How       // empty: any
	From, To time.Time // To itself is not included; zero: any
	After    string    // Page.Next of the page before; empty: from the latest on
	Limit    int       // 0 or over logbook.MaxPage: logbook.MaxPage
}

// CheckErrorQuery checks what a listing asks for.
func CheckErrorQuery(q *ErrorQuery) error {
	if q.How != "" && !slices.Contains(Hows, q.How) {
		return &logbook.InvalidError{Field: "query how", Reason: fmt.Sprintf("%.64q is none of %v", q.How, Hows)}
	}
	return nil
}
