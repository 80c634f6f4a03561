package jobs

import (
	"context"
	"time"
)

// OrderKind is what a person wants done with a job.
type OrderKind string

// The kinds of order.
const (
	OrderSuspend OrderKind = "suspend" // stop where it is, until it is resumed
	OrderResume  OrderKind = "resume"  // go on; it never stands on a job, and only events name it
	OrderCancel  OrderKind = "cancel"  // never go on
)

// Order is how a person steers a job without owning it.
type Order struct {
	Job    JobID
	Revert bool   // Cancel only: undo what was done; otherwise the flow is left as it stands
	By     string // who, for people
	Reason string // one sentence, for people
}

// StandingOrder is an order that a job is under. It outlives the job's end, so
// that everybody sees who ended it.
type StandingOrder struct {
	Kind   OrderKind `json:"kind"`
	Revert bool      `json:"revert,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Controller steers jobs. What an order does at once, and what it leaves to
// the owner of the job, depends on where the job stands:
//
//	             suspend            resume               cancel
//	───────────  ─────────────────  ───────────────────  ──────────────────────────────────────────────
//	DELAYED      SUSPENDED          nothing to do        COMPLETED, cancelled; or CLAIMABLE to be undone
//	CLAIMABLE    SUSPENDED          nothing to do        COMPLETED, cancelled; or stays to be undone
//	COOLING      SUSPENDED          nothing to do        COMPLETED, cancelled; or stays to be undone
//	CLAIMED      the owner is told  the order is lifted  the owner is told
//	SUSPENDED    nothing to do      as it was before     COMPLETED, cancelled; or CLAIMABLE to be undone
//	COMPLETED    ErrConflict        ErrConflict          ErrConflict, but for a repeat
//	TRASHED      ErrConflict        ErrConflict          ErrConflict
//
// An unclaimed job is there to be undone if the cancellation says Revert and
// its flow has begun: then the next owner undoes it. An owner that is told
// suspends or reverts the flow, and lets go of the job; one that dies, or that
// abandons the job for another reason, leaves it where the order would have
// put it at once. A job that comes to its own end first keeps that end.
//
// An order that stands already is a repeat and changes nothing, neither its
// reason nor its time; given again after another order, it is a new one. A
// cancellation takes the place of a suspension, and of a cancellation that says
// otherwise about Revert; a cancelled job can be neither suspended nor resumed:
// ErrConflict. ErrNotFound.
type Controller interface {
	// Suspend keeps a job from going on until it is resumed. Steps that run
	// come to their end first.
	Suspend(ctx context.Context, order Order) error
	// Resume lifts a suspension.
	Resume(ctx context.Context, order Order) error
	// Cancel ends a job before its work is done. ErrConflict also if its flow
	// has come to another end than REVERTED, and waits to be consumed.
	Cancel(ctx context.Context, order Order) error
}
