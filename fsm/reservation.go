package fsm

import "github.com/conductord/conductord/jobs"

// A reserved job is claimable, but is in no queue: it has a row under the name of its conductor. So other claims never
// read it, for any number of reserved jobs. tableDue has the end of the reservation, which puts the job back into its
// queue.

// placeReservation starts the reservation of a job that its owner has handed over for a transfer, and ends an expired
// reservation.
func (t *txn) placeReservation(j *jobRecord) {
	if j.Claim == nil && j.isUnder(jobs.RequestTransfer) {
		begins := t.now
		if j.cooled.After(begins) {
			begins = j.cooled
		}
		j.Reserved = &jobs.Reservation{Conductor: j.StopRequest.To, Until: begins.Add(j.StopRequest.Within)}
		j.StopRequest = nil
	}
	if j.Reserved != nil && (j.Claim != nil || j.final != "" || !j.Reserved.Until.After(t.now)) {
		j.Reserved = nil
	}
}

// reservedFor finds the first job that is reserved for the conductors of a session and matches its request; nil if there
// is none. A request gets one such job at a time.
func (t *txn) reservedFor(session jobs.SessionID, request *jobs.ClaimRequest) (found *jobRecord) {
	if key, _ := t.cursor(tableReserved).First(); key == nil {
		return nil
	}
	passed := 0
	t.eachConductor(session, func(name string) bool {
		t.scan(tableReserved, appendName(nil, name), func(key, _ []byte) bool {
			j := t.job(sequenceAtEnd(key))
			queue := queueOf(&j.jobFacts)
			if queue.Suits(request) && !t.paused(j.Board) && !t.overdue(j) && t.mayGrant(j) {
				found = j
			}
			passed++
			return found == nil && passed < maxPassed
		})
		return found == nil && passed < maxPassed
	})
	return found
}

// anyReserved reports whether a matching job is reserved for the conductors of a session.
func (v *view) anyReserved(session jobs.SessionID, request *jobs.ClaimRequest) (found bool) {
	passed := 0
	v.eachConductor(session, func(name string) bool {
		v.scan(tableReserved, appendName(nil, name), func(key, _ []byte) bool {
			j := v.job(sequenceAtEnd(key))
			queue := queueOf(&j.jobFacts)
			found = queue.Suits(request) && !v.paused(j.Board)
			passed++
			return !found && passed < maxPassed
		})
		return !found && passed < maxPassed
	})
	return found
}

// eachConductor calls do with the names of a session's conductors until it returns false.
func (v *view) eachConductor(session jobs.SessionID, do func(name string) bool) {
	conductors := appendName(append([]byte(nil), session.UUID[:]...), jobs.EntityConductor)
	v.scan(tablePresence, conductors, func(key, _ []byte) bool {
		_, name := entityOfKey(key[idSize:])
		return do(name)
	})
}

// isConductor reports whether a session has a conductor of a name.
func (v *view) isConductor(session jobs.SessionID, name string) (found bool) {
	v.eachConductor(session, func(other string) bool {
		found = other == name
		return !found
	})
	return found
}

// reservedQueues returns the queues to which the reserved jobs of a board will return.
func (v *view) reservedQueues(board string) []Queue {
	var queues []Queue
	v.scan(tableReserved, nil, func(key, _ []byte) bool {
		if j := v.job(sequenceAtEnd(key)); j.Board == board {
			queues = append(queues, queueOf(&j.jobFacts))
		}
		return true
	})
	return queues
}
