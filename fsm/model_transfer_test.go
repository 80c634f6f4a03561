package fsm_test

import (
	"cmp"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// Transfers in the model.

func (m *model) transfer(c *v1.JobCommand) error {
	j, order, err := m.ordered(c, jobs.RequestTransfer)
	if err != nil {
		return err
	}
	order.To, order.Within = c.To, cmp.Or(c.Within.AsDuration(), jobs.DefaultReservation)
	switch {
	case j.Claim != nil && m.lives(c.To, j.Claim.Session.String()),
		under(j, jobs.RequestTransfer) && j.StopRequest.To == order.To && j.StopRequest.Within == order.Within,
		j.State == jobs.StateClaimable && j.Reserved != nil && j.Reserved.Conductor == order.To:
		return nil
	case j.State != jobs.StateClaimed && j.State != jobs.StateClaimable,
		j.Claim != nil && j.StopRequest != nil && !under(j, jobs.RequestTransfer):
		return jobs.ErrConflict
	}
	serves, able := false, false
	for _, e := range m.entities {
		if e.Kind == jobs.EntityConductor && e.Name == c.To {
			serves, able = serves || e.Serves(j.Board), able || e.Takes(&j.Job)
		}
	}
	switch {
	case !serves:
		return jobs.ErrNotFound
	case !able, m.drains[c.To] != nil:
		return jobs.ErrConflict
	}
	if j.Claim != nil {
		j.StopRequest, j.ModifiedAt = order, m.now
		return nil
	}
	j.Reserved = &jobs.Reservation{Conductor: order.To, Until: m.now.Add(order.Within)}
	m.touch(j)
	return nil
}

func (m *model) unreserve(c *v1.JobCommand) error {
	j, _, err := m.ordered(c, jobs.RequestUnreserve)
	switch {
	case err != nil:
		return err
	case under(j, jobs.RequestTransfer):
		return jobs.ErrConflict
	case j.Reserved != nil:
		j.Reserved = nil
		m.touch(j)
	}
	return nil
}

// reserve starts the reservation of a job that its owner has handed over, and ends expired
// reservations.
func (m *model) reserve(j *modelJob) {
	if under(j, jobs.RequestTransfer) {
		from := m.now
		if j.cooled.After(from) {
			from = j.cooled
		}
		j.Reserved, j.StopRequest = &jobs.Reservation{Conductor: j.StopRequest.To, Until: from.Add(j.StopRequest.Within)}, nil
	}
	if j.Reserved != nil && !j.Reserved.Until.After(m.now) {
		j.Reserved = nil
	}
}

// mayTake reports whether a reservation lets a session claim the job.
func (m *model) mayTake(j *modelJob, session string) bool {
	return j.Reserved == nil || m.lives(j.Reserved.Conductor, session)
}

// byReservation is the order in which a session gets the jobs reserved for it.
func byReservation(a, b *modelJob) int {
	return cmp.Or(cmp.Compare(len(a.Reserved.Conductor), len(b.Reserved.Conductor)), cmp.Compare(a.Reserved.Conductor, b.Reserved.Conductor), bySequence(a, b))
}

// wakeAt is the next time at which the leader must act on a job; zero: never.
func wakeAt(j *modelJob) time.Time {
	switch {
	case j.State == jobs.StateDelayed || j.State.Pauses():
		return j.DueAt
	case j.State == jobs.StateClaimable && j.Reserved != nil:
		return j.Reserved.Until
	}
	return time.Time{}
}
