package fsm

import (
	"bytes"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

const (
	// maxErrorText bounds the texts of a kept error, so that the errors of a job take at most 400 KiB.
	// The job and its flow keep the whole failure.
	maxErrorText = 8 << 10
	// maxErrorCauses bounds its causes.
	maxErrorCauses = 8
)

// recordError records a failed attempt at a job. It must follow the event of the attempt, whose position it uses. Beyond
// jobs.MaxJobErrors, it removes the oldest errors of the job.
func (t *txn) recordError(j *jobRecord, how jobs.How, failure *logbook.Failure) {
	e := jobs.JobError{
		Position: t.LastEvent, Job: j.ID, Board: j.Board, Name: j.Name, Kind: j.Kind, Key: j.Key, Flow: j.Flow,
		At: t.now, How: how, Owner: j.LastOwner, Token: j.Token, Reason: j.Reason,
	}
	e.Failure, e.Abridged = abridged(failure)
	position := positionKey(e.Position)
	t.putMessage(tableError, position, nil, command.JobErrorToProto(&e))
	for _, indexKey := range errorIndexKeys(j.Sequence, &e) {
		t.put(tableErrorIndex, append(indexKey, position...), nil)
	}
	t.put(tableJobIndex, jobIndexKey(byType, e.Failure.Kind, j.Sequence), nil)
	t.removeErrors(j, jobs.MaxJobErrors)
}

// removeErrors removes the errors of a job, except the latest keep ones.
func (t *txn) removeErrors(j *jobRecord, keep int) {
	rows := t.keys(tableErrorIndex, errorIndexKey(byJob, string(sequenceKey(j.Sequence))))
	over := max(len(rows)-keep, 0)
	for i, row := range rows[:over] {
		position := row[len(row)-positionSize:]
		e := t.jobError(position)
		if t.lastOfType(e.Failure.Kind, rows[i+1:]) {
			t.delete(tableJobIndex, jobIndexKey(byType, e.Failure.Kind, j.Sequence))
		}
		for _, indexKey := range errorIndexKeys(j.Sequence, &e) {
			t.delete(tableErrorIndex, append(indexKey, position...))
		}
		t.delete(tableError, position)
	}
}

// lastOfType reports whether no error of the rows has the type. Usually the first one has it.
func (v *view) lastOfType(kind string, rows [][]byte) bool {
	for _, row := range rows {
		if v.jobError(row[len(row)-positionSize:]).Failure.Kind == kind {
			return false
		}
	}
	return true
}

func (v *view) jobError(position []byte) jobs.JobError {
	value := v.get(tableError, position)
	if value == nil {
		panic(corrupt("an index refers to error %x, which does not exist", position))
	}
	return decode(value, &v1.JobError{}, command.JobErrorFromProto)
}

// The first byte of an index key is the sort of the index.
const (
	byJob   = 'j'
	byKey   = 'y'
	byType  = 't'
	byKind  = 'k'
	byBoard = 'b'

	// Only for jobs.
	byTag     = 'g'
	byTrashed = 'x'
)

func errorIndexKey(by byte, name string) []byte { return appendName([]byte{by}, name) }

// errorIndexKeys returns the prefixes of an error's index keys.
func errorIndexKeys(sequence uint64, e *jobs.JobError) [][]byte {
	keys := [][]byte{
		errorIndexKey(byJob, string(sequenceKey(sequence))), errorIndexKey(byBoard, e.Board),
		errorIndexKey(byKind, e.Kind), errorIndexKey(byType, e.Failure.Kind),
	}
	if e.Key != "" {
		keys = append(keys, errorIndexKey(byKey, e.Key))
	}
	return keys
}

// abridged returns the part of a failure that is kept. It shortens the stack first, and omits causes beyond the nearest
// ones.
func abridged(f *logbook.Failure) (short logbook.Failure, cut bool) {
	budget := maxErrorText
	take := func(text string, most int) string {
		kept := strings.ToValidUTF8(text[:min(len(text), most, budget)], "")
		cut = cut || len(kept) < len(text)
		budget -= len(kept)
		return kept
	}
	const most = maxErrorText / 4 // of a message, which leaves room for its causes
	short = *f
	short.Kind, short.Causes = kindKept(f.Kind), nil
	short.Message = take(f.Message, most)
	if size := f.Details.Size(); size > budget {
		short.Details, cut = nil, true
	} else {
		budget -= size
	}
	// Readers follow the chain of nearest causes, so it comes before their siblings.
	for rest := f.Causes; len(rest) > 0; {
		if len(short.Causes) >= maxErrorCauses {
			cut = true
			break
		}
		cause := rest[0]
		below := cause.Causes
		cut = cut || cause.Stack != "" || len(cause.Details) > 0
		cause.Causes, cause.Stack, cause.Details = nil, "", nil
		cause.Message = take(cause.Message, most)
		short.Causes = append(short.Causes, cause)
		rest = append(rest[1:len(rest):len(rest)], below...)
	}
	short.Stack = take(f.Stack, budget)
	return short, cut
}

// kindKept shortens a kind to the length of a key.
func kindKept(kind string) string { return strings.ToValidUTF8(kind[:min(len(kind), maxKeyName)], "") }

// maxErrorsExamined bounds the errors that are read for one page of a list. Errors are larger than jobs.
const maxErrorsExamined = 2_000

// Errors reads a page of errors, the latest first.
func (m *Machine) Errors(query jobs.ErrorQuery) (jobs.Page[jobs.JobError], error) {
	var page jobs.Page[jobs.JobError]
	if err := jobs.CheckErrorQuery(&query); err != nil {
		return page, err
	}
	err := m.read(func(v *view) error {
		table, prefix, err := v.indexFor(&query)
		if err != nil {
			return err
		}
		page, err = v.errorsBack(&query, table, prefix)
		return err
	})
	return page, err
}

// indexFor chooses the index for a query.
func (v *view) indexFor(q *jobs.ErrorQuery) (table, []byte, error) {
	name := func(indexKey byte, name string) (table, []byte, error) {
		return tableErrorIndex, errorIndexKey(indexKey, name[:min(len(name), maxKeyName)]), nil
	}
	switch {
	case !q.Job.IsZero():
		j, err := v.jobByID(q.Job)
		if err != nil {
			return 0, nil, err
		}
		return name(byJob, string(sequenceKey(j.Sequence)))
	case q.Key != "":
		return name(byKey, q.Key)
	case q.Type != "":
		return name(byType, q.Type)
	case q.Kind != "":
		return name(byKind, q.Kind)
	case q.Board != "":
		return name(byBoard, q.Board)
	}
	return tableError, nil, nil
}

// errorsBack reads an index backwards, from the latest error on.
func (v *view) errorsBack(q *jobs.ErrorQuery, where table, prefix []byte) (jobs.Page[jobs.JobError], error) {
	page := jobs.Page[jobs.JobError]{Scans: scansErrors(q)}
	limit, examined, size := pageSize(q.Limit), 0, 0
	before, err := v.errorsBefore(q)
	if err != nil {
		return page, err
	}
	cursor := v.cursor(where)
	last := q.After
	key, _ := cursor.Seek(append(bytes.Clone(prefix), before...))
	if key == nil {
		key, _ = cursor.Last()
	} else {
		key, _ = cursor.Prev()
	}
	for ; bytes.HasPrefix(key, prefix) && len(key) == len(prefix)+positionSize; key, _ = cursor.Prev() {
		if len(page.Items) >= limit || examined >= maxErrorsExamined || size >= maxPageBytes {
			page.Next = last
			return page, nil
		}
		examined++
		e := v.jobError(key[len(prefix):])
		if e.At.Before(q.From) {
			return page, nil
		}
		if last = e.Position.String(); !wantsError(q, &e) {
			continue
		}
		size += len(v.get(tableError, key[len(prefix):]))
		page.Items = append(page.Items, e)
	}
	return page, nil
}

// errorsBefore returns the key before which a page starts: the cursor of the query, or the first error that is too late.
// A binary search finds that error, because positions are in the order of time.
func (v *view) errorsBefore(q *jobs.ErrorQuery) ([]byte, error) {
	end := bytes.Repeat([]byte{0xff}, positionSize)
	if q.After != "" {
		position, err := jobs.ParsePosition(q.After)
		if err != nil {
			return nil, badCursor("query")
		}
		end = positionKey(position)
	}
	if q.To.IsZero() {
		return end, nil
	}
	cursor := v.cursor(tableError)
	newest, _ := cursor.Last()
	if newest == nil {
		return end, nil
	}
	latest := positionOfKey(newest)
	first, last := uint64(0), latest.Index+1
	for first < last {
		middle := first + (last-first)/2
		key, value := cursor.Seek(sequenceKey(middle))
		late := key == nil
		if !late {
			e := decode(value, &v1.JobError{}, command.JobErrorFromProto)
			late = !e.At.Before(q.To)
		}
		if late {
			last = middle
		} else {
			first = middle + 1
		}
	}
	if bound := sequenceKey(first); bytes.Compare(bound, end) < 0 {
		return bound, nil
	}
	return end, nil
}

// wantsError reports whether a query selects an error.
func wantsError(q *jobs.ErrorQuery, e *jobs.JobError) bool {
	return (q.Job.IsZero() || e.Job == q.Job) && is(q.Board, e.Board) && is(q.Key, e.Key) && is(q.Kind, e.Kind) &&
		is(q.Type, e.Failure.Kind) && is(string(q.How), string(e.How)) && (q.Code == nil || *q.Code == e.Failure.Code) &&
		(q.To.IsZero() || e.At.Before(q.To)) && !e.At.Before(q.From)
}

// is reports whether a filter matches a word. An empty filter matches all.
func is(wanted, word string) bool { return wanted == "" || wanted == word }

// scansErrors reports whether a query reads errors that it does not select. For one job it returns false, because a job
// has few errors.
func scansErrors(q *jobs.ErrorQuery) bool {
	if !q.Job.IsZero() {
		return false
	}
	filters := 0
	for _, given := range []bool{q.Key != "", q.Type != "", q.Kind != "", q.Board != ""} {
		if given {
			filters++
		}
	}
	return filters > 1 || q.Code != nil || q.How != ""
}
