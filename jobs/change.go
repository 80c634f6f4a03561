package jobs

import (
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// Change changes an unfinished job. Unset fields change nothing. Controller has a table with
// the effect of each field in each state.
type Change struct {
	// ID identifies a repeat: a repeat after a lost answer does nothing, whatever others
	// changed since. A job remembers its latest MaxKnownChanges ids. Zero: a board takes
	// every call as a new change; *raftboard.Client makes an id for its own repeats.
	ID       uuid.UUID
	Job      JobID
	Priority *Priority
	// NotBefore is the new earliest start. A past time means at once.
	NotBefore  time.Time
	Deadline   time.Time // the new deadline
	NoDeadline bool      // removes the deadline
	Release    bool      // releases a held or parked job
	// Board is the board to which the job moves; empty: no move. The job keeps its priority
	// and its place in posting order. Its book moves too, unless other jobs use the book.
	Board  string
	Front  bool   // the job goes before others of its priority; the latest of several such jobs comes first
	By     string // the operator, for display
	Reason string // one sentence, for display
}

// MaxKnownChanges is the number of changes whose ids a job remembers. An even later repeat has been in transit for
// longer than any call may take.
const MaxKnownChanges = 16

// CheckChange checks a change before it is written.
func CheckChange(l logbook.Limits, c *Change) error {
	switch {
	case c.Priority == nil && c.NotBefore.IsZero() && !c.Release && c.Deadline.IsZero() && !c.NoDeadline && c.Board == "" && !c.Front:
		return &logbook.InvalidError{Field: "change", Reason: "changes nothing: set priority, not_before, deadline, release, board or front"}
	case c.NoDeadline && !c.Deadline.IsZero():
		return &logbook.InvalidError{Field: "change deadline", Reason: "set beside no_deadline"}
	case !c.Deadline.IsZero() && !c.NotBefore.IsZero() && !c.Deadline.After(c.NotBefore):
		return &logbook.InvalidError{Field: "change deadline", Reason: "is not after not_before"}
	}
	if err := CheckOptionalName(l, "change board", c.Board); err != nil {
		return err
	}
	return checkDirective(l, "change", directive{c.Job, c.By, c.Reason})
}

// Alters reports whether the change would change the job.
func (c *Change) Alters(j *Job) bool {
	switch {
	case c.Priority != nil && *c.Priority != j.Priority:
		return true
	case !c.NotBefore.IsZero() && !c.NotBefore.Equal(j.NotBefore):
		return true
	}
	return c.Release && j.Held || c.AltersDeadline(j) || c.Moves(j) || c.Fronts(j)
}

// Starts reports whether the change should start an unclaimed job before it is due. A cooling or waiting job refuses
// such a change, which would have no effect.
func (c *Change) Starts(j *Job) bool {
	return c.Release || !c.NotBefore.IsZero() && !c.NotBefore.Equal(j.NotBefore) && !c.NotBefore.After(j.DueAt)
}

// Moves reports whether the change would move the job to another board.
func (c *Change) Moves(j *Job) bool { return c.Board != "" && c.Board != j.Board }

// Fronts reports whether the change would put the job before others of its priority. Without
// an ID, a repeat cannot be recognised, so a job that was moved before keeps its place.
func (c *Change) Fronts(j *Job) bool { return c.Front && (j.Front == 0 || c.ID != uuid.Nil) }

// AltersDeadline reports whether the change would change the deadline of the job.
func (c *Change) AltersDeadline(j *Job) bool {
	return !c.Deadline.IsZero() && !c.Deadline.Equal(j.Deadline) || c.NoDeadline && !j.Deadline.IsZero()
}
