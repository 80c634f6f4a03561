package jobs

import (
	"errors"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// The errors of a board, for errors.Is. Most are the errors of package logbook, because one
// cluster implements both.
var (
	ErrNotFound    = logbook.ErrNotFound
	ErrConflict    = logbook.ErrConflict
	ErrFenced      = logbook.ErrFenced
	ErrInvalid     = logbook.ErrInvalid
	ErrLimit       = logbook.ErrLimit
	ErrNotAllowed  = logbook.ErrNotAllowed
	ErrUnavailable = logbook.ErrUnavailable
	ErrUncertain   = logbook.ErrUncertain

	// The ends of a job without success: see (*Job).Err.
	ErrReverted  = logbook.ErrReverted
	ErrFailed    = logbook.ErrFailed
	ErrCancelled = errors.New("cancelled")
	ErrTrashed   = errors.New("trashed")
	// ErrNeedsOperator: the job is held, parked or suspended.
	ErrNeedsOperator = errors.New("stopped: the job needs an operator")

	// ErrUnclaimable: the job is not claimable now, or not for this session. For example, it
	// has an owner, its board is paused, or the conductor is drained. It wraps ErrConflict.
	ErrUnclaimable error = &subkind{"the job cannot be claimed now", ErrConflict}
	// ErrJobOver: the job is finished, so it accepts no signal. It wraps ErrConflict.
	ErrJobOver error = &subkind{"the job is over", ErrConflict}
	// ErrDecided: the approval has ended, so it accepts no decision. It wraps ErrConflict.
	ErrDecided error = &subkind{"the approval has ended", ErrConflict}
	// ErrSignalsFull: the job has no room for another signal. It wraps ErrLimit.
	ErrSignalsFull error = &subkind{"the job has no room for another signal", ErrLimit}
	// ErrNobodyWaits: no step waits for the topic and key of a publication. Nothing happened. It wraps ErrNotFound.
	ErrNobodyWaits error = &subkind{"nobody waits", ErrNotFound}
	// ErrPublicationsFull: the board has no room for another kept publication. It wraps ErrLimit.
	ErrPublicationsFull error = &subkind{"the board has no room for another publication", ErrLimit}
	// ErrOverloaded: a queue or a budget of the node is full, and the call had no effect. It
	// wraps ErrUnavailable. Repeat the call after a pause, as *raftboard.Client does.
	ErrOverloaded error = &subkind{"overloaded: it did not happen", ErrUnavailable}
	// ErrSessionExpired: the session is unknown, closed or expired, and all its claims have
	// ended. Its id cannot be used again: open a session with a new id.
	ErrSessionExpired = errors.New("the session has expired, or was closed")
	// ErrWrongCluster: by the topology of the answering node, the board is in another
	// cluster, which the error names. The call had no effect.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrCompacted: the events after the watch's position are no longer kept. Every such
	// error is a *CompactedError.
	ErrCompacted = errors.New("compacted: older events are no longer kept")
)

// KeyTaken makes the error for a second unfinished job with the same key on a board. It
// wraps ErrConflict.
func KeyTaken(board, key string, holder JobID) error {
	return fmt.Errorf("%w: on board %q, job %s has the key %q and is not finished: wait until this job is finished, or cancel it", ErrConflict, board, holder, key)
}

// CompactedError is an ErrCompacted with the position from which a watch can continue.
type CompactedError struct {
	After Position // the position of the watch
	Since Position // all events after this position are kept
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v: some events after %s were removed; all events after %s are available", ErrCompacted, e.After, e.Since)
}

// Unwrap returns ErrCompacted.
func (e *CompactedError) Unwrap() error { return ErrCompacted }

// subkind is a sentinel that wraps a more general sentinel.
type subkind struct {
	text string
	kind error
}

func (s *subkind) Error() string { return s.text }
func (s *subkind) Unwrap() error { return s.kind }
