package fsm

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// checkMove refuses a move to a board that does not exist or has no room for the job. The same
// limits as for a posting apply, except the rate. It must be the last check, because it stores the
// default board if that has no row yet.
func (t *txn) checkMove(j *jobRecord, c *jobs.Change) error {
	if !c.Moves(&j.Job) {
		return nil
	}
	_, err := t.existingBoard(c.Board)
	switch {
	case err != nil:
		return err
	case j.Claim != nil:
		return fmt.Errorf("%w: %q holds the job; suspend the job first, and move it when it is suspended", jobs.ErrConflict, j.Claim.Owner)
	}
	if err := t.checkKey(j, c.Board); err != nil {
		return err
	}
	if err := t.roomOn(c.Board, j.Size); err != nil {
		return err
	}
	for _, quota := range t.knownQuotas().on(c.Board) {
		if access.Covers(quota.Boards, j.Board) {
			continue // the job counts there already
		}
		used := t.countersOf(quotaCounters(quota.Subject))
		if over := overLoad(quota.Limits.Jobs, quota.Limits.Bytes, used.active, used.bytes, j.Size); over != nil {
			return ofQuota(quota, over)
		}
	}
	return t.createBoard(&v1.BoardCommand{Board: c.Board})
}

// move moves a job to another board, with its book if no other job refers to the book. The age of the job starts now.
func (t *txn) move(j *jobRecord, to string) {
	if book, found := t.book(j.Book); found && t.storedCount(tableBookJobs, j.Book.UUID[:]) == 1 {
		book.Board = to
		t.putMessage(tableBook, book.ID.UUID[:], nil, command.BookToProto(&book))
	}
	j.Board, j.lag = to, nil
	if j.State == jobs.StateClaimable || j.Claims > 0 {
		t.ageAnew(j)
	}
}
