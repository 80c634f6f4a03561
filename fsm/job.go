package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// end is how the last claim of a job ended: a repeat of that ending is
// answered as it was, and any other under its token is refused.
type end byte

const (
	endNone      end = iota // no claim has ended, or there is one now
	endConsumed             // by its owner
	endAbandoned            // by its owner
	endTrashed              // by its owner
	endLost                 // with its session
	endAttempted            // by its owner, with an attempt that has not ended the job
)

// jobRecord is the small, changing part of a job, without Details, Store and
// Failure, which have tables of their own: what changes often is written often
// and must be short.
//
// As stored it is two bytes, the end and the state's number in jobs.States,
// and then the message: a listing by state can tell without decoding.
type jobRecord struct {
	jobs.Job
	end end
	lag *int64 // see rank; nil: it has not been claimable since its board ages jobs
	// counted: as stored, it is one of the parked jobs of its board.
	counted bool
}

// isParked tells whether a job is to be counted as parked: one that has been
// let go, to be undone for example, is not, whatever its policy has said.
func (j *jobRecord) isParked() bool {
	return j.Parked && (j.State == jobs.StateHeld || j.State == jobs.StateSuspended)
}

const jobPrefixSize = 2

// saveJob writes a job.
func (t *txn) saveJob(j *jobRecord) { t.saveJobAs(&t.messages.job, j) }

// saveJobAs writes a job, and leaves what it has written in a message.
func (t *txn) saveJobAs(small *v1.Job, j *jobRecord) {
	t.countParked(j)
	command.FillJob(small, &j.Job)
	small.Details, small.Store, small.Failure, small.Lag = nil, nil, nil, j.lag
	prefix := []byte{byte(j.end), byte(stateNumber(j.State))}
	t.putMessage(tableJob, sequenceKey(j.Sequence), prefix, small)
}

func decodeJob(value []byte) (*jobRecord, error) {
	if len(value) < jobPrefixSize {
		return nil, corrupt("a stored job has %d bytes", len(value))
	}
	message := &v1.Job{}
	job, err := decode(value[jobPrefixSize:], message, command.JobFromProto)
	if err != nil {
		return nil, err
	}
	j := &jobRecord{Job: job, end: end(value[0]), lag: message.Lag}
	j.counted = j.isParked()
	return j, nil
}

// job reads a job that an index says is there.
func (v *view) job(sequence uint64) (*jobRecord, error) {
	value := v.get(tableJob, sequenceKey(sequence))
	if value == nil {
		return nil, corrupt("an index names job %d, and there is none", sequence)
	}
	return decodeJob(value)
}

// jobByID reads a job that somebody asks for. ErrNotFound.
func (v *view) jobByID(id jobs.JobID) (*jobRecord, error) {
	value := v.get(tableJobID, id.UUID[:])
	if value == nil {
		return nil, fmt.Errorf("job %s: %w", id, jobs.ErrNotFound)
	}
	if len(value) < sequenceSize {
		return nil, corrupt("the entry of job %s has %d bytes", id, len(value))
	}
	return v.job(binary.BigEndian.Uint64(value))
}

// savePosting writes what is known from the posting and never changes.
func (t *txn) savePosting(j *jobRecord, posting *v1.Posting) {
	if posting.GetDetails() == nil && len(posting.GetStore()) == 0 {
		return
	}
	kept := &t.messages.posting
	kept.Details, kept.Store = posting.GetDetails(), posting.GetStore()
	t.putMessage(tablePosting, sequenceKey(j.Sequence), nil, kept)
	kept.Details, kept.Store = nil, nil
}

// complete adds the parts of a job that have tables of their own.
func (v *view) complete(j *jobRecord) (jobs.Job, error) {
	job := j.Job
	if value := v.get(tablePosting, sequenceKey(job.Sequence)); value != nil {
		posting, err := decode(value, &v1.Job{}, command.JobFromProto)
		if err != nil {
			return jobs.Job{}, err
		}
		job.Details, job.Store = posting.Details, posting.Store
	}
	return v.withEvidence(job)
}

func (v *view) withEvidence(job jobs.Job) (jobs.Job, error) {
	value := v.get(tableEvidence, sequenceKey(job.Sequence))
	if value == nil {
		return job, nil
	}
	var err error
	job.Failure, err = decode(value, &v1.Failure{}, failureFromProto)
	return job, err
}

func failureFromProto(message *v1.Failure) (*logbook.Failure, error) {
	return command.FailureFromProto(message), nil
}

// setEvidence keeps why the job was let go, instead of the reason before.
func (t *txn) setEvidence(j *jobRecord, failure *logbook.Failure) {
	key := sequenceKey(j.Sequence)
	switch {
	case failure != nil:
		t.putMessage(tableEvidence, key, nil, command.FailureToProto(failure))
	case t.get(tableEvidence, key) != nil:
		t.delete(tableEvidence, key)
	}
}

// move brings a job from the state in which it is to another, and keeps the
// indexes and counters in step. A due time is for delayed and cooling jobs.
func (t *txn) move(j *jobRecord, to jobs.State, due time.Time) {
	before := j.State
	t.leave(j)
	j.State, j.DueAt, j.ModifiedAt = to, due, t.now
	t.noteClaimable(j, before)
	t.enter(j)
	t.saveJob(j)
}

// leave and enter are each other's reverse: what the one removes for a state,
// the other adds.
func (t *txn) leave(j *jobRecord) {
	t.uncount(j)
	switch j.State {
	case jobs.StateClaimable:
		t.delete(claimableKey(j))
		t.delete(lineKey(j))
		if j.Claims == 0 {
			t.age(j) // it keeps what it has waited, however it comes back
		}
	case jobs.StateDelayed, jobs.StateCooling:
		t.delete(tableDue, dueKey(j.DueAt, j.Sequence))
	case jobs.StateCompleted, jobs.StateTrashed:
		t.unfinish(j)
		t.takeKey(j)
		t.delete(tableJobIndex, jobIndexKey(byTrashed, "", j.Sequence))
	}
}

func (t *txn) enter(j *jobRecord) {
	t.count(j)
	switch j.State {
	case jobs.StateClaimable:
		t.age(j)
		queue, inQueue := claimableKey(j)
		t.put(queue, inQueue, nil)
		line, inLine := lineKey(j)
		t.put(line, inLine, nil)
		t.becameClaimable(queueOf(j))
	case jobs.StateDelayed, jobs.StateCooling:
		t.put(tableDue, dueKey(j.DueAt, j.Sequence), nil)
	case jobs.StateCompleted, jobs.StateTrashed:
		t.use.finish(j, t.token())
		t.freeKey(j)
		t.dropDeadline(j)
		j.FinishedAt = t.now
		t.Finishes++
		t.noteFinish(j)
		t.keepFinish(j)
		t.changes.Finished = append(t.changes.Finished, j.ID)
		t.leaveSchedule(j)
		if j.State == jobs.StateTrashed {
			t.put(tableJobIndex, jobIndexKey(byTrashed, "", j.Sequence), nil)
		}
	}
}

// keepFinish puts a job among the finished ones, where its retention is looked
// after.
func (t *txn) keepFinish(j *jobRecord) {
	where, key := tableFinished, sequenceKey(t.Finishes)
	switch {
	case j.Retention > 0:
		where, key = tableOwn, ownKey(j)
		t.Own++
	case isStuck(j):
		where = tableStuck
		t.Stuck++
	}
	t.put(where, key, append(sequenceKey(j.Sequence), timeKey(t.now)...))
}

// ownKey is the place of a finished job that has a retention of its own.
func ownKey(j *jobRecord) []byte { return dueKey(j.FinishedAt.Add(j.Retention), j.Sequence) }

// unfinish removes a job from the finished ones. The number of its finish is
// not kept with it, but the time is, and finishes are in the order of time.
func (t *txn) unfinish(j *jobRecord) {
	row, err := t.finishOf(j)
	if err != nil {
		if t.fault == nil {
			t.fault = err
		}
		return
	}
	j.FinishedAt = time.Time{}
	t.deleteFinish(row)
}

func (t *txn) deleteFinish(row finishedRow) {
	switch row.table {
	case tableStuck:
		t.Stuck--
	case tableOwn:
		t.Own--
	}
	t.delete(row.table, row.key)
}

// isStuck tells whether a finished job waits for a person: nobody could do it,
// or not everything that it did could be undone. Such jobs are counted for
// themselves, so that others which finish do not push them out.
func isStuck(j *jobRecord) bool {
	return j.State == jobs.StateTrashed || j.Outcome == jobs.OutcomeFailed
}

// finishOf finds the row of a job among the finished ones. It looks in both
// tables: the caller may have changed the outcome already.
func (v *view) finishOf(j *jobRecord) (finishedRow, error) {
	if value := v.get(tableOwn, ownKey(j)); value != nil {
		return decodeFinished(tableOwn, ownKey(j), value)
	}
	for _, where := range []table{tableStuck, tableFinished} {
		if row, found, err := v.finishIn(where, j); found || err != nil {
			return row, err
		}
	}
	return finishedRow{}, corrupt("job %s is %s, and not among the finished ones", j.ID, j.State)
}

// finishIn looks for the row of a job in one table: by halves for the first
// finish at its time, and then one by one, past those of the same moment.
func (v *view) finishIn(where table, j *jobRecord) (found finishedRow, ok bool, err error) {
	cursor := v.cursor(where)
	first, last := uint64(0), uint64(0)
	if key, _ := cursor.Last(); len(key) == sequenceSize {
		last = binary.BigEndian.Uint64(key)
	}
	for first < last {
		middle := first + (last-first)/2
		key, value := cursor.Seek(sequenceKey(middle))
		row, err := decodeFinished(where, key, value)
		if err != nil {
			return finishedRow{}, false, err
		}
		if row.at.Before(j.FinishedAt) {
			first = binary.BigEndian.Uint64(key) + 1
		} else {
			last = middle
		}
	}
	for key, value := cursor.Seek(sequenceKey(first)); key != nil; key, value = cursor.Next() {
		row, err := decodeFinished(where, key, value)
		if err != nil || row.sequence == j.Sequence {
			return row, err == nil, err
		}
		if row.at.After(j.FinishedAt) {
			break
		}
	}
	return finishedRow{}, false, nil
}

// removeJob forgets a finished job. Its row among the finished ones is the
// caller's. The error is a fault.
func (t *txn) removeJob(j *jobRecord) error {
	key := sequenceKey(j.Sequence)
	t.uncount(j)
	t.delete(tableJobID, j.ID.UUID[:])
	t.delete(tableJob, key)
	t.delete(tablePosting, key)
	t.delete(tableEvidence, key)
	t.delete(tableChange, key)
	for _, indexKey := range jobIndexKeys(&j.Job) {
		t.delete(tableJobIndex, indexKey)
	}
	return t.removeErrors(j, 0)
}
