package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Historian reads the failed attempts of jobs, retries failed jobs, and removes finished
// jobs.
//
//	the job    retry                                              purge
//	─────────  ─────────────────────────────────────────────────  ───────────
//	trashed    restored: back on its board                        removed
//	completed  reverted or failed: restored if it has no flow,    removed
//	           otherwise its flow runs again; else ErrConflict
//	parked     released, or its flow runs again                   ErrConflict
//	cooling    ErrConflict: see Controller.RetryNow               ErrConflict
//	waiting    ErrConflict: see Controller.RetryNow               ErrConflict
//	any other  nothing to do                                      ErrConflict
type Historian interface {
	// Retry starts a job again, according to its state; see the table. ErrNotFound.
	//
	// Restoring a job resets its crashes, failures and attempts, removes outcome, reason and
	// failure, and ends a suspension. The not-before time and a hold apply again. A deadline
	// that has passed is removed. The job's flow continues from its record: recorded results
	// are not repeated, and an undo continues. ErrLimit if the board has no room for the job,
	// unless its flow only continues an undo. ErrConflict if the flow no longer exists, if it
	// belongs to another unfinished job, or if another unfinished job of the board has the
	// key: see KeyTaken.
	//
	// A release is a Change, with the errors of Change. Running a flow again is an
	// intervention logbook.InterveneRerun, with its errors: the whole flow runs again, and
	// nothing is undone first.
	//
	// ErrConflict also if the job succeeded or was cancelled, or if its flow has a later job.
	// Post such a job again with Job.Again.
	Retry(ctx context.Context, command JobCommand) error

	// Purge removes a finished job at once, as its retention would later. The book is removed
	// with its last job. ErrNotFound, also for a repeat.
	Purge(ctx context.Context, command JobCommand) error

	// Errors reads a page of failed attempts at jobs, the latest first. The latest
	// MaxJobErrors errors of a job are kept, as long as the job.
	Errors(ctx context.Context, query ErrorQuery) (Page[JobError], error)

	// Bulk applies one action to each job of one page of a list, or only counts the jobs.
	// Each job has its own result: a refusal does not undo the other changes. A repeat finds
	// only the remaining jobs. ErrInvalid without an action, or if no state of the query
	// allows the action.
	Bulk(ctx context.Context, bulk Bulk) (BulkReport, error)
}

// MaxJobErrors bounds the kept errors of a job, so that a job that fails for days does not
// fill the disk.
const MaxJobErrors = 50

// How is the way in which an attempt at a job failed.
type How string

// The ways in which an attempt fails.
const (
	HowAbandoned How = "abandoned" // the owner abandoned the job with a failure
	HowCrashed   How = "crashed"   // the owner was lost
	HowTrashed   How = "trashed"   // the owner trashed the job
	HowReverted  How = "reverted"  // the flow failed, and was undone
	HowFailed    How = "failed"    // the flow failed, and could not be undone
)

// Hows are all values of How.
var Hows = []How{HowAbandoned, HowCrashed, HowTrashed, HowReverted, HowFailed}

// JobError is a failed attempt at a job. The output of the failed step is in the flow, at
// the Step of the failure.
type JobError struct {
	Position Position // position of the attempt's event
	Job      JobID
	Board    string
	Name     string // name of the job
	Kind     string // kind of the job
	Key      string // key of the job
	Flow     logbook.FlowID
	At       time.Time
	How      How
	Owner    string
	Token    Token
	Reason   string
	Failure  logbook.Failure
	Abridged bool // the failure was shortened because it was too long
}

// ErrorQuery selects errors. Its zero value selects all errors. Job, Key, Type, Kind, Board
// and the times have an index. The query uses the index of the first of these fields that is
// set, in this order. All other fields only filter.
type ErrorQuery struct {
	Job      JobID
	Board    string
	Key      string
	Kind     string    // kind of the job
	Type     string    // kind of the failure
	Code     *int      // code of the failure
	How      How       // empty: any
	From, To time.Time // To is exclusive; zero: any
	After    string    // Page.Next of the previous page; empty: first page
	Limit    int       // 0 or over logbook.MaxPage: logbook.MaxPage
}

// CheckErrorQuery checks a query for errors.
func CheckErrorQuery(q *ErrorQuery) error {
	if q.How != "" && !slices.Contains(Hows, q.How) {
		return &logbook.InvalidError{Field: "query how", Reason: fmt.Sprintf("%.64q is not one of %v", q.How, Hows)}
	}
	return nil
}
