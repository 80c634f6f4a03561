package jobs

import (
	"context"
	"time"

	"github.com/conductord/conductord/logbook"
)

// RequestKind is what a person has asked for.
type RequestKind string

// The kinds of request. Only a request to suspend, to cancel or to transfer stands on a
// job: a stop request. Of the others only events tell.
const (
	RequestSuspend   RequestKind = "suspend"   // stop where it is, until it is resumed
	RequestResume    RequestKind = "resume"    // go on
	RequestCancel    RequestKind = "cancel"    // never go on
	RequestTransfer  RequestKind = "transfer"  // hand it over to a conductor; it stands on a claimed job alone
	RequestChange    RequestKind = "change"    // a Change
	RequestIntervene RequestKind = "intervene" // carry out an intervention in the flow
	RequestRetry     RequestKind = "retry"     // see Historian
	RequestPurge     RequestKind = "purge"     // see Historian
)

// ByDeadline is the By of the request to cancel a job whose deadline has passed.
const ByDeadline = "deadline"

// StepsPolicy is what becomes of running steps when their job is stopped.
type StepsPolicy string

// The policies. Steps that are uninterruptible finish in any case, and so do steps that run
// at most once when their flow is suspended.
const (
	// StepsDefault is StepsInterrupt for a cancellation, and StepsFinish for a suspension.
	StepsDefault StepsPolicy = ""
	// StepsInterrupt ends them: their contexts end, handlers get SIGTERM, and SIGKILL after the
	// grace. A suspended flow executes them again when it goes on.
	StepsInterrupt StepsPolicy = "interrupt"
	// StepsFinish waits until they have ended by themselves.
	StepsFinish StepsPolicy = "finish"
)

// MaxGrace is the longest grace of interrupted steps.
const MaxGrace = time.Hour

// DefaultReservation is how long a transferred job is reserved: a conductor that waits for
// jobs claims it at once, and one that restarts within a few seconds. MaxReservation is the
// longest time: a conductor that does not come keeps the job from all others for so long.
const (
	DefaultReservation = 30 * time.Second
	MaxReservation     = 10 * time.Minute
)

// Reservation is the time in which only the conductors of a name can claim a job.
type Reservation struct {
	Conductor string
	Until     time.Time
}

// JobCommand is what a person wants done with a job, as Suspend, Resume, Cancel, Transfer,
// Retry and Purge take it.
type JobCommand struct {
	Job    JobID
	Revert bool   // Cancel only: undo what was done; otherwise the flow is left as it stands
	By     string // who, for people
	Reason string // one sentence, for people

	// Of Suspend and Cancel: what becomes of running steps, and how long interrupted ones may
	// take, at most MaxGrace. 0: flow.DefaultGrace.
	Steps StepsPolicy
	Grace time.Duration

	// Of Transfer: the name of the conductor, and how long only that one can claim the job
	// after its owner has let go of it, at most MaxReservation. 0: DefaultReservation.
	To     string
	Within time.Duration
}

// OperatorRequest is what a person has asked for. On a job it is a stop request, which
// outlives the job's end: it says who ended the job, and why.
type OperatorRequest struct {
	Kind   RequestKind
	Revert bool
	By     string
	Reason string
	At     time.Time
	Steps  StepsPolicy
	Grace  time.Duration // 0: flow.DefaultGrace
	To     string        // RequestTransfer: the name of the conductor
	Within time.Duration // RequestTransfer: how long the job is reserved then
}

// Interrupts reports whether a stop request ends running steps.
func (r *OperatorRequest) Interrupts() bool {
	return r.Steps == StepsInterrupt || r.Steps == StepsDefault && r.Kind == RequestCancel
}

// Controller steers jobs. A stop request does one part at once and leaves the other to
// the job's owner, depending on the state of the job:
//
//	             suspend            resume               cancel
//	───────────  ─────────────────  ───────────────────  ──────────────────────────────────────────────
//	held         suspended          nothing to do        completed, cancelled; or claimable to be undone
//	delayed      suspended          nothing to do        completed, cancelled; or claimable to be undone
//	claimable    suspended          nothing to do        completed, cancelled; or stays to be undone
//	cooling      suspended          nothing to do        completed, cancelled; or claimable to be undone,
//	                                                     but stays where its owner has vanished
//	claimed      the owner is told  it is lifted         the owner is told
//	suspended    nothing to do      as it was before     completed, cancelled; or claimable to be undone
//	completed    ErrConflict        ErrConflict          ErrConflict, but for a repeat
//	trashed      ErrConflict        ErrConflict          ErrConflict
//
// A job that its RetryPolicy has parked is held. If its flow could not be undone, a
// cancellation makes it completed with OutcomeFailed: the flow stays as it is, its
// interventions that nobody has carried out are taken back, and it cannot be released
// (ErrConflict). A parked job that is released has all its attempts again, and a
// reverted flow is run again.
//
// If a cancellation says Revert and the flow has begun, an unclaimed job becomes
// claimable, and its next owner undoes the flow. An owner suspends or reverts the flow,
// and then releases the job. If the owner dies, or abandons the job for another reason,
// the job goes where the stop request would have put it at once. If the owner claimed
// the job after the stop request, and waits before it goes on undoing, the job is
// cooling meanwhile. A job that ends by itself first keeps that end.
//
// A repeated stop request changes nothing, neither reason nor time. After another stop
// request it is a new one. A cancellation replaces a suspension, and a cancellation
// with another Revert. While the job is claimed, a request with other Steps or another
// Grace replaces one: so running steps can be interrupted after all. A cancelled job can be neither suspended nor resumed:
// ErrConflict. ErrNotFound.
//
// A change does this, by the state of the job:
//
//	           release               priority           not before
//	─────────  ────────────────────  ─────────────────  ─────────────────────────────────────────
//	held       delayed or claimable  taken over         taken over
//	delayed    nothing to do         taken over         delayed, or claimable if it is due
//	claimable  nothing to do         moves to its place delayed, or claimable if it is due
//	cooling    nothing to do         taken over         delayed if that is longer, otherwise as it is
//	claimed    nothing to do         taken over         taken over: for when it is released
//	suspended  held no longer        taken over         taken over: for when it is resumed
//	completed  nothing to do         ErrConflict        ErrConflict
//	trashed    nothing to do         ErrConflict        ErrConflict
//
// A change of the board moves the job: its place there is that of its priority and posting,
// and it ages from now on. ErrConflict for a job that is claimed, completed or trashed, and
// where an unfinished job of that board has its key; ErrNotFound if there is no such board;
// ErrLimit if that or a quota has no room. Two events tell of it, EventMovedAway on the board
// that the job leaves and EventMoved on the other. A change to the front counts where the job
// is claimable, or when it is that again; of a finished job it is an ErrConflict.
//
// A deadline can be changed and removed in every state of an unfinished job. A new one
// must be in the future, and after the job's not-before time: ErrInvalid. A job that is
// being cancelled waits for no time and has no use for a deadline: ErrConflict. A change
// that asks for what is so already is a repeat, and changes nothing in any state.
//
// These can be repeated safely, also after requests of others: a cancellation, because
// only an intervention lifts it, and that finds it carried out; an intervention, which
// is known by its ID; and a Change with an ID, whose other content is an ErrConflict. A
// suspension that is repeated after a resumption is a new one, and the other way round.
type Controller interface {
	// Suspend keeps a job from going on until it is resumed. Its owner stops the flow
	// when the running steps have ended, which they do by the request's Steps.
	Suspend(ctx context.Context, command JobCommand) error
	// Resume lifts a suspension.
	Resume(ctx context.Context, command JobCommand) error
	// Cancel ends a job before its work is done. Its owner ends the running steps by the
	// request's Steps before it undoes them. ErrConflict also if its flow has ended
	// otherwise than reverted and waits for its consume.
	//
	// If an intervention reopened the job (see Intervene), and nobody has claimed it
	// since, the intervention is taken back: the job is completed, with OutcomeFailed
	// if its flow is in failure. If the intervention was to undo the flow further, and
	// the cancellation says Revert, the flow is undone.
	Cancel(ctx context.Context, command JobCommand) error
	// Transfer reserves a job for the live conductors of a name. The owner of a claimed job
	// hands it over as at a drain, and the reservation begins when it has let go; that of a
	// claimable job begins at once. Until it ends, others skip the job, and those conductors
	// get it before all other jobs. Nothing happens if one of them holds the job, or if
	// it is reserved for them already. A stop request replaces a transfer that its owner
	// has not carried out. ErrNotFound if no conductor of that name is live; ErrConflict if
	// none of them could claim the job, if the owner has another stop request, and if the
	// job is neither claimed nor claimable.
	Transfer(ctx context.Context, command JobCommand) error
	// Change gives a job another priority, not-before time, deadline, board or place, or
	// releases one that is held: all that the change says, or nothing.
	Change(ctx context.Context, change Change) error

	// Intervene records what a person does to a flow that has failed (for
	// logbook.InterveneRerun: or was reverted), and has the flow's last job
	// carry it out, under its next claim; it answers with that job. It makes the
	// intervention's At and Token. A repeat, which is known by the ID, changes
	// nothing; if the job is kept no longer by then, the answer to it is zero.
	//
	//	the last job   effect
	//	─────────────  ────────────────────────────────────────────────────────────
	//	completed      claimable, without outcome, reason and evidence, and with no
	//	or trashed,    crashes, failures and attempts counted; if the intervention holds,
	//	or parked      as it was
	//	claimed        ErrConflict: its owner carries out what was said before
	//	any other      as it was, and its next owner carries this out too
	//	swept          ErrNotFound
	//	never posted   ErrConflict
	//
	// logbook.InterveneTakeBack reopens nothing: where nothing is left to be
	// carried out by it, the job is completed as its flow has ended.
	// A stop request that the job was under is lifted, but for one to cancel and undo
	// where the flow goes on backwards, and one to suspend where the job is
	// suspended. A job that is reopened, or was being cancelled, does not wait for a
	// not-before time any more. ErrNotFound if there is no such flow or step; ErrConflict for a flow or a
	// step in another state than the kind of intervention needs, and where another unfinished
	// job has the key of a finished job (see KeyTaken); ErrLimit at
	// logbook.MaxInterventions, where those that wait to be carried out are too
	// long together, and where a finished job has no room on its board any more:
	// as for Historian.Retry, one that is cancelled and only to be undone further needs
	// none.
	Intervene(ctx context.Context, intervention logbook.Intervention) (JobID, error)
}
