package fsm

import (
	"bytes"
	"math"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/explain"
	"github.com/conductord/conductord/logbook"
)

// Situation reads all facts that decide whether a job can run at the time now, from one state. ErrNotFound.
func (m *Machine) Situation(id jobs.JobID, now time.Time) (explain.Situation, error) {
	s := explain.Situation{Now: now, Claims: make(map[jobs.SessionID]int), Drains: make(map[string]jobs.Drain)}
	err := m.read(func(v *view) error {
		j, err := v.jobByID(id)
		if err != nil {
			return err
		}
		s.Lost = j.end == endLost
		if s.Job = v.complete(j); j.State != jobs.StateClaimable {
			if j.State == jobs.StateClaimed || j.State.Pauses() && !s.Lost {
				s.Awaits = v.awaited(j)
			}
			if flow := v.flow(j.Flow); flow != nil {
				s.Flow, s.Held = flow.State, flow.State == logbook.FlowFailure && !v.hasFailedRevert(flow.ID)
			}
			return err
		}
		board, _ := v.board(j.Board)
		s.Paused = board.Pause
		s.Conductors = v.entities(jobs.EntityConductor)
		drains := v.drains()
		for _, drain := range drains {
			s.Drains[drain.Conductor] = drain
		}
		for _, conductor := range s.Conductors {
			s.Claims[conductor.Session] = conductor.Held
		}
		s.Ahead, s.First = v.ahead(j)
		return nil
	})
	return s, err
}

// hasFailedRevert reports whether the revert of a step of a flow has failed permanently.
func (v *view) hasFailedRevert(flow logbook.FlowID) (failed bool) {
	v.scan(tableAtom, flow.UUID[:], func(_, value []byte) bool {
		failed = decodeAtom(value).detail.State == logbook.AtomRevertFailure
		return !failed
	})
	return failed
}

// ahead counts the jobs before a claimable job in its queue, up to explain.MaxAhead. first is the priority that would
// give the job the rank of the first job in the queue.
func (v *view) ahead(j *jobRecord) (count int, first jobs.Priority) {
	_, queue := queueKey(queueOf(&j.jobFacts))
	where, own := claimableKey(new(memory), &j.jobFacts)
	cursor := v.cursor(where)
	for key, _ := cursor.Seek(queue); key != nil && count < explain.MaxAhead && bytes.Compare(key, own) < 0; key, _ = cursor.Next() {
		if count++; count > 1 {
			continue
		}
		sequence := sequenceAtEnd(key)
		head := v.job(sequence)
		first = jobs.Priority(min(int64(head.rank())+int64(j.Priority)-int64(j.rank()), math.MaxInt32))
	}
	return count, first
}
