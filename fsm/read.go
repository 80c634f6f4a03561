package fsm

import (
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Job reads a job. ErrNotFound.
func (m *Machine) Job(id jobs.JobID) (jobs.Job, error) {
	found, err := m.JobsByID(id)
	if err != nil {
		return jobs.Job{}, err
	}
	return found[0], nil
}

// FinishedJob reads a job if it is finished, as a message for the caller; otherwise nil. stopped:
// the job is unfinished and needs an operator. It converts nothing, because a caller waits for
// nearly every job. ErrNotFound.
func (m *Machine) FinishedJob(id jobs.JobID) (job *v1.Job, stopped bool, err error) {
	err = m.read(func(v *view) error {
		sequence, err := v.sequenceOf(id)
		if err == nil {
			job, stopped = v.finishedJob(sequence)
		}
		return err
	})
	return job, stopped, err
}

func (v *view) finishedJob(sequence uint64) (job *v1.Job, stopped bool) {
	key := sequenceKey(sequence)
	value := v.get(tableJob, key)
	if state := jobs.States[storedState(sequence, value)]; !state.Finished() {
		return nil, state.NeedsOperator()
	}
	job = decodeMessage(value[jobPrefixSize:], &v1.JobRow{}).Job
	if value := v.get(tablePosting, key); value != nil {
		posting := decodeMessage(value, &v1.PostingRow{})
		job.Details, job.Store = posting.Details, posting.Store
	}
	if value := v.get(tableEvidence, key); value != nil {
		job.Failure = decodeMessage(value, &v1.Failure{})
	}
	return job, false
}

// JobAt is Job, with the fields that depend on the time, such as the effective priority.
func (m *Machine) JobAt(id jobs.JobID, now time.Time) (job jobs.Job, err error) {
	err = m.read(func(v *view) error {
		j, err := v.jobByID(id)
		if err != nil {
			return err
		}
		job = v.complete(j)
		job.Effective = v.effective(j, now)
		return nil
	})
	return job, err
}

// JobsByID reads jobs in one consistent state, in the order of the ids. It returns ErrNotFound if
// one of them does not exist.
func (m *Machine) JobsByID(ids ...jobs.JobID) ([]jobs.Job, error) {
	found := make([]jobs.Job, len(ids))
	err := m.read(func(v *view) error {
		for i, id := range ids {
			j, err := v.jobByID(id)
			if err != nil {
				return err
			}
			found[i] = v.complete(j)
		}
		return nil
	})
	return found, err
}

// Jobs reads a page of jobs in the order of the query, without details and store.
func (m *Machine) Jobs(query jobs.Query) (jobs.Page[jobs.Job], error) {
	var page jobs.Page[jobs.Job]
	if err := jobs.CheckQuery(&query); err != nil {
		return page, err
	}
	err := m.read(func(v *view) error {
		var err error
		page, err = v.jobs(query, pageSize(query.Limit))
		return err
	})
	return page, err
}

// Claimed reads a job with its book and its flow, as the answer to a claim. If the stored atoms of
// the flow take more than maxFlowBytes, it omits the flow, and sets flowOmitted; with 0, it omits
// every flow with atoms. ErrNotFound.
func (m *Machine) Claimed(id jobs.JobID, maxFlowBytes int) (claimed jobs.Claimed, flowOmitted bool, err error) {
	err = m.read(func(v *view) error {
		j, err := v.jobByID(id)
		if err != nil {
			return err
		}
		if claimed.Job = v.complete(j); j.Flow.IsZero() {
			return nil
		}
		book, found := v.book(j.Book)
		if !found {
			return nil // a finished job can outlive its book
		}
		claimed.Book = &book
		record := v.flow(j.Flow)
		if record == nil {
			return nil
		}
		flow, more := v.wholeFlow(record, Part{MaxBytes: maxFlowBytes}, 0)
		if flowOmitted = more; !more {
			claimed.Flow = &flow
		}
		return nil
	})
	return claimed, flowOmitted, err
}

// Part selects a part of a flow for a read.
type Part struct {
	Skip      int  // atoms to leave out, in the order in which they were first recorded
	AtomsOnly bool // omit the plan, the cause, the definition and the interventions too
	// MaxBytes limits the stored bytes of the part; further atoms are omitted. Unbounded: no limit.
	MaxBytes int
}

// Flow reads a part of a flow with its atoms and their attempts. It reads at least one atom,
// unless the flow without atoms already takes MaxBytes. More reports whether atoms follow.
// ErrNotFound.
func (m *Machine) Flow(id logbook.FlowID, part Part) (flow logbook.FlowDetail, more bool, err error) {
	err = m.read(func(v *view) error {
		record := v.flow(id)
		if record == nil {
			return fmt.Errorf("flow %s: %w", id, logbook.ErrNotFound)
		}
		part.Skip = max(part.Skip, 0)
		flow, more = v.wholeFlow(record, part, 1)
		return nil
	})
	return flow, more, err
}

// Attempt reads an attempt at a step, and whether it is the latest. The attempt is zero if it is
// unknown, or folded into the counts of the step.
func (m *Machine) Attempt(flow logbook.FlowID, step string, action logbook.Action, number int) (attempt logbook.Attempt, latest bool, err error) {
	if step == "" || len(step) > maxKeyName {
		return attempt, false, nil
	}
	err = m.read(func(v *view) error {
		value := v.get(tableAtom, atomKey(flow, step))
		if value == nil {
			return nil
		}
		record := decodeAtom(value)
		if len(record.detail.Attempts) == 0 {
			return nil
		}
		attempt = record.detail.Attempts[0]
		if latest = attempt.Action == action && attempt.Number == number; latest {
			return nil
		}
		attempt = logbook.Attempt{}
		if value := v.get(tableAttempt, attemptKey(flow, record.number, action, number)); value != nil {
			_, attempt = decodeAttempt(value)
		}
		return nil
	})
	return attempt, latest, err
}

// Checkpointed returns the number of the latest checkpoint that the worker of an open attempt has recorded; 0: none, or
// the attempt is not the open one.
func (m *Machine) Checkpointed(flow logbook.FlowID, step string, action logbook.Action, number, asked int) (recorded int, err error) {
	err = m.read(func(v *view) error {
		value := v.get(tableAtom, atomKey(flow, step))
		if value == nil {
			return nil
		}
		detail := &decodeAtom(value).detail
		if len(detail.Attempts) == 0 || detail.Checkpoints == nil {
			return nil
		}
		if a := &detail.Attempts[0]; a.Action == action && a.Number == number && a.Asked == asked && !a.Ended() {
			recorded = detail.Checkpoints.Number
		}
		return nil
	})
	return recorded, err
}

// FailedWorkers returns the sessions of the workers with failed or lost attempts at a step in the
// current round. A round starts when the step is reset or its other action starts.
func (m *Machine) FailedWorkers(flow logbook.FlowID, step string, action logbook.Action) (workers []string, err error) {
	if step == "" || len(step) > maxKeyName {
		return nil, nil
	}
	err = m.read(func(v *view) error {
		value := v.get(tableAtom, atomKey(flow, step))
		if value == nil {
			return nil
		}
		stored := v.earlierAttempts(flow, decodeAtom(value))
		for i := len(stored) - 1; i >= 0; i-- {
			_, attempt := decodeAttempt(stored[i])
			if attempt.Action != action {
				break
			}
			if attempt.Failure != nil && attempt.Worker != "" {
				workers = append(workers, attempt.Worker)
			}
		}
		return nil
	})
	return workers, err
}

// wholeFlow reads a flow with its atoms, in the order of their first record. It skips the
// given number of atoms and then reads as many as fit, at least least if the rest of the flow
// fits. Atoms are stored by name, so wholeFlow reads their places first.
func (v *view) wholeFlow(record *flowRecord, part Part, least int) (flow logbook.FlowDetail, more bool) {
	whole, total := v.flowHead(record, part.AtomsOnly)
	values := v.atomValues(record)
	if part.MaxBytes >= 0 && total > part.MaxBytes {
		least = 0
	}
	for i := part.Skip; i < len(values); i++ {
		atom, size := v.wholeAtom(record.ID, values[i])
		total += size
		if part.MaxBytes >= 0 && total > part.MaxBytes && i >= part.Skip+least {
			return *whole, true
		}
		whole.Atoms = append(whole.Atoms, atom)
	}
	return *whole, false
}

// flowHead reads a flow without its atoms, and returns its stored size without its record, which is
// short.
func (v *view) flowHead(record *flowRecord, short bool) (head *logbook.FlowDetail, size int) {
	if short {
		head := record.FlowDetail
		head.Interventions = nil
		return &head, 0
	}
	head = v.flowBody(record)
	told := 0
	head.Definition, size = v.definition(record.built)
	head.Interventions, told = v.answeredInterventions(record)
	return head, size + told + len(v.get(tableFlowBody, record.ID.UUID[:]))
}

// atomValues returns the stored atoms of a flow by number. The values are in bbolt's memory.
func (v *view) atomValues(record *flowRecord) [][]byte {
	values := make([][]byte, record.atoms)
	v.scan(tableAtom, record.ID.UUID[:], func(_, value []byte) bool {
		number := atomNumber(value)
		if number >= record.atoms || values[number] != nil {
			panic(corrupt("flow %s has %d atoms, and one with the number %d", record.ID, record.atoms, number))
		}
		values[number] = value
		return true
	})
	for number, value := range values {
		if value == nil {
			panic(corrupt("atom %d of flow %s is not stored", number, record.ID))
		}
	}
	return values
}

// Book reads a book with its flows, without their atoms. ErrNotFound.
func (m *Machine) Book(id logbook.BookID) (logbook.Book, error) {
	book, _, err := m.BookPart(id, 0, Unbounded)
	return book, err
}

// BookPart reads a book with a part of its flows, without their atoms. It skips a number of
// flows and reads the next ones in posting order, up to maxBytes of stored size, but at least
// one. more reports whether flows follow. ErrNotFound.
func (m *Machine) BookPart(id logbook.BookID, skip, maxBytes int) (book logbook.Book, more bool, err error) {
	err = m.read(func(v *view) error {
		found := false
		if book, found = v.book(id); !found {
			return fmt.Errorf("book %s: %w", id, logbook.ErrNotFound)
		}
		flows := v.flowIDs(id)
		size := len(v.get(tableBook, id.UUID[:]))
		for i := max(skip, 0); i < len(flows); i++ {
			key := flows[i].UUID[:]
			size += len(v.get(tableFlow, key)) + len(v.get(tableFlowBody, key))
			if maxBytes >= 0 && size > maxBytes && len(book.Flows) > 0 {
				more = true
				return nil
			}
			record := v.existingFlow(flows[i])
			whole := v.flowBody(record)
			book.Flows = append(book.Flows, *whole)
		}
		return nil
	})
	return book, more, err
}

// Books reads a page of books without their flows, highest id first, from the page's cursor.
// It reads up to limit books, or fewer if they are long. A limit of 0 or over logbook.MaxPage
// means logbook.MaxPage.
func (m *Machine) Books(after string, limit int) (page logbook.Page[logbook.Book], err error) {
	var last logbook.BookID
	if after != "" {
		if last, err = logbook.ParseBookID(after); err != nil {
			return page, badCursor("books")
		}
	}
	limit = pageSize(limit)
	err = m.read(func(v *view) error {
		cursor := v.cursor(tableBook)
		key, value := cursor.Last()
		if after != "" {
			key, value = cursor.Before(last.UUID[:])
		}
		for size := 0; key != nil; key, value = cursor.Prev() {
			if len(page.Items) == limit || size >= maxPageBytes {
				page.Next = page.Items[len(page.Items)-1].ID.String()
				return nil
			}
			size += len(value)
			book := decode(value, &v1.Book{}, command.BookFromProto)
			page.Items = append(page.Items, book)
		}
		return nil
	})
	return page, err
}

// Session reads an open session. ErrSessionExpired.
func (m *Machine) Session(id jobs.SessionID) (jobs.Session, error) {
	var session jobs.Session
	err := m.read(func(v *view) error {
		found := false
		if session, found = v.findSession(id); !found {
			return fmt.Errorf("session %s: %w", id, jobs.ErrSessionExpired)
		}
		session.Claims = len(v.claims(id).held)
		return nil
	})
	return session, err
}
