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

// standing returns the state of a job by its facts, and the time until which it waits, if any. Every combination of
// facts has a state; the first matching line applies:
//
//	final                               completed or trashed
//	claim                               claimed
//	suspended                           suspended  until an operator resumes it
//	held                                held       until an operator releases it
//	cools, and longer than not_before   cooling    until it has cooled; waiting if its flow waits
//	not_before is in the future         delayed    until then; a cancelled job does not wait for it
//	otherwise                           claimable
//
// Commands change only facts, and placeJob sets the state. jobs.State has the diagram of the
// resulting transitions.
func (j *jobFacts) standing(now time.Time) (jobs.State, time.Time) {
	waits, due := jobs.StateCooling, j.cooled
	if j.waits {
		waits = jobs.StateWaiting
	}
	if !j.NotBefore.Before(due) && !j.isUnder(jobs.RequestCancel) {
		waits, due = jobs.StateDelayed, j.NotBefore
	}
	if !due.After(now) {
		waits, due = jobs.StateClaimable, time.Time{}
	}
	switch {
	case j.final != "":
		return j.final, time.Time{}
	case j.Claim != nil:
		return jobs.StateClaimed, time.Time{}
	case j.isUnder(jobs.RequestSuspend):
		return jobs.StateSuspended, due
	case j.Held:
		return jobs.StateHeld, due
	}
	return waits, due
}

func (j *jobFacts) isUnder(kind jobs.RequestKind) bool {
	return j.StopRequest != nil && j.StopRequest.Kind == kind
}

// isParked reports whether a job is parked. A job that was parked and then released, for example to be
// undone, is not parked.
func (j *jobFacts) isParked() bool {
	return j.Parked && (j.State == jobs.StateHeld || j.State == jobs.StateSuspended)
}

// isStuck reports whether a finished job needs an operator: it is trashed, or not all its work could
// be undone. Retention counts such jobs separately, so that other finished jobs do not push them out.
func (j *jobFacts) isStuck() bool {
	return j.State == jobs.StateTrashed || j.Outcome == jobs.OutcomeFailed
}

const jobPrefixSize = 2

// placeJob sets the state of a job by its facts, and stores the job.
func (t *txn) placeJob(j *jobRecord) {
	if j.before().State == jobs.StateClaimable && j.Claims == 0 {
		t.age(j) // the job keeps its age when it is claimable again
	}
	if !j.cooled.After(t.now) || j.final != "" || j.Claim != nil {
		j.cooled, j.waits = time.Time{}, false
	}
	t.placeReservation(j)
	j.State, j.DueAt = j.standing(t.now)
	j.ModifiedAt = t.now
	finishes := j.State.Finished() && j.finish == 0
	if finishes {
		t.noteFinish(j)
	}
	if j.State.NeedsOperator() && !j.before().State.NeedsOperator() {
		t.changes.Stopped = append(t.changes.Stopped, j.ID)
		t.changes.Steps = append(t.changes.Steps, StepChange{Flow: j.Flow})
	}
	switch {
	case j.State != jobs.StateClaimable:
		j.ClaimableAt = time.Time{}
	case j.before().State != jobs.StateClaimable:
		j.ClaimableAt = t.now
	}
	if j.State == jobs.StateClaimable {
		t.age(j)
		t.becameClaimable(queueOf(&j.jobFacts))
	}
	t.putJob(j)
	if finishes {
		t.leaveSchedule(j)
	}
}

// noteFinish records the finish of a job.
func (t *txn) noteFinish(j *jobRecord) {
	if j.Token == t.token() {
		t.use.finish(j.Flow)
	}
	t.Finishes++
	j.FinishedAt, j.finish, j.watched = t.now, t.Finishes, false
	t.changedCounters(j.Board, countersOfBoard, nil).finished.add(t.now)
	t.changes.Finished = append(t.changes.Finished, j.ID)
	t.changes.Steps = append(t.changes.Steps, StepChange{Flow: j.Flow})
	if j.final == jobs.StateTrashed || j.Outcome == jobs.OutcomeFailed || j.Outcome == jobs.OutcomeReverted {
		t.changes.Failed++
	}
}

// closeJob finishes a job.
func (t *txn) closeJob(j *jobRecord, as jobs.State) {
	j.final = as
	t.placeJob(j)
}

// reopenJob restarts a finished or parked job. Earlier failures, crashes and attempts are ignored. The
// caller calls placeJob.
func (t *txn) reopenJob(j *jobRecord) {
	j.final, j.finish, j.StartedAt, j.FinishedAt = "", 0, time.Time{}, time.Time{}
	j.Outcome, j.Reason, j.Crashes, j.Failures, j.Attempts = "", "", 0, 0, 0
	t.setEvidence(j, nil)
	t.ageAnew(j)
}

// putJob stores a job, and updates indexes and counters.
func (t *txn) putJob(j *jobRecord) {
	t.reindex(j.before(), &j.jobFacts)
	t.recount(j.before(), &j.jobFacts)
	row := &t.messages.job
	if row.Job == nil {
		row.Job = new(v1.Job)
	}
	command.FillJob(row.Job, &j.Job)
	row.Job.Details, row.Job.Store, row.Job.Failure = nil, nil, nil
	row.Finish, row.CoolsUntil, row.Waits, row.DeadlineWatched, row.Lag, row.RetryNow = j.finish, command.TimeToProto(j.cooled), j.waits, j.watched, j.lag, j.hurried
	row.Signals, row.SignalBytes = j.signals, j.signalBytes
	t.putMessage(tableJob, sequenceKey(j.Sequence), []byte{byte(j.end), byte(stateNumber(j.State))}, row)
	if j.was == nil {
		j.was = &j.jobFacts
		if !j.Flow.IsZero() { // most of these are claimed soon
			kept := j.jobFacts
			t.known.keep(&kept)
		}
		return
	}
	*j.was = j.jobFacts
	t.known.keep(j.was)
}

func decodeJob(value []byte) *jobRecord {
	if len(value) < jobPrefixSize {
		panic(corrupt("a stored job has %d bytes", len(value)))
	}
	facts := decode(value[jobPrefixSize:], &v1.JobRow{}, factsFromProto)
	facts.end = end(value[0])
	was := facts
	return &jobRecord{jobFacts: facts, was: &was}
}

func factsFromProto(row *v1.JobRow) (jobFacts, error) {
	job, err := command.JobFromProto(row.GetJob())
	if err != nil {
		return jobFacts{}, err
	}
	cooled, err := command.TimeFromProto("job cools_until", row.GetCoolsUntil())
	facts := jobFacts{Job: job, finish: row.GetFinish(), cooled: cooled, waits: row.GetWaits(), watched: row.GetDeadlineWatched(), lag: row.Lag, hurried: row.GetRetryNow(), signals: row.GetSignals(), signalBytes: row.GetSignalBytes()}
	if job.State.Finished() {
		facts.final = job.State
	}
	return facts, err
}

// job reads a job that an index names.
func (v *view) job(sequence uint64) *jobRecord {
	j := v.findJob(sequence)
	if j == nil {
		panic(corrupt("an index refers to job %d, which does not exist", sequence))
	}
	return j
}

// findJob reads a job; nil if there is none.
func (v *view) findJob(sequence uint64) *jobRecord {
	if facts := v.known[sequence]; facts != nil {
		return &jobRecord{jobFacts: *facts, was: facts}
	}
	value := v.get(tableJob, sequenceKey(sequence))
	if value == nil {
		return nil
	}
	j := decodeJob(value)
	v.known.keep(j.was)
	return j
}

// jobByID reads a job by an id from outside. ErrNotFound.
func (v *view) jobByID(id jobs.JobID) (*jobRecord, error) {
	sequence, err := v.sequenceOf(id)
	if err != nil {
		return nil, err
	}
	return v.job(sequence), nil
}

// sequenceOf finds the row of a job. ErrNotFound.
func (v *view) sequenceOf(id jobs.JobID) (uint64, error) {
	value := v.get(tableJobID, id.UUID[:])
	if value == nil {
		return 0, fmt.Errorf("job %s: %w", id, jobs.ErrNotFound)
	}
	if len(value) < sequenceSize {
		panic(corrupt("the entry of job %s has %d bytes", id, len(value)))
	}
	return binary.BigEndian.Uint64(value), nil
}

// storedState returns the state in a job's row, as an index into jobs.States.
func storedState(sequence uint64, row []byte) byte {
	if len(row) < jobPrefixSize || row[1] >= stateCount {
		panic(corrupt("job %d is stored without its state", sequence))
	}
	return row[1]
}

// savePosting writes the constant parts of a job: details and store.
func (t *txn) savePosting(j *jobRecord, posting *v1.Posting) {
	if posting.GetDetails() == nil && len(posting.GetStore()) == 0 {
		return
	}
	kept := &t.messages.posting
	kept.Details, kept.Store = posting.GetDetails(), posting.GetStore()
	t.putMessage(tablePosting, sequenceKey(j.Sequence), nil, kept)
}

// complete adds the parts of a job that have their own tables.
func (v *view) complete(j *jobRecord) jobs.Job {
	job := j.Job
	if value := v.get(tablePosting, sequenceKey(job.Sequence)); value != nil {
		posting := decodeMessage(value, &v1.PostingRow{})
		job.Details, job.Store = command.ValueFromProto(posting.GetDetails()), command.ValuesFromProto(posting.GetStore())
	}
	return v.withEvidence(job)
}

func (v *view) withEvidence(job jobs.Job) jobs.Job {
	if value := v.get(tableEvidence, sequenceKey(job.Sequence)); value != nil {
		job.Failure = command.FailureFromProto(decodeMessage(value, &v1.Failure{}))
	}
	return job
}

// setEvidence replaces the failure of a job's latest ending; nil removes it.
func (t *txn) setEvidence(j *jobRecord, failure *logbook.Failure) {
	key := sequenceKey(j.Sequence)
	switch {
	case failure != nil:
		t.putMessage(tableEvidence, key, nil, command.FailureToProto(failure))
	case t.get(tableEvidence, key) != nil:
		t.delete(tableEvidence, key)
	}
}

// removeJob removes a finished job.
func (t *txn) removeJob(j *jobRecord) {
	t.reindex(j.before(), &unstored)
	t.recount(j.before(), &unstored)
	key := sequenceKey(j.Sequence)
	t.delete(tableJobID, j.ID.UUID[:])
	t.delete(tableJob, key)
	t.delete(tablePosting, key)
	t.delete(tableEvidence, key)
	t.delete(tableChange, key)
	t.removeSignals(j)
	t.removeErrors(j, 0)
	delete(t.known, j.Sequence)
}

// overdue reports whether a job's deadline has passed and the leader has not cancelled the job yet. A
// cancelled job can be claimed again: to undo it, to consume a flow that has ended, or to carry out an
// intervention.
func (t *txn) overdue(j *jobRecord) bool {
	return !j.Deadline.IsZero() && !j.Deadline.After(t.now) && j.watched
}

func deadlineText(j *jobRecord) string { return timeText(j.Deadline) }

func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// owns reports whether the job, or another job of its flow, was claimed in the current entry.
func (t *txn) owns(j *jobRecord) bool { return j.Token == t.token() || t.use.owned[j.Flow] }

// mayGrant reports whether a job can be claimed in the current entry: see entryUse.
func (t *txn) mayGrant(j *jobRecord) bool { return !t.owns(j) && !t.use.intervened[j.Flow] }
