package fsm_test

import (
	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

func (m *model) change(c *v1.Change) error {
	change, err := command.ChangeFromProto(c)
	if err != nil {
		panic(err)
	}
	j := m.jobs[c.Job]
	if j == nil {
		return jobs.ErrNotFound
	}
	if known, err := j.knows(c); known || err != nil {
		return err
	}
	due := j.NotBefore
	if !change.NotBefore.IsZero() {
		due = change.NotBefore
	}
	moved := change.AltersDeadline(&j.Job)
	switch {
	case j.State.Pauses() && change.Starts(&j.Job):
		return jobs.ErrConflict
	case !change.Alters(&j.Job):
		j.learn(c)
		return nil
	case j.State.Finished(), under(j, jobs.RequestCancel) && !change.NotBefore.IsZero() && !change.NotBefore.Equal(j.NotBefore):
		return jobs.ErrConflict
	case moved && under(j, jobs.RequestCancel):
		return jobs.ErrConflict
	case moved && !change.NoDeadline && (!change.Deadline.After(m.now) || !change.Deadline.After(due)):
		return jobs.ErrInvalid
	}
	releases := change.Release && j.Parked
	if releases && m.halfUndone(j) {
		return jobs.ErrConflict
	}
	if err := m.moveTo(j, c.Board); err != nil {
		return err
	}
	if releases {
		m.unparked(j)
	}
	if change.Front && (j.Front == 0 || change.ID != uuid.Nil) {
		j.Front = m.index
	}
	if change.Priority != nil {
		j.Priority = *change.Priority
	}
	if !change.NotBefore.IsZero() {
		j.NotBefore = change.NotBefore
	}
	if moved {
		j.Deadline, j.watched = change.Deadline, !change.NoDeadline
	}
	j.Held = j.Held && !change.Release
	j.learn(c)
	m.touch(j)
	m.moveSubscriptions(j, true)
	return nil
}

// moveTo moves a job to another board, with its book if no other job uses it.
func (m *model) moveTo(j *modelJob, to string) error {
	if to == "" || to == j.Board {
		return nil
	}
	_, err := m.head(to)
	holder := m.holder(to, j.Key)
	switch {
	case err != nil:
		return err
	case j.Claim != nil, holder != nil:
		return jobs.ErrConflict
	}
	if err := m.room(to, j.Size); err != nil {
		return err
	}
	for _, q := range m.covering(to, "") {
		used := m.used(q)
		switch {
		case access.Covers(q.Boards, j.Board):
		case q.Limits.Jobs > 0 && used.Jobs >= q.Limits.Jobs, q.Limits.Bytes > 0 && used.Bytes+j.Size > q.Limits.Bytes:
			return overQuota(q, "jobs or bytes", q.Limits.Jobs, used.Jobs+1, "of them")
		}
	}
	sharers := 0
	for _, other := range m.jobs {
		if other.Book == j.Book {
			sharers++
		}
	}
	if book := m.books[j.Book.String()]; book != nil && sharers == 1 {
		book.board = to
	}
	m.stored(to)
	j.Board, j.lag = to, nil
	if j.State == jobs.StateClaimable || j.Claims > 0 {
		m.ageAnew(j)
	}
	return nil
}
