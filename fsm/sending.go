package fsm

import (
	"errors"
	"fmt"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// unsent are the signals that an update sends.
type unsent struct {
	atom  *atomRecord
	sends []logbook.Sending // with data; their places in attempt are the same
	place int               // of the attempt in the atom's detail
}

// takeSends removes the data of new signals from the atoms of an update, before the atoms are stored. A signal with an
// answer was sent before.
func takeSends(atoms []*atomRecord) []unsent {
	var all []unsent
	for _, atom := range atoms {
		for i := range atom.detail.Attempts {
			attempt := &atom.detail.Attempts[i]
			if len(attempt.Sends) == 0 || attempt.Sends[0].Answer != "" && attempt.Sends[0].Answer != logbook.SendRefused {
				continue
			}
			found := unsent{atom: atom, sends: attempt.Sends, place: i}
			attempt.Sends = make([]logbook.Sending, len(found.sends))
			for k := range found.sends {
				signal := *found.sends[k].Signal
				signal.Data = nil
				attempt.Sends[k] = found.sends[k]
				attempt.Sends[k].Signal = &signal
			}
			all = append(all, found)
		}
	}
	return all
}

// sendAll sends the signals of an update, after its atoms are stored, because a signal can end a wait of the same flow.
// It records each answer in the attempt. j is the sender's job; nil: the flow has no unfinished job.
func (t *txn) sendAll(flow logbook.FlowID, all []unsent, j *jobRecord) {
	for _, found := range all {
		attempt := &found.atom.detail.Attempts[found.place]
		for k := range found.sends {
			sent := &found.sends[k]
			answer, err := t.send(sent, j)
			if err != nil {
				answer = command.ErrorToProto(err).GetCode()
				if j != nil {
					t.event(jobs.EventUnsent, j, jobs.Event{
						Signal: sent.Signal.Name, Reason: err.Error(), Token: j.Token,
						Steps: []jobs.StepEvent{{Name: found.atom.detail.Name, State: string(found.atom.detail.State)}},
					})
				}
			}
			attempt.Sends[k].Answer = answer
		}
		t.saveAtom(flow, found.atom)
	}
}

// send sends one signal of a step.
func (t *txn) send(sent *logbook.Sending, from *jobRecord) (string, error) {
	// A sender without permission must not learn whether the job exists.
	absent := fmt.Errorf("cannot send signal %q: %w: there is no such job, or the conductor has no permission to signal jobs of its board", sent.Signal.Name, jobs.ErrNotFound)
	if sent.Answer == logbook.SendRefused {
		return "", absent
	}
	order := jobs.SignalCommand{Board: sent.Board, Key: sent.Key, Signal: *sent.Signal}
	if sent.Job != "" {
		id, err := jobs.ParseJobID(sent.Job)
		if err != nil {
			return "", err
		}
		order.Job = id
	}
	if order.Board == "" && from != nil {
		order.Board = from.Board
	}
	to, board, err := t.addressee(&order)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return "", absent
	case err != nil:
		return "", err
	case from != nil && to.ID == from.ID:
		to = from // its record is in use
	}
	receipt, err := t.receive(to, board, &order.Signal)
	return string(receipt.Answer), err
}
