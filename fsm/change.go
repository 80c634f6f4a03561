package fsm

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// change changes the priority, time, deadline, place or board of a job, or releases it. jobs.Controller has the table of
// its effects.
func (t *txn) change(c *v1.Change) error {
	change, err := command.ChangeFromProto(c)
	if err != nil {
		return err
	}
	j, err := t.jobByID(change.Job)
	if err != nil {
		return fmt.Errorf("cannot change: %w", err)
	}
	if repeated, err := t.knownChange(j, &change); repeated || err != nil {
		return err
	}
	if j.State.Pauses() && change.Starts(&j.Job) {
		return fmt.Errorf("cannot start job %s by a change: %w", j.ID, stillCooling(j))
	}
	if !change.Alters(&j.Job) {
		t.keepChange(j, &change)
		return nil
	}
	if err := t.checkChange(j, &change); err != nil {
		return err
	}
	release, err := t.planRelease(j, change)
	if err != nil {
		return fmt.Errorf("cannot release job %s: %w", j.ID, err)
	}
	if err := t.checkMove(j, &change); err != nil {
		return err
	}
	said := &jobs.OperatorRequest{Kind: jobs.RequestChange, By: change.By, Reason: change.Reason, At: t.now}
	kind := jobs.EventChanged
	if change.Moves(&j.Job) {
		t.event(jobs.EventMovedAway, j, jobs.Event{Request: said, Reason: change.Reason})
		t.move(j, change.Board)
		kind = jobs.EventMoved
	}
	t.letRun(j, release)
	t.takeOver(j, &change)
	t.placeJob(j)
	t.keepChange(j, &change)
	t.event(kind, j, jobs.Event{Request: said, Reason: change.Reason})
	if kind == jobs.EventMoved {
		t.moveSubscriptions(j, true)
	}
	return nil
}

// checkChange refuses a change that the state of the job does not allow, and a wrong deadline.
func (t *txn) checkChange(j *jobRecord, c *jobs.Change) error {
	due := j.NotBefore
	if !c.NotBefore.IsZero() {
		due = c.NotBefore
	}
	switch delayed, moved := !c.NotBefore.IsZero() && !c.NotBefore.Equal(j.NotBefore), c.AltersDeadline(&j.Job); {
	case j.State.Finished():
		return fmt.Errorf("cannot change job %s: %w: the job is %s", j.ID, jobs.ErrConflict, j.State)
	case j.isUnder(jobs.RequestCancel) && delayed:
		return fmt.Errorf("cannot change the earliest start of job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case j.isUnder(jobs.RequestCancel) && moved:
		return fmt.Errorf("cannot change the deadline of job %s: %w: it is being cancelled", j.ID, jobs.ErrConflict)
	case !moved || c.NoDeadline:
		return nil
	case !c.Deadline.After(t.now):
		return &logbook.InvalidError{Field: "change deadline", Reason: "has passed"}
	case !c.Deadline.After(due):
		return &logbook.InvalidError{Field: "change deadline", Reason: "is not after not_before"}
	}
	return nil
}

// takeOver applies a change to the facts of a job.
func (t *txn) takeOver(j *jobRecord, c *jobs.Change) {
	if c.Priority != nil {
		j.Priority = *c.Priority
	}
	if !c.NotBefore.IsZero() {
		j.NotBefore = c.NotBefore
	}
	if c.AltersDeadline(&j.Job) {
		j.Deadline, j.watched = c.Deadline, !c.Deadline.IsZero()
	}
	if c.Release && j.Parked {
		j.unpark()
	}
	j.Held = j.Held && !c.Release
	if c.Fronts(&j.Job) {
		j.Front = t.Index
	}
}

// A known change is stored as its id, and the first bytes of a digest of its content.
const (
	changeDigestSize = 8
	knownChangeSize  = idSize + changeDigestSize
)

// knownChange reports whether a change is a repeat. ErrConflict if its id belongs to another change.
func (t *txn) knownChange(j *jobRecord, c *jobs.Change) (bool, error) {
	if c.ID == uuid.Nil {
		return false, nil
	}
	row := changeRow(c)
	for known := t.get(tableChange, sequenceKey(j.Sequence)); len(known) >= knownChangeSize; known = known[knownChangeSize:] {
		switch {
		case bytes.Equal(known[:knownChangeSize], row):
			return true, nil
		case bytes.Equal(known[:idSize], row[:idSize]):
			return false, fmt.Errorf("cannot change job %s: %w: the id %s belongs to another change; use a new id", j.ID, jobs.ErrConflict, c.ID)
		}
	}
	return false, nil
}

// keepChange stores the id of a change of an unfinished job, until jobs.MaxKnownChanges later ones.
func (t *txn) keepChange(j *jobRecord, c *jobs.Change) {
	if c.ID == uuid.Nil || j.State.Finished() {
		return
	}
	key := sequenceKey(j.Sequence)
	rows := append(bytes.Clone(t.get(tableChange, key)), changeRow(c)...)
	t.put(tableChange, key, rows[max(0, len(rows)-jobs.MaxKnownChanges*knownChangeSize):])
}

// changeRow returns the stored form of a change. The digest is part of the state, so its input must not change.
func changeRow(c *jobs.Change) []byte {
	sum := sha256.New()
	if c.Priority != nil {
		fmt.Fprintf(sum, "priority %d ", *c.Priority)
	}
	fmt.Fprintf(sum, "not before %s deadline %s %t release %t board %q front %t by %q because %q",
		timeKey(c.NotBefore), timeKey(c.Deadline), c.NoDeadline, c.Release, c.Board, c.Front, c.By, c.Reason)
	return append(bytes.Clone(c.ID[:]), sum.Sum(nil)[:changeDigestSize]...)
}
