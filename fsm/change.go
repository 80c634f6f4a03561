package fsm

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// change gives a job another priority or time, or releases it; jobs.Controller
// holds the table of that.
func (t *txn) change(c *v1.Change) error {
	change, err := command.ChangeFromProto(c)
	if err != nil {
		return err
	}
	j, err := t.jobByID(change.Job)
	switch {
	case err != nil:
		return fmt.Errorf("cannot change: %w", err)
	case !change.Alters(&j.Job):
		return nil
	case j.State.Finished():
		return fmt.Errorf("cannot change job %s: %w: it is %s", j.ID, jobs.ErrConflict, j.State)
	case isUnder(j, jobs.OrderCancel) && !change.NotBefore.IsZero() && !change.NotBefore.Equal(j.NotBefore):
		return fmt.Errorf("cannot change when job %s is due: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	}
	release, err := t.planRelease(j, change)
	if err != nil {
		return prefixed(fmt.Sprintf("cannot release job %s", j.ID), err)
	}
	t.letRun(j, release)
	t.alter(j, func() {
		if change.Priority != nil {
			j.Priority = *change.Priority
		}
		if !change.NotBefore.IsZero() {
			j.NotBefore = change.NotBefore
		}
		if change.Release && j.Parked {
			j.unpark()
		}
		j.Held = j.Held && !change.Release
	})
	said := &jobs.StandingOrder{Kind: jobs.OrderChange, By: change.By, Reason: change.Reason, At: t.now}
	t.event(jobs.EventChanged, j, jobs.Event{Order: said, Reason: change.Reason})
	return nil
}

// alter changes what decides about the place of an unfinished job, and brings
// it there.
func (t *txn) alter(j *jobRecord, how func()) {
	cooled, before := cooledAt(j), j.State
	t.leave(j)
	how()
	if j.State != jobs.StateClaimed {
		to, due := t.waits(j, cooled)
		if j.State != jobs.StateSuspended {
			j.State = to
		}
		j.DueAt = due
	}
	j.ModifiedAt = t.now
	t.noteClaimable(j, before)
	t.enter(j)
	t.saveJob(j)
}
