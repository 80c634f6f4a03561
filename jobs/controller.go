package jobs

import (
	"context"
	"time"

	"github.com/conductord/conductord/logbook"
)

// RequestKind is the kind of an operator's request.
type RequestKind string

// The kinds of request. RequestSuspend, RequestCancel and RequestTransfer are stop
// requests, which a job keeps. The other kinds occur only in events.
const (
	RequestSuspend   RequestKind = "suspend"   // stop the job until it is resumed
	RequestResume    RequestKind = "resume"    // continue the job
	RequestCancel    RequestKind = "cancel"    // end the job
	RequestTransfer  RequestKind = "transfer"  // hand the job over to other conductors; kept only by a claimed job
	RequestUnreserve RequestKind = "unreserve" // end a reservation
	RequestRetryNow  RequestKind = "retry_now" // end the wait for the next attempt
	RequestChange    RequestKind = "change"    // a Change
	RequestIntervene RequestKind = "intervene" // perform an intervention in the flow
	RequestRetry     RequestKind = "retry"     // see Historian
	RequestPurge     RequestKind = "purge"     // see Historian
)

// RequestKinds are all kinds of request.
var RequestKinds = []RequestKind{
	RequestSuspend, RequestResume, RequestCancel, RequestTransfer, RequestUnreserve, RequestRetryNow, RequestChange, RequestIntervene, RequestRetry, RequestPurge,
}

// ByDeadline is the By of the request with which the board cancels a job at its deadline.
const ByDeadline = "deadline"

// StepsPolicy decides what happens to running steps when their job is stopped.
type StepsPolicy string

// The policies. Uninterruptible steps always finish. When a flow is suspended, its
// at-most-once steps finish too.
const (
	// StepsDefault is StepsInterrupt for a cancellation, and StepsFinish for a suspension.
	StepsDefault StepsPolicy = ""
	// StepsInterrupt interrupts running steps: their contexts end, and handlers get SIGTERM,
	// then SIGKILL after the grace. A suspended flow executes them again when it continues.
	StepsInterrupt StepsPolicy = "interrupt"
	// StepsFinish waits until running steps have ended.
	StepsFinish StepsPolicy = "finish"
)

// MaxGrace is the longest grace of interrupted steps.
const MaxGrace = time.Hour

// DefaultReservation is the default duration of a reservation. It is enough for a conductor
// that restarts within a few seconds. MaxReservation is the longest duration: if the
// conductor does not come, the reservation keeps the job from all others for that time.
const (
	DefaultReservation = 30 * time.Second
	MaxReservation     = 10 * time.Minute
)

// Reservation limits the claim of a job to the conductors with one name, until a time.
type Reservation struct {
	Conductor string
	Until     time.Time
}

// JobCommand is an operator's request about a job: the argument of Suspend, Resume, Cancel,
// Transfer, Unreserve, RetryNow, Retry and Purge.
type JobCommand struct {
	Job    JobID
	Revert bool   // only for Cancel: undo the flow's work; false: leave the flow as it is
	By     string // the operator, for display
	Reason string // one sentence, for display

	// Only for Suspend and Cancel: what happens to running steps, and the time that
	// interrupted steps get to end, at most MaxGrace. 0: flow.DefaultGrace.
	Steps StepsPolicy
	Grace time.Duration

	// Only for Transfer: the name of the conductors that get the job, and the duration of
	// the reservation, at most MaxReservation. 0: DefaultReservation.
	To     string
	Within time.Duration

	// Only for RetryNow: the step that waits. Empty: all steps.
	Step string
}

// OperatorRequest is the record of an operator's request. A finished job keeps its stop
// request, which shows who ended the job, and why.
type OperatorRequest struct {
	Kind   RequestKind
	Revert bool
	By     string
	Reason string
	At     time.Time
	Steps  StepsPolicy
	Grace  time.Duration // 0: flow.DefaultGrace
	To     string        // only for RequestTransfer: the name of the conductors
	Within time.Duration // only for RequestTransfer: duration of the reservation
}

// Interrupts reports whether a stop request interrupts running steps.
func (r *OperatorRequest) Interrupts() bool {
	return r.Steps == StepsInterrupt || r.Steps == StepsDefault && r.Kind == RequestCancel
}

// Controller is the operators' interface to jobs: it controls jobs without a claim. All its
// methods return ErrNotFound for an unknown job.
//
// The effect of a stop request depends on the state of the job. A claimed job changes
// only when its owner carries out the request.
//
//	             suspend            resume               cancel
//	───────────  ─────────────────  ───────────────────  ──────────────────────────────────────────────
//	held         suspended          nothing to do        completed, cancelled; or claimable to be undone
//	delayed      suspended          nothing to do        completed, cancelled; or claimable to be undone
//	claimable    suspended          nothing to do        completed, cancelled; or stays to be undone
//	cooling      suspended          nothing to do        completed, cancelled; or claimable to be undone,
//	                                                     but stays if its owner was lost
//	waiting      suspended          nothing to do        completed, cancelled; or claimable to be undone
//	claimed      sent to the owner  withdrawn            sent to the owner
//	suspended    nothing to do      as it was before     completed, cancelled; or claimable to be undone
//	completed    ErrConflict        ErrConflict          ErrConflict, except for a repeat
//	trashed      ErrConflict        ErrConflict          ErrConflict
//
// Cancelling with Revert: if the flow has started, an unclaimed job becomes claimable, and
// its next owner undoes the flow.
//
// The owner of a claimed job suspends or reverts the flow, and then releases the job. If the owner is lost, or abandons
// the job for another reason, the job goes to the state that the table has for an unclaimed job. If the owner claimed
// the job after the stop request, the Delay of its abandon applies, and the job cools. If the job ends before its owner
// carries out the request, the job keeps that end.
//
// Repeats: a repeated stop request changes nothing, neither reason nor time. After another stop request it is a new
// request. A cancellation replaces a suspension, or a cancellation with another Revert. While the job is claimed, a
// request with other Steps or another Grace replaces the old one, for example to interrupt running steps after all. A
// cancelled job cannot be suspended or resumed: ErrConflict.
//
// Parked jobs: a job that its RetryPolicy has parked is held. Releasing it restores all its
// attempts, and a reverted flow runs again. If its flow could not be undone, a release is an
// ErrConflict. A cancellation then completes the job with OutcomeFailed: the flow stays as
// it is, and its pending interventions are taken back.
//
// The effect of a Change depends on the state of the job:
//
//	           release               priority           not before
//	─────────  ────────────────────  ─────────────────  ─────────────────────────────────────────
//	held       delayed or claimable  set                set
//	delayed    nothing to do         set                delayed, or claimable if it is due
//	claimable  nothing to do         moves to its place delayed, or claimable if it is due
//	cooling    ErrConflict           set                delayed if that is longer, otherwise ErrConflict: see RetryNow
//	waiting    ErrConflict           set                delayed if that is longer, otherwise ErrConflict: see RetryNow
//	claimed    nothing to do         set                set, and applies after the release
//	suspended  held no longer        set                set, and applies after the resumption
//	completed  nothing to do         ErrConflict        ErrConflict
//	trashed    nothing to do         ErrConflict        ErrConflict
//
// Change of the board: the job moves to its place by priority and posting order, and its
// age starts now. ErrConflict if the job is claimed or finished, or if an unfinished job of
// the other board has its key. ErrNotFound if the board does not exist. ErrLimit if the
// board or a quota has no room. The board that the job leaves gets EventMovedAway, and the
// other board EventMoved.
//
// Change to the front: it takes effect while the job is claimable, or when it is claimable
// again. ErrConflict if the job is finished.
//
// Change of the deadline: allowed in every state of an unfinished job. ErrInvalid unless a
// new deadline is in the future and after the not-before time.
//
// A job that is being cancelled has neither start nor deadline: changing them is an
// ErrConflict. A change to current values is a repeat, and changes nothing in any state.
//
// Some requests are safe to repeat even after requests of others: a cancellation, because
// only an intervention withdraws it; an intervention, known by its ID; and a Change with
// an ID. A repeated ID with other content is an ErrConflict. A suspension after a
// resumption is a new request, and so is a resumption after a suspension.
type Controller interface {
	// Suspend stops a job until Resume. The owner of a claimed job stops the flow when its
	// running steps have ended; command.Steps decides how they end.
	Suspend(ctx context.Context, command JobCommand) error
	// Resume ends a suspension.
	Resume(ctx context.Context, command JobCommand) error
	// Cancel ends a job before its work is done. The owner of a claimed job first ends its
	// running steps, by command.Steps, and then undoes them. ErrConflict also if the job is
	// neither claimed nor parked, and its flow has ended in success or failure.
	//
	// If an intervention reopened the job (see Intervene), and the job has not been claimed
	// since, Cancel takes the intervention back. The job is completed, with OutcomeFailed if
	// its flow is in failure. Exception: if the intervention continues an undo and
	// command.Revert is set, the flow is undone.
	Cancel(ctx context.Context, command JobCommand) error
	// Transfer reserves a job for the live conductors of a name. The owner of a claimed job
	// hands it over, as at a drain, and the reservation starts then. The reservation of a
	// claimable job starts at once. During the reservation, only those conductors can claim
	// the job, and they get it before other jobs.
	//
	// Nothing happens if one of those conductors has the job, or if the job is reserved for
	// them. A stop request replaces a transfer that the owner has not carried out.
	// ErrNotFound if no conductor of that name on the job's board is live. ErrConflict if
	// none of them could claim the job, if the owner has another stop request, or if the job
	// is neither claimed nor claimable.
	Transfer(ctx context.Context, command JobCommand) error
	// Unreserve ends the reservation of a job before its time: every conductor that takes such
	// jobs can claim it. A job without a reservation does not change. ErrNotFound. ErrConflict
	// if the owner has not yet carried out the transfer.
	Unreserve(ctx context.Context, command JobCommand) error
	// RetryNow ends the wait for a next attempt: after a failed try of a step, between the rounds of a
	// flow's retry, after a "not yet", and of the job itself. A cooling or waiting job
	// becomes claimable, unless its owner was lost. The owner of a claimed job starts the waiting steps. ErrNotFound.
	// ErrConflict if nothing waits, or if the job is neither claimed, cooling nor waiting.
	RetryNow(ctx context.Context, command JobCommand) error
	// Change changes the priority, not-before time, deadline, board or place of a job, or
	// releases a held job. It applies the whole change or nothing.
	Change(ctx context.Context, change Change) error

	// Intervene records an operator's decision about a flow in failure; for
	// logbook.InterveneRerun also about a reverted flow. The next owner of the flow's latest
	// job carries out the decision. Intervene returns the id of that job, and sets At and
	// Token of the record. A repeat with the same ID changes nothing; if the job is no longer
	// kept, the returned id is zero.
	//
	//	the latest job  effect
	//	──────────────  ───────────────────────────────────────────────────────────
	//	completed,      claimable, without outcome, reason and failure; crashes,
	//	trashed or      failures and attempts count from zero. Unchanged if the
	//	parked          intervention has Hold
	//	claimed         ErrConflict: its owner carries out earlier interventions
	//	other states    unchanged; its next owner carries out this intervention too
	//	removed         ErrNotFound
	//	never posted    ErrConflict
	//
	// logbook.InterveneRename renames the step at once, in a flow in any state. It reopens no job. ErrConflict unless the
	// job is suspended, held, trashed or completed, if the new name is recorded or is a former name, if the step has not
	// ended, or if the flow cannot adopt another definition. ErrNotFound if the step has not started.
	//
	// logbook.InterveneTakeBack reopens no job. If no intervention is left to carry out, the
	// job is completed with the end of its flow.
	//
	// An intervention without Hold withdraws the job's stop request, with two exceptions: a
	// request to cancel and undo stays if the flow continues its undo, and the suspension of
	// a suspended job stays. A job that is reopened, or was being cancelled, no longer waits
	// for its not-before time.
	//
	// ErrNotFound if the flow or the step does not exist. ErrConflict if the flow or the step is in the wrong state for
	// the kind of intervention. ErrConflict also if another unfinished job has the key of the finished job (see
	// KeyTaken), or if the job was released in the same log entry. ErrLimit at logbook.MaxInterventions, if the pending
	// interventions are too long together, or if the board has no room for the reopened job. A job that is cancelled
	// and only continues its undo needs no room.
	Intervene(ctx context.Context, intervention logbook.Intervention) (JobID, error)
}
