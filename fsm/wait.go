package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/explain"
	"github.com/conductord/conductord/logbook"
)

// A step that waits for a signal has a row in tableWait as long as its wait can take one: while its atom is pending,
// and its open execution has a wait without a signal. The row and the atom change in one entry. When a signal meets a
// wait, the atom gets the signal, and the row is removed. The current or next owner of the job finds the signal in the
// atom, and records the step's result.

// waitKey returns the key of an open wait. The waits of a flow sort by their starts.
func waitKey(flow logbook.FlowID, number uint64, atom uint32) []byte {
	key := append(make([]byte, 0, idSize+8+4), flow.UUID[:]...)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(key, number), atom)
}

// openWait returns the number of the atom's open wait for a signal; 0 if it has none.
func (a *atomRecord) openWait() uint64 {
	if wait := a.detail.OpenWait(); wait.Open() {
		return wait.Number
	}
	return 0
}

// joinWaits completes the waits of a change from the stored attempts. An attempt never waits for anything else than
// what its rows say. An owner may not know the signal that a wait has taken. The signal must not be lost, so an open
// attempt keeps the wait and the signal, and an end without the signal is refused.
func (a *atomRecord) joinWaits(change *logbook.AtomChange) error {
	for i := range change.Attempts {
		attempt := &change.Attempts[i]
		stored := a.waitOf(attempt)
		if stored == nil {
			continue
		}
		if stored.Signal != nil && attempt.Ended() && (attempt.Wait == nil || attempt.Wait.Signal == nil) {
			return fmt.Errorf("%w: step %q took signal %q with id %q; load the flow again", logbook.ErrSignalled, change.Name, stored.Signal.Name, stored.Signal.ID)
		}
		if attempt.Wait != nil {
			kept := *attempt.Wait
			kept.Approval = stored.Approval // the owner may not know the latest decisions
			attempt.Wait = &kept
		}
		if attempt.Ended() {
			continue
		}
		joined := *stored
		if attempt.Wait != nil {
			joined = *attempt.Wait
		}
		joined.Signals, joined.Topic, joined.Key = stored.Signals, stored.Topic, stored.Key // the rows of the wait have them
		if joined.Number = stored.Number; joined.Signal == nil {
			joined.Signal = stored.Signal
		}
		attempt.Wait = &joined
		if joined.Signal != nil {
			change.RetryAt = time.Time{}
		}
	}
	return nil
}

// waitOf returns the wait of the stored attempt that an attempt of a change continues; nil if it has none.
func (a *atomRecord) waitOf(changed *logbook.Attempt) *logbook.Wait {
	for i := range a.detail.Attempts {
		stored := &a.detail.Attempts[i]
		if stored.Action == changed.Action && stored.Number == changed.Number {
			return stored.Wait
		}
	}
	return nil
}

// putWait updates the row of an atom's wait, before the atom is stored. A wait that starts takes the oldest unread
// signal with one of its names. j is nil for a flow without an unfinished job.
func (t *txn) putWait(flow logbook.FlowID, a *atomRecord, j *jobRecord) {
	wait := a.detail.OpenWait()
	if wait.Open() && wait.Number == 0 {
		started := *wait
		started.Number = t.Index
		wait = &started
		a.detail.Attempts[len(a.detail.Attempts)-1].Wait = wait
	}
	if now := a.openWait(); now != a.waited {
		if a.waited != 0 {
			t.deleteWait(flow, a)
		}
		if now != 0 && !t.takeUnread(a, j) && !t.takeKept(a, j) {
			if wait.Approval != nil {
				t.putApproval(flow, a, wait, time.Time{})
				if j != nil {
					t.eventOfApproval(jobs.EventApprovalRequested, j, a.detail.Name, wait.Approval)
				}
			}
			row := &v1.WaitRow{Step: a.detail.Name, Signals: wait.Signals}
			t.subscribe(flow, a, wait, row, j)
			t.putMessage(tableWait, waitKey(flow, now, a.number), nil, row)
		}
	}
	a.waited = a.openWait()
}

// takeUnread gives an open wait the oldest unread signal of its job that the wait can take; false if there is none.
func (t *txn) takeUnread(a *atomRecord, j *jobRecord) bool {
	if j == nil || j.UnreadSignals == 0 {
		return false
	}
	var key []byte
	var found *logbook.Signal
	t.scan(tableSignal, sequenceKey(j.Sequence), func(k, value []byte) bool {
		signal := decode(value, &v1.Signal{}, command.SignalFromProto)
		if a.detail.OpenWait().Takes(signal.Name) {
			key, found = bytes.Clone(k), signal
		}
		return found == nil
	})
	if found == nil {
		return false
	}
	t.delete(tableSignal, key)
	j.UnreadSignals--
	j.signalBytes -= uint64(found.Size())
	a.detail.Take(found)
	t.hurry(j)
	t.eventOfSignal(j, found.Name, a.detail.Name)
	return true
}

// deliver gives a signal to the job's oldest wait for it, and returns the waiting step; empty if none waits.
func (t *txn) deliver(j *jobRecord, signal *logbook.Signal) (step string) {
	key, step := t.waitFor(j, signal.Name)
	if key == nil {
		return ""
	}
	t.forgetRunning(j.Flow)
	atom := decodeAtom(t.get(tableAtom, atomKey(j.Flow, step)))
	atom.detail.Take(signal)
	t.delete(tableWait, key)
	atom.waited = 0
	t.saveAtom(j.Flow, atom)
	return step
}

// awaits reports whether a step of a job waits for a signal.
func (v *view) awaits(j *jobRecord, signal string) bool {
	key, _ := v.waitFor(j, signal)
	return key != nil
}

// QueueOfSignal returns the queue in which a waiting job becomes claimable when it receives a signal. It returns false
// if no step waits for the signal, or if only some conductors can claim the job.
func (m *Machine) QueueOfSignal(c *v1.SignalCommand) (queue Queue, claimable bool) {
	err := m.read(func(v *view) error {
		j, err := v.addressed(c)
		if err == nil && j != nil && j.isClaimedByNext() {
			queue, claimable = queueOf(&j.jobFacts), v.awaits(j, c.GetName())
		}
		return err
	})
	return queue, claimable && err == nil
}

// isClaimedByNext reports whether any conductor can claim the job at the end of its wait.
func (j *jobRecord) isClaimedByNext() bool {
	return j.State.Pauses() && j.end != endLost && j.Reserved == nil
}

// addressed returns the job that a new signal reaches; nil if no unfinished job has its key.
func (v *view) addressed(c *v1.SignalCommand) (*jobRecord, error) {
	if c.GetKey() != "" {
		return v.holderOf(c.GetBoard(), c.GetKey()), nil
	}
	id, err := jobs.ParseJobID(c.GetJob())
	if err != nil {
		return nil, err
	}
	return v.jobByID(id)
}

// waitFor returns the oldest wait of a job for a signal, and its step; nil if there is none.
func (v *view) waitFor(j *jobRecord, signal string) (key []byte, step string) {
	if j.Flow.IsZero() {
		return nil, ""
	}
	v.scan(tableWait, j.Flow.UUID[:], func(k, value []byte) bool {
		if row := decodeMessage(value, &v1.WaitRow{}); slices.Contains(row.GetSignals(), signal) {
			key, step = bytes.Clone(k), row.GetStep()
		}
		return key == nil
	})
	return key, step
}

// awaited describes the oldest wait of a job for a signal, a publication or an approval; zero if none waits.
func (v *view) awaited(j *jobRecord) (wait explain.Wait) {
	if j.Flow.IsZero() {
		return wait
	}
	v.scan(tableWait, j.Flow.UUID[:], func(_, value []byte) bool {
		row := decodeMessage(value, &v1.WaitRow{})
		switch signals := row.GetSignals(); {
		case len(signals) > 0:
			wait.Signal = signals[0]
		case row.GetTopic() != "":
			wait.Board, wait.Topic, wait.Key = row.GetBoard(), row.GetTopic(), row.GetKey()
		default:
			wait.Approval = row.GetStep()
			if a, err := v.findApproval(j.ID, row.GetStep()); err == nil && len(a.wait.Approval.Decisions) > 0 {
				wait.Missing = a.wait.Approval.Missing()
			}
		}
		return false
	})
	return wait
}

// forgetRunning removes the cached atom of a flow, because the caller changes atoms of the flow.
func (t *txn) forgetRunning(flow logbook.FlowID) {
	if known := t.flows[flow]; known != nil {
		known.running = nil
	}
}

// hurry lets a job whose step has taken a signal continue. The owner of a claimed job may not know the signal,
// so the delay of its abandon does not apply. The job no longer cools, unless its owner was lost. The caller
// does not store the job.
func (t *txn) hurry(j *jobRecord) {
	switch {
	case j.Claim != nil:
		j.hurried = true
		t.putJob(j)
		return
	case j.end != endLost: // also of a suspended job, which would cool after its resume
		j.cooled = time.Time{}
	}
	t.placeJob(j)
}

// eventOfSignal records that a job has received a signal, or that a step has taken it. The owner of a claimed job
// gets the event too.
func (t *txn) eventOfSignal(j *jobRecord, name, step string) {
	event := jobs.Event{Signal: name}
	if step != "" {
		event.Steps = []jobs.StepEvent{{Name: step, State: string(logbook.AtomPending)}}
	}
	if j.Claim != nil {
		event.Owner, event.Token = j.Claim.Owner, j.Token
	}
	t.event(jobs.EventSignalled, j, event)
}
