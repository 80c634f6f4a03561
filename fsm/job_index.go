package fsm

import (
	"bytes"
	"slices"

	"github.com/conductord/conductord/jobs"
)

// jobIndexKey returns a key of tableJobIndex: by key, tag, type of error, or for trashed jobs.
func jobIndexKey(by byte, name string, sequence uint64) []byte {
	return append(errorIndexKey(by, name), sequenceKey(sequence)...)
}

// index appends the rows of a job in all indexes. The rows depend only on the facts, so no command
// changes an index directly. A new index is a new line here, and a table in keys.go. The keys of
// claimable jobs use memory m, because each posting writes two of them.
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
	case jobs.StateDelayed, jobs.StateCooling, jobs.StateWaiting:
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

// finishedKey returns the key of a finished job in its retention table. Jobs are removed in the order
// of these keys.
func (j *jobFacts) finishedKey() (table, []byte) {
	switch {
	case j.Retention > 0:
		return tableOwn, dueKey(j.FinishedAt.Add(j.Retention), j.Sequence)
	case j.isStuck():
		return tableStuck, sequenceKey(j.finish)
	}
	return tableFinished, sequenceKey(j.finish)
}

// reindex replaces the index rows of the facts was by the rows of the facts is.
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

// countedAs decides which counters of board and ledger count a job.
type countedAs struct {
	stored   bool
	board    string
	state    jobs.State
	holder   jobs.SessionID // session with the claim; zero: not claimed
	parked   bool
	finished table // retention table of a finished job
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

// recount changes the counters from the facts was to the facts is.
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

// count adds by (1 or -1) to the counters of a job.
func (t *txn) count(j *jobFacts, as countedAs, by int) {
	if !as.stored {
		return
	}
	n, state := uint64(by), stateNumber(as.state) // sums wrap around, so adding uint64(-1) subtracts 1
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
