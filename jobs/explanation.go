package jobs

import "time"

// Cause is the one reason why a job does not run now.
type Cause string

// The causes, in the order in which Explain tests them. The first matching cause is the
// result.
const (
	CauseFinished    Cause = "finished"     // the job is completed
	CauseTrashed     Cause = "trashed"      // the job is trashed
	CauseClaimed     Cause = "claimed"      // the job has an owner, so it runs
	CauseSuspect     Cause = "suspect"      // the job has an owner, but the owner's session is silent
	CauseOverdue     Cause = "overdue"      // the deadline has passed, and the board is about to cancel the job
	CauseSuspended   Cause = "suspended"    // an operator suspended the job
	CauseParked      Cause = "parked"       // the last attempt failed, and an operator must decide
	CauseHeld        Cause = "held"         // no operator has released the job yet
	CauseDelayed     Cause = "delayed"      // the not-before time is in the future
	CauseCooling     Cause = "cooling"      // the job cools after a claim, or waits for its next attempt
	CauseWaiting     Cause = "waiting"      // the flow of the job waits: see StateWaiting
	CauseBoardPaused Cause = "board_paused" // the board is paused
	CauseReserved    Cause = "reserved"     // only the conductors of one name can claim the job now
	CauseNoConductor Cause = "no_conductor" // no live conductor takes the job's kind from its board
	CauseLabels      Cause = "labels"       // no such conductor offers all labels of the job
	CauseDrained     Cause = "drained"      // all such conductors are drained
	CauseFull        Cause = "full"         // all such conductors have as many jobs as they take
	CauseBehind      Cause = "behind"       // other jobs come first
	CauseReady       Cause = "ready"        // nothing prevents a claim
)

// Causes are all causes, in the order of evaluation.
var Causes = []Cause{
	CauseFinished, CauseTrashed, CauseClaimed, CauseSuspect, CauseOverdue, CauseSuspended, CauseParked, CauseHeld, CauseDelayed, CauseCooling, CauseWaiting,
	CauseBoardPaused, CauseReserved, CauseNoConductor, CauseLabels, CauseDrained, CauseFull, CauseBehind, CauseReady,
}

// Explanation is the reason why a job does not run now, with a remedy.
type Explanation struct {
	Job    JobID
	State  State
	Cause  Cause
	Text   string    // one sentence
	Until  time.Time // when the cause ends without action; zero: unknown
	Remedy Remedy    // zero: only waiting helps
}

// Remedy is an operator's action that helps a job that does not run. The command line
// renders it as a command.
type Remedy struct {
	Verb   RemedyVerb
	Target string // the object of the verb; see RemedyVerb
	Value  string // for RemedyReprioritise: the priority; for RemedyStartWorker: the labels, separated by commas
	Name   string // only for RemedyStartWorker: the required name of the worker; empty: any
}

// RemedyVerb is the verb of a remedy.
type RemedyVerb string

// The verbs, with their targets.
const (
	RemedyRetry        RemedyVerb = "retry_job"         // a job
	RemedyResume       RemedyVerb = "resume_job"        // a job
	RemedyRelease      RemedyVerb = "release_job"       // a job
	RemedyRetryNow     RemedyVerb = "retry_now"         // a job
	RemedyMakeDue      RemedyVerb = "make_job_due"      // a job
	RemedyReprioritise RemedyVerb = "reprioritise_job"  // a job
	RemedyShowFlow     RemedyVerb = "show_flow"         // a flow
	RemedyRetryRevert  RemedyVerb = "retry_revert"      // a flow
	RemedyRerunFlow    RemedyVerb = "rerun_flow"        // a flow
	RemedyRunFlow      RemedyVerb = "run_flow"          // none: post a flow instead of the job
	RemedyResumeBoard  RemedyVerb = "resume_board"      // a board
	RemedyUndrain      RemedyVerb = "undrain_conductor" // the name of conductors
	RemedyStart        RemedyVerb = "start_conductor"   // none
	RemedyOfferLabels  RemedyVerb = "offer_labels"      // none
	RemedyAddCapacity  RemedyVerb = "add_capacity"      // none
	RemedyStartWorker  RemedyVerb = "start_worker"      // a type of step
)

// RemedyVerbs are all verbs.
var RemedyVerbs = []RemedyVerb{
	RemedyRetry, RemedyResume, RemedyRelease, RemedyRetryNow, RemedyMakeDue, RemedyReprioritise, RemedyShowFlow, RemedyRetryRevert, RemedyRerunFlow,
	RemedyRunFlow, RemedyResumeBoard, RemedyUndrain, RemedyStart, RemedyOfferLabels, RemedyAddCapacity, RemedyStartWorker,
}
