package jobs

import "time"

// Cause is the one reason why a job does not run now.
type Cause string

// The causes, in the order in which they are looked for: the first that holds
// is the answer.
const (
	CauseFinished    Cause = "finished"     // it has been done, one way or another
	CauseTrashed     Cause = "trashed"      // it was put aside
	CauseClaimed     Cause = "claimed"      // somebody has it: it does run
	CauseSuspect     Cause = "suspect"      // somebody has it whose session is silent
	CauseOverdue     Cause = "overdue"      // its deadline has passed, and it is about to be cancelled
	CauseSuspended   Cause = "suspended"    // a person has stopped it
	CauseParked      Cause = "parked"       // its last attempt has failed, and a person is to say what now
	CauseHeld        Cause = "held"         // nobody has released it yet
	CauseDelayed     Cause = "delayed"      // its time has not come
	CauseCooling     Cause = "cooling"      // it was just let go of
	CauseBoardPaused Cause = "board_paused" // nobody can claim from its board
	CauseReserved    Cause = "reserved"     // only the conductors of one name can claim it yet
	CauseNoConductor Cause = "no_conductor" // no live conductor takes its kind from its board
	CauseLabels      Cause = "labels"       // none of those offers all the labels that it wants
	CauseDrained     Cause = "drained"      // all of those are drained
	CauseFull        Cause = "full"         // all of those have as many jobs as they take
	CauseBehind      Cause = "behind"       // others come first
	CauseReady       Cause = "ready"        // nothing: it is about to be claimed
)

// Causes are all causes, in their order.
var Causes = []Cause{
	CauseFinished, CauseTrashed, CauseClaimed, CauseSuspect, CauseOverdue, CauseSuspended, CauseParked, CauseHeld, CauseDelayed, CauseCooling,
	CauseBoardPaused, CauseReserved, CauseNoConductor, CauseLabels, CauseDrained, CauseFull, CauseBehind, CauseReady,
}

// Explanation is why a job does not run now, and what would change that.
type Explanation struct {
	Job    JobID
	State  State
	Cause  Cause
	Text   string    // one sentence
	Until  time.Time // when the cause ends by itself, if that is known
	Remedy Remedy    // zero: nothing but to wait
}

// Remedy is what would help a job that does not run. Only the command line
// knows which command that is.
type Remedy struct {
	Verb   RemedyVerb
	Target string // what it is done to, as RemedyVerb says
	Value  string // of RemedyReprioritise: the priority; of RemedyStartWorker: the labels, by commas
	Name   string // of RemedyStartWorker: the name that the worker must have; empty: any
}

// RemedyVerb is what a remedy does.
type RemedyVerb string

// The verbs, with their targets.
const (
	RemedyRetry        RemedyVerb = "retry_job"         // a job
	RemedyCancel       RemedyVerb = "cancel_job"        // a job
	RemedyResume       RemedyVerb = "resume_job"        // a job
	RemedyRelease      RemedyVerb = "release_job"       // a job
	RemedyMakeDue      RemedyVerb = "make_job_due"      // a job
	RemedyReprioritise RemedyVerb = "reprioritise_job"  // a job
	RemedyShowFlow     RemedyVerb = "show_flow"         // a flow
	RemedyRerunFlow    RemedyVerb = "rerun_flow"        // a flow
	RemedyResumeBoard  RemedyVerb = "resume_board"      // a board
	RemedyUndrain      RemedyVerb = "undrain_conductor" // the name of conductors
	RemedyStart        RemedyVerb = "start_conductor"   // none
	RemedyOfferLabels  RemedyVerb = "offer_labels"      // none
	RemedyAddCapacity  RemedyVerb = "add_capacity"      // none
	RemedyStartWorker  RemedyVerb = "start_worker"      // a type of step
)

// RemedyVerbs are all verbs.
var RemedyVerbs = []RemedyVerb{
	RemedyRetry, RemedyCancel, RemedyResume, RemedyRelease, RemedyMakeDue, RemedyReprioritise, RemedyShowFlow, RemedyRerunFlow,
	RemedyResumeBoard, RemedyUndrain, RemedyStart, RemedyOfferLabels, RemedyAddCapacity, RemedyStartWorker,
}
