package fsm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/logbook"
)

// post posts jobs to boards, each with its own verdict: a refused posting does not prevent the
// others. So the command itself is never refused.
func (t *txn) post(c *v1.PostCommand) (*v1.Result, error) {
	var answer []*v1.Posted
	var items []v1.Posted // for the answer
	if t.answered {
		answer, items = make([]*v1.Posted, len(c.GetPostings())), make([]v1.Posted, len(c.GetPostings()))
	}
	for i, posting := range c.GetPostings() {
		before := t.writes
		posted, err := t.postOne(posting)
		if err != nil && t.writes != before {
			panic(corrupt("cannot post job %s: %w", posting.GetId(), err))
		}
		if t.answered {
			item := &items[i]
			item.Job, item.Existed, item.Posted, item.Error = posted.job, posted.existed, posted.as, command.ErrorToProto(err)
			item.Signal = command.SignalReceiptToProto(posted.signal)
			answer[i] = item
		}
	}
	if !t.answered {
		return nil, nil
	}
	return &v1.Result{Kind: &v1.Result_Post{Post: &v1.PostResult{Posted: answer}}}, nil
}

// posted is the result of a posting.
type posted struct {
	job     string  // its id, or the id of the existing job; the posting's id if it is refused
	existed bool    // before
	as      *v1.Job // a new job in its current state; nil if no caller reads it
	signal  jobs.SignalReceipt
}

// postOne posts one job.
func (t *txn) postOne(p *v1.Posting) (posted, error) {
	answer := posted{job: p.GetId()}
	posting, err := command.PostingFromProto(p)
	switch {
	case err != nil:
		return answer, err
	case posting.ID.IsZero():
		return answer, &logbook.InvalidError{Field: "job id", Reason: "unset"}
	}
	var digest [command.DigestSize]byte
	digest, t.digest = command.PostingDigest(t.digest, p)
	if known := t.get(tableJobID, posting.ID.UUID[:]); known != nil {
		if answer.existed, err = t.repeatedPost(posting.ID, known, digest[:]); err == nil && posting.Signal != nil {
			answer.signal, err = t.signalPosted(t.job(binary.BigEndian.Uint64(known)), &posting)
		}
		return answer, err
	}
	if holder := t.postingHolder(&posting); holder != nil {
		return t.postAgain(holder, &posting)
	}
	answer.as, answer.signal, err = t.postNew(p, &posting, digest[:])
	return answer, err
}

// postingHolder finds the job that a posting with a key finds instead of a new one; nil: none.
func (t *txn) postingHolder(p *jobs.Posting) *jobRecord {
	if p.Signal == nil {
		return t.holderOf(p.Board, p.Key)
	}
	return t.keyHolder(cmp.Or(p.Board, jobs.DefaultBoard), p.Key, p.Sends().ID)
}

// postAgain applies a posting to the job that has its key.
func (t *txn) postAgain(holder *jobRecord, p *jobs.Posting) (answer posted, err error) {
	answer.job, answer.existed = holder.ID.String(), true
	if p.Signal != nil {
		if answer.signal, err = t.signalPosted(holder, p); err != nil {
			return answer, err
		}
	}
	if holder.final == "" {
		t.raise(holder, p)
	}
	return answer, nil
}

// signalPosted gives the signal of a posting to a job.
func (t *txn) signalPosted(j *jobRecord, p *jobs.Posting) (jobs.SignalReceipt, error) {
	return t.receive(j, cmp.Or(p.Board, jobs.DefaultBoard), p.Sends())
}

// postNew posts a job that does not exist yet. It returns the job's current state, so that the
// answer needs no second read.
func (t *txn) postNew(p *v1.Posting, posting *jobs.Posting, digest []byte) (*v1.Job, jobs.SignalReceipt, error) {
	var receipt jobs.SignalReceipt
	work, err := t.planWork(posting)
	if err != nil {
		return nil, receipt, fmt.Errorf("cannot post job %s: %w", posting.ID, err)
	}
	j, err := t.newJob(posting, work)
	if err != nil {
		return nil, receipt, err
	}
	j.Size = uint64(command.SizeOf(p))
	if err := t.admit(j); err != nil {
		return nil, receipt, fmt.Errorf("cannot post job %s: %w", posting.ID, err)
	}
	t.Sequence++
	j.Sequence = t.Sequence
	known := binary.BigEndian.AppendUint64(t.memory.room(sequenceSize+len(digest)), j.Sequence)
	t.put(tableJobID, j.ID.UUID[:], append(known, digest...))
	t.savePosting(j, p)
	t.attach(j, work)
	t.notePosting(j.Board)
	signal, step := posting.Sends(), ""
	if signal != nil { // before the job is stored, because a command stores a new job once
		step = t.accept(j, j.Board, signal)
		receipt = receiptOf(j, step)
	}
	t.placeJob(j)
	t.changes.Posted++
	t.event(jobs.EventPosted, j, jobs.Event{})
	if signal != nil {
		t.eventOfSignal(j, signal.Name, step)
	}
	if !t.answered {
		return nil, receipt, nil
	}
	message := t.messages.takeJob()
	message.Details, message.Store = p.GetDetails(), p.GetStore()
	return message, receipt, nil
}

// repeatedPost distinguishes a repeat from another posting with the same id.
func (t *txn) repeatedPost(id jobs.JobID, known, digest []byte) (existed bool, err error) {
	if len(known) < sequenceSize || !bytes.Equal(known[sequenceSize:], digest) {
		return false, fmt.Errorf("cannot post job %s: %w: the id belongs to another posting; use a new id", id, jobs.ErrConflict)
	}
	return true, nil
}

// newJob makes the record of a posted job. The record is valid until the next posting.
func (t *txn) newJob(p *jobs.Posting, work work) (*jobRecord, error) {
	j := &t.memory.posted
	*j = jobRecord{jobFacts: jobFacts{Job: jobs.Job{
		ID: p.ID, Board: p.Board, Name: p.Name, Kind: p.Kind, Priority: p.Priority, NotBefore: p.NotBefore,
		PostedAt: t.now, PostedBy: t.by, Traceparent: p.Traceparent, Schedule: t.from.schedule, Slot: t.from.slot,
	}}}
	if j.Board == "" {
		j.Board = jobs.DefaultBoard
	}
	if work.flow != nil {
		flow := work.flow.record
		j.Kind, j.Flow, j.Book, j.BookName = flow.Factory.Name, flow.ID, flow.Book, work.bookName
	}
	if !p.Deadline.IsZero() && !p.Deadline.After(t.now) {
		return nil, &logbook.InvalidError{Field: "posting deadline", Reason: "has passed"}
	}
	j.Deadline, j.DeadlineAfter, j.Retry, j.Retention = t.deadlineOf(p), p.DeadlineAfter, p.Retry, p.Retention
	j.watched = !j.Deadline.IsZero()
	j.Held, j.Key, j.Tags, j.MaxCrashes = p.Hold, p.Key, p.Tags, p.MaxCrashes
	if len(p.Labels) > 0 {
		j.Labels = slices.Sorted(slices.Values(p.Labels))
	}
	if p.Front {
		j.Front = t.Index
	}
	if size := max(len(j.Board), len(j.Kind), len(j.Key), len(labelText(j.Labels))); size > maxKeyName {
		return nil, &logbook.LimitError{Field: "posting board, kind, key or labels", Limit: maxKeyName, Size: int64(size), Unit: "bytes"}
	}
	return j, nil
}

// deadlineOf is the deadline of a posted job; zero: none. A relative deadline counts from the earliest time at which
// the job can start. The slot of a late job is past, so that its deadline could be past too: it counts from the posting.
func (t *txn) deadlineOf(p *jobs.Posting) time.Time {
	if p.DeadlineAfter == 0 {
		return p.Deadline
	}
	from := later(t.now, p.NotBefore)
	if slot := t.from.slot; !slot.IsZero() && t.now.Sub(slot) <= schedules.SlotGrace {
		from = slot
	}
	return from.Add(p.DeadlineAfter)
}

// work is the planned work of a job. Nothing of it is written until the posting is accepted.
type work struct {
	book     *bookPlan // to be saved with the job; nil: none
	bookName string
	flow     *plannedFlow // nil for a job without a flow
}

// planWork finds the flow of a posting, and checks that it is free.
func (t *txn) planWork(p *jobs.Posting) (work, error) {
	switch {
	case p.Book == nil && p.BookID.IsZero() && p.Flow.IsZero():
		return work{}, nil
	case p.Book == nil && p.BookID.IsZero():
		return work{}, &logbook.InvalidError{Field: "posting flow", Reason: "set without a book; a flow is found in its book"}
	case p.Book != nil && !p.BookID.IsZero() && p.BookID != p.Book.ID:
		return work{}, &logbook.InvalidError{Field: "posting book_id", Reason: "differs from the book in the posting"}
	case p.Kind != "":
		return work{}, &logbook.InvalidError{Field: "posting kind", Reason: "set together with a book"}
	}
	var found work
	var err error
	if p.Book != nil {
		found.book, err = t.planBook(p.Book, cmp.Or(p.Board, jobs.DefaultBoard))
	} else {
		found.book, err = t.planSavedBook(p.BookID, cmp.Or(p.Board, jobs.DefaultBoard))
	}
	if err != nil {
		return work{}, err
	}
	found.bookName = found.book.head.Name
	if found.flow, err = t.planFlow(found.book, p.Flow); err != nil {
		return work{}, err
	}
	if found.flow.record.Continued {
		return work{}, errContinued(found.flow.record)
	}
	if other := found.flow.record.job; other != 0 {
		return work{}, fmt.Errorf("%w: flow %s belongs to job number %d, which is not finished", jobs.ErrConflict, found.flow.record.ID, other)
	}
	return found, nil
}

// attach connects the flow to its job, and writes the flow's book.
func (t *txn) attach(j *jobRecord, work work) {
	if work.flow == nil {
		return
	}
	work.flow.record.job, work.flow.record.last = j.Sequence, j.Sequence
	work.flow.save = true
	t.writeBook(work.book)
	t.addCount(tableBookJobs, j.Book.UUID[:], 1)
	t.moveSubscriptions(j, false)
}
