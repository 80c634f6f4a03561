package jobs

import (
	"errors"
	"fmt"

	"github.com/conductord/conductord/logbook"
)

// The kinds of failure that a caller can tell apart, by errors.Is. Most are
// the logbook's, since one cluster answers for both.
var (
	ErrNotFound    = logbook.ErrNotFound
	ErrConflict    = logbook.ErrConflict
	ErrFenced      = logbook.ErrFenced
	ErrInvalid     = logbook.ErrInvalid
	ErrLimit       = logbook.ErrLimit
	ErrNotAllowed  = logbook.ErrNotAllowed
	ErrUnavailable = logbook.ErrUnavailable
	ErrUncertain   = logbook.ErrUncertain

	// How a finished job ended that is no success: see (*Job).Err.
	ErrReverted  = logbook.ErrReverted
	ErrFailed    = logbook.ErrFailed
	ErrCancelled = errors.New("cancelled")
	ErrTrashed   = errors.New("trashed: nobody could do it")

	// ErrUnclaimable: the job has an owner, is not due, cools down, or is finished.
	// It is an ErrConflict for those who do not ask for more.
	ErrUnclaimable error = &subkind{"the job cannot be claimed now", ErrConflict}
	// ErrOverloaded: a queue or a budget of the node is full. It is an ErrUnavailable:
	// repeat the call after a pause, as the client library does.
	ErrOverloaded error = &subkind{"overloaded: it did not happen", ErrUnavailable}
	// ErrSessionExpired: the session is unknown, closed or expired, and every
	// claim it had is over. Its id is never good again: open a new one.
	ErrSessionExpired = errors.New("the session has expired")
	// ErrWrongCluster: the board is in another cluster by the topology of the node that answers.
	// Nothing has happened. The error names the cluster.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrCompacted: the events that a watch asks for are no longer kept. Every
	// such error is a *CompactedError.
	ErrCompacted = errors.New("compacted: older events are no longer kept")
)

// KeyTaken refuses a second unfinished job with a key of a board. It is an ErrConflict.
func KeyTaken(board, key string, holder JobID) error {
	return fmt.Errorf("%w: on board %q, job %s has the key %q and is not finished: wait until it is, or cancel it", ErrConflict, board, holder, key)
}

// CompactedError says where a watch can begin that asked for events which are
// no longer kept. It is an ErrCompacted.
type CompactedError struct {
	After Position // what was asked for
	Since Position // after it, every event is kept
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v: events after %s are gone, and all after %s are kept", ErrCompacted, e.After, e.Since)
}

// Unwrap makes it an ErrCompacted.
func (e *CompactedError) Unwrap() error { return ErrCompacted }

// subkind is a sentinel that is also another, more general one.
type subkind struct {
	text string
	kind error
}

func (s *subkind) Error() string { return s.text }
func (s *subkind) Unwrap() error { return s.kind }
