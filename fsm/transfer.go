package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
)

// transfer reserves a claimable job for the conductors of a name, or requests the hand-over from the owner.
func (t *txn) transfer(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestTransfer)
	if err != nil {
		return err
	}
	if err := roomForConductor(request.To); err != nil {
		return err
	}
	request.Within = cmp.Or(request.Within, jobs.DefaultReservation)
	switch {
	case j.Claim != nil && t.isConductor(j.Claim.Session, request.To),
		j.isUnder(jobs.RequestTransfer) && j.StopRequest.To == request.To && j.StopRequest.Within == request.Within,
		j.Reserved != nil && j.Reserved.Conductor == request.To && j.State == jobs.StateClaimable:
		return nil
	case j.State != jobs.StateClaimed && j.State != jobs.StateClaimable:
		return fmt.Errorf("cannot transfer job %s: %w: the job is %s, and only a claimed or claimable job can be transferred", j.ID, jobs.ErrConflict, j.State)
	case j.Claim != nil && j.StopRequest != nil && !j.isUnder(jobs.RequestTransfer):
		return fmt.Errorf("cannot transfer job %s: %w: its owner has a request to %s it", j.ID, jobs.ErrConflict, j.StopRequest.Kind)
	}
	if err := t.checkTransfer(j, request.To); err != nil {
		return fmt.Errorf("cannot transfer job %s: %w", j.ID, err)
	}
	if j.Claim != nil {
		j.StopRequest = request
		t.tellOwner(jobs.EventStopRequested, j, request)
		return nil
	}
	j.Reserved = &jobs.Reservation{Conductor: request.To, Until: t.after(request.Within)}
	t.placeJob(j)
	t.event(jobs.EventReserved, j, jobs.Event{Request: request, Reason: request.Reason})
	return nil
}

// unreserve ends the reservation of a job. A job without a reservation does not change.
func (t *txn) unreserve(c *v1.JobCommand) error {
	j, request, err := t.target(c, jobs.RequestUnreserve)
	switch {
	case err != nil:
		return err
	case j.isUnder(jobs.RequestTransfer):
		return fmt.Errorf("cannot unreserve job %s: %w: its owner has a request to transfer it to %q", j.ID, jobs.ErrConflict, j.StopRequest.To)
	case j.Reserved == nil:
		return nil
	}
	j.Reserved = nil
	t.placeJob(j)
	t.event(jobs.EventUnreserved, j, jobs.Event{Request: request, Reason: request.Reason})
	return nil
}

// maxNamed bounds the conductors in the text of a refusal.
const maxNamed = 10

// checkTransfer refuses a transfer to conductors that could not claim the job now.
func (v *view) checkTransfer(j *jobRecord, to string) error {
	var others []string
	var found *jobs.Entity
	conductors := v.entities(jobs.EntityConductor)
	for i := range conductors {
		switch conductor := &conductors[i]; {
		case !conductor.Serves(j.Board): // as if it did not exist
		case conductor.Name == to && (found == nil || conductor.Takes(&j.Job)):
			found = conductor
		case conductor.Takes(&j.Job):
			others = append(others, fmt.Sprintf("%q", conductor.Name))
		}
	}
	if others = slices.Compact(others); len(others) > maxNamed {
		others = append(others[:maxNamed], "others")
	}
	able := "no other conductor could claim it"
	if len(others) > 0 {
		able = "these could claim it: " + strings.Join(others, ", ")
	}
	switch drain := v.drain(to); {
	case found == nil:
		return fmt.Errorf("%w: no conductor %q of board %q is live; %s", jobs.ErrNotFound, to, j.Board, able)
	case !found.Claims(&j.Job):
		return fmt.Errorf("%w: conductor %q takes no jobs of kind %q; %s", jobs.ErrConflict, to, j.Kind, able)
	case !found.Takes(&j.Job):
		return fmt.Errorf("%w: conductor %q lacks the labels %q; %s", jobs.ErrConflict, to, found.Lacks(&j.Job), able)
	case drain != nil:
		return fmt.Errorf("%w: conductor %q is drained; undrain it first", jobs.ErrConflict, to)
	}
	return nil
}
