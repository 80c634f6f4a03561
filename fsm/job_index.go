package fsm

import (
	"bytes"
	"slices"

	"github.com/conductord/conductord/jobs"
)

// jobIndexKey is a key of the index by key, tag, type of error, and trash.
func jobIndexKey(by byte, name string, sequence uint64) []byte {
	return append(errorIndexKey(by, name), sequenceKey(sequence)...)
}

// index appends the rows of a job in all indexes. The rows follow from the facts alone, so
// no command changes an index. A new index is a new line here, and a table in keys.go.
// Memory holds the keys of jobs that wait: each posting writes two.
func (j *jobFacts) index(m *memory, rows []indexRow) []indexRow {
	add := func(table table, key, value []byte) { rows = append(rows, indexRow{table, key, value}) }
	if j.Sequence == 0 {
		return rows // not stored
	}
	for _, tag := range j.Tags {
		add(tableJobIndex, jobIndexKey(byTag, tag, j.Sequence), nil)
	}
	if j.Key != "" {
		add(tableJobIndex, jobIndexKey(byKey, j.Key, j.Sequence), nil)
		if !j.State.Finished() {
			add(tableKey, keyKey(j.Board, j.Key), sequenceKey(j.Sequence))
		}
	}
	if j.watched {
		add(tableDeadline, dueKey(j.Deadline, j.Sequence), nil)
	}
	switch j.State {
	case jobs.StateClaimable:
		if j.Reserved != nil {
			add(tableReserved, append(appendName(nil, j.Reserved.Conductor), sequenceKey(j.Sequence)...), nil)
			add(tableDue, dueKey(j.Reserved.Until, j.Sequence), nil)
		} else {
			queue, key := claimableKey(m, j)
			add(queue, key, nil)
			where, key := anyKindKey(m, j)
			add(where, key, nil)
		}
	case jobs.StateDelayed, jobs.StateCooling:
		add(tableDue, dueKey(j.DueAt, j.Sequence), nil)
	case jobs.StateTrashed:
		add(tableJobIndex, jobIndexKey(byTrashed, "", j.Sequence), nil)
	}
	if j.State.Finished() {
		where, key := j.finishedKey()
		add(where, key, appendTime(append(m.room(sequenceSize+dueTimeSize), sequenceKey(j.Sequence)...), j.FinishedAt))
	}
	return rows
}

// finishedKey is the place of a finished job among those that its retention
// follows, in the order in which they are removed.
func (j *jobFacts) finishedKey() (table, []byte) {
	switch {
	case j.Retention > 0:
		return tableOwn, dueKey(j.FinishedAt.Add(j.Retention), j.Sequence)
	case j.isStuck():
		return tableStuck, sequenceKey(j.finish)
	}
	return tableFinished, sequenceKey(j.finish)
}

// reindex brings the indexes from what they hold of a job to what they should hold.
func (t *txn) reindex(was, is *jobFacts) {
	t.memory.before, t.memory.after = was.index(t.memory, t.memory.before[:0]), is.index(t.memory, t.memory.after[:0])
	before, after := t.memory.before, t.memory.after
	in := func(rows []indexRow, row *indexRow) bool {
		return slices.ContainsFunc(rows, func(other indexRow) bool {
			return other.table == row.table && bytes.Equal(other.key, row.key) && bytes.Equal(other.value, row.value)
		})
	}
	for i := range before {
		if !in(after, &before[i]) {
			t.delete(before[i].table, before[i].key)
		}
	}
	for i := range after {
		if !in(before, &after[i]) {
			t.put(after[i].table, after[i].key, after[i].value)
		}
	}
}

// countedAs is what a job counts for, in the counters of its board and of the
// ledger.
type countedAs struct {
	stored   bool
	board    string
	state    jobs.State
	holder   jobs.SessionID // zero: it is not claimed
	parked   bool
	finished table // where finished jobs are, by their retention
}

func (j *jobFacts) countedAs() countedAs {
	c := countedAs{stored: j.Sequence != 0, board: j.Board, state: j.State, parked: j.isParked()}
	if j.Claim != nil {
		c.holder = j.Claim.Session
	}
	if j.State.Finished() {
		c.finished, _ = j.finishedKey()
	}
	return c
}

// recount brings the counters from one to the other.
func (t *txn) recount(was, is *jobFacts) {
	t.countWaiting(was, -1)
	t.countWaiting(is, 1)
	before, after := was.countedAs(), is.countedAs()
	if before == after {
		return
	}
	t.count(was, before, -1)
	t.count(is, after, 1)
	moves := before.board != after.board
	if after.active() && (moves || !before.active()) {
		t.countUse(is, 1)
	}
	if before.active() && (moves || !after.active()) {
		t.countUse(was, -1)
	}
}

// active reports whether the job counts as unfinished.
func (c *countedAs) active() bool { return c.stored && !c.state.Finished() }

// count adds a job to the counters, or takes it from them.
func (t *txn) count(j *jobFacts, as countedAs, by int) {
	if !as.stored {
		return
	}
	n, state := uint64(by), stateNumber(as.state) // sums wrap around, so that -1 takes away
	t.Jobs[state] += n
	t.changedCounters(j.Board, countersOfKind, []byte(j.Kind)).jobs[state] += n
	board := t.changedCounters(j.Board, countersOfBoard, nil)
	board.jobs[state] += n
	if !as.state.Finished() {
		board.bytes += n * j.Size
	}
	if !as.holder.IsZero() {
		t.changedCounters(j.Board, countersOfHolder, as.holder.UUID[:]).jobs[state] += n
	}
	if as.parked {
		t.addCount(tableParked, []byte(j.Board), by)
	}
	switch as.finished {
	case tableStuck:
		t.Stuck += n
	case tableOwn:
		t.Own += n
	}
}
