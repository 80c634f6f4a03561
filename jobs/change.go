package jobs

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// Change is what a person wants otherwise about a job that is not finished.
// What is unset stays as it is; Controller says what a change does where.
type Change struct {
	Job      JobID
	Priority *Priority
	// NotBefore is when the job is due. One that is past means at once.
	NotBefore time.Time
	Release   bool   // a job that is held is not held any more
	By        string // who, for people
	Reason    string // one sentence, for people
}

// CheckChange checks a change before it is written.
func CheckChange(l logbook.Limits, c *Change) error {
	if c.Priority == nil && c.NotBefore.IsZero() && !c.Release {
		return &logbook.InvalidError{Field: "change", Reason: "says nothing: neither priority, nor not_before, nor release"}
	}
	return checkDirective(l, "change", directive{c.Job, c.By, c.Reason})
}

// Alters tells whether a job would not be what it is after the change.
func (c *Change) Alters(j *Job) bool {
	switch {
	case c.Priority != nil && *c.Priority != j.Priority:
		return true
	case !c.NotBefore.IsZero() && !c.NotBefore.Equal(j.NotBefore):
		return true
	}
	return c.Release && j.Held
}
