package jobs

import (
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// Change changes a job that is not finished. Fields that are not set leave the job as
// it is. Controller has a table of what each field does in each state.
type Change struct {
	// ID names the change, so that a repeat of it after a lost answer does
	// nothing, whatever others have changed since. The last MaxKnownChanges of a
	// job are known. Zero: a client library makes one for its own repeats; a
	// board takes every call for a new change.
	ID       uuid.UUID
	Job      JobID
	Priority *Priority
	// NotBefore is when the job is due. One that is past means at once.
	NotBefore  time.Time
	Deadline   time.Time // by which the job must be done
	NoDeadline bool      // it may be done at any time
	Release    bool      // a job that is held is not held any more
	// Board is where the job moves; empty: it stays. It keeps priority and place in the order of
	// posting. Its book moves with it, unless other jobs refer to that.
	Board  string
	Front  bool   // before the others of its priority; of several such, the last comes first
	By     string // who, for people
	Reason string // one sentence, for people
}

// MaxKnownChanges is how many changes of a job are known by their ids: a repeat
// that comes after so many others has been on its way for longer than any call
// may take.
const MaxKnownChanges = 16

// CheckChange checks a change before it is written.
func CheckChange(l logbook.Limits, c *Change) error {
	switch {
	case c.Priority == nil && c.NotBefore.IsZero() && !c.Release && c.Deadline.IsZero() && !c.NoDeadline && c.Board == "" && !c.Front:
		return &logbook.InvalidError{Field: "change", Reason: "says nothing: neither priority, nor not_before, nor deadline, nor release, nor board, nor front"}
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

// Alters reports whether a job would not be what it is after the change.
func (c *Change) Alters(j *Job) bool {
	switch {
	case c.Priority != nil && *c.Priority != j.Priority:
		return true
	case !c.NotBefore.IsZero() && !c.NotBefore.Equal(j.NotBefore):
		return true
	}
	return c.Release && j.Held || c.AltersDeadline(j) || c.Moves(j) || c.Fronts(j)
}

// Moves reports whether a job would be on another board.
func (c *Change) Moves(j *Job) bool { return c.Board != "" && c.Board != j.Board }

// Fronts reports whether a job would be put before its equals. Without an id, which makes a
// repeat known, one that was put there before keeps its place.
func (c *Change) Fronts(j *Job) bool { return c.Front && (j.Front == 0 || c.ID != uuid.Nil) }

// AltersDeadline reports whether a job would have another deadline.
func (c *Change) AltersDeadline(j *Job) bool {
	return !c.Deadline.IsZero() && !c.Deadline.Equal(j.Deadline) || c.NoDeadline && !j.Deadline.IsZero()
}
