package fsm

import (
	"encoding/binary"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// A job continues when its owner consumes it with a success and a jobs.Continuation. One entry ends the iteration and
// creates the next one: a new flow without records replaces the old flow in the book and in the job. Each flow refers
// to the flow of the previous iteration. The oldest flow is removed when there are more than jobs.KeptIterations.
//
// All records of steps belong to their flow, so marks, attempts, waits, checkpoints and idempotency keys of an iteration
// end with it. Signals belong to the job, so unread signals stay.

// continues reports whether a consume continues its job. A cancelled job ends instead.
func (t *txn) continues(p *parting) bool {
	return p.Again != nil && !p.job.isUnder(jobs.RequestCancel)
}

// beginIteration ends the claim of a job, and starts the next iteration of the job's flow.
func (t *txn) beginIteration(p *parting) error {
	j := p.job
	store, inputs, err := t.nextStores(p)
	if err != nil {
		return err
	}
	ended := t.endedFlow(p)
	if delay := p.Again.Delay; delay > 0 && p.Reason == "" {
		p.Reason = fmt.Sprintf("waits for iteration %d until %s", max(j.Iteration, 1)+1, timeText(t.after(delay)))
	}
	t.part(p, endContinued)
	if p.update == nil {
		t.saveFlow(ended)
	}
	t.keepStore(j, store)
	next := t.nextFlow(j, ended, inputs)
	j.Flow, j.Iteration = next.ID, next.Iteration
	j.StartedAt, j.Crashes, j.Failures, j.Attempts, j.Attempted = time.Time{}, 0, 0, 0, ""
	j.waits = true
	t.settle(j, p.Again.Delay)
	t.event(jobs.EventContinued, j, jobs.Event{Owner: j.LastOwner, Token: j.Token, Outcome: p.Outcome, Iteration: j.Iteration})
	return nil
}

// endedFlow returns the flow of a planned end, as a flow with a later iteration. The caller writes it.
func (t *txn) endedFlow(p *parting) *flowRecord {
	ended := t.existingFlow(p.job.Flow)
	if p.update != nil {
		ended = p.update.flow
	}
	ended.job, ended.Continued = 0, true
	return ended
}

// nextStores returns the stores of the job and of the flow for the next iteration. The job's values override the flow's
// values, so both get the values that the iteration gives. Nothing is written yet.
func (t *txn) nextStores(p *parting) (ofJob, ofFlow logbook.Values, err error) {
	if p.job.Flow.IsZero() {
		return nil, nil, &logbook.InvalidError{Field: "ending again", Reason: fmt.Sprintf("set, but job %s has no flow", p.job.ID)}
	}
	whole := t.complete(p.job)
	if ofJob, err = nextStore("store", whole.Store, p.Again.Store); err != nil {
		return nil, nil, err
	}
	ofFlow, err = nextStore("flow store", t.flowBody(t.existingFlow(p.job.Flow)).Store, p.Again.Store)
	return ofJob, ofFlow, err
}

// nextStore returns a store with the values that an iteration gives to the next one.
func nextStore(field string, before, given logbook.Values) (logbook.Values, error) {
	store := logbook.Values{}
	maps.Copy(store, before)
	maps.Copy(store, given)
	size := 0
	for name, value := range store {
		size += len(name) + len(value)
	}
	switch limit := logbook.MaxLimits.Command; {
	case len(store) > logbook.MaxValues:
		return nil, &logbook.LimitError{Field: field + " of the next iteration", Limit: logbook.MaxValues, Size: int64(len(store)), Unit: "values"}
	case size > limit:
		return nil, &logbook.LimitError{Field: field + " of the next iteration", Limit: int64(limit), Size: int64(size), Unit: "bytes"}
	}
	return store, nil
}

// keepStore replaces the store of a job.
func (t *txn) keepStore(j *jobRecord, store logbook.Values) {
	row := &v1.PostingRow{Store: command.ValuesToProto(store)}
	if value := t.get(tablePosting, sequenceKey(j.Sequence)); value != nil {
		row.Details = decodeMessage(value, &v1.PostingRow{}).GetDetails()
	}
	if row.Details != nil || len(row.Store) > 0 {
		t.putMessage(tablePosting, sequenceKey(j.Sequence), nil, row)
	}
}

// nextFlow creates the flow of the next iteration, with the same plan and this store, in the place of the ended flow.
func (t *txn) nextFlow(j *jobRecord, ended *flowRecord, store logbook.Values) *flowRecord {
	body := t.flowBody(ended)
	next := &flowRecord{FlowDetail: logbook.FlowDetail{
		Book: ended.Book, Name: ended.Name, Factory: logbook.Factory{Name: ended.Factory.Name},
		State: logbook.FlowPending, CreatedAt: t.now, UpdatedAt: t.now,
		Iteration: max(ended.Iteration, 1) + 1, Previous: ended.ID, Origin: ended.Origin,
	}, job: j.Sequence, last: j.Sequence}
	if next.Origin.IsZero() {
		next.Origin = ended.ID
	}
	next.ID = t.iterationID(j, next.Iteration)
	body.ID, body.Store, body.Cause = next.ID, store, nil
	t.saveFlow(next)
	t.saveFlowBody(body)
	t.scan(tableBookFlow, ended.Book.UUID[:], func(key, value []byte) bool {
		if string(value) != string(ended.ID.UUID[:]) {
			return true
		}
		t.put(tableBookFlow, append([]byte(nil), key...), next.ID.UUID[:])
		return false
	})
	t.dropIteration(next)
	return next
}

// iterationID makes the id of an iteration's flow. Ids of flows come from clients, so an id can be taken.
func (t *txn) iterationID(j *jobRecord, iteration int) logbook.FlowID {
	for salt := uint64(0); ; salt++ {
		name := binary.BigEndian.AppendUint64([]byte("iteration "), uint64(iteration))
		id := logbook.FlowID{UUID: uuid.NewSHA1(j.ID.UUID, binary.BigEndian.AppendUint64(name, salt))}
		if t.flow(id) == nil && !t.isGarbage(id) {
			return id
		}
	}
}

// dropIteration removes the oldest iteration before a new one, if there are too many.
func (t *txn) dropIteration(next *flowRecord) {
	var last *flowRecord
	kept := next
	for n := 1; n < jobs.KeptIterations && !kept.Previous.IsZero(); n++ {
		kept = t.existingFlow(kept.Previous)
		last = kept
	}
	if last == nil || last.Previous.IsZero() {
		return
	}
	room := max(t.removable(), minRemoved)
	t.removeFlow(t.existingFlow(last.Previous), &room)
	last.Previous = logbook.FlowID{}
	t.saveFlow(last)
}
