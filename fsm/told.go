package fsm

import (
	"bytes"
	"encoding/binary"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
)

// toldBytes is how many bytes of events make a row. An entry that posts hundreds of
// jobs tells of each of them: a row for each event, which is put and later dropped,
// would cost more than it takes to make the event. Two rows are one block of the
// tables.
const toldBytes = 1_800

// told are the events of the present entry that have not been put yet, each behind
// its length. Their positions follow each other. No row has those of two entries.
type told struct {
	first jobs.Position
	row   []byte
}

// tell puts an event behind those that were told before it.
func (t *txn) tell(position jobs.Position, event []byte) {
	told := &t.memory.told
	if len(told.row) == 0 {
		told.first = position
	}
	told.row = append(binary.AppendUvarint(told.row, uint64(len(event))), event...)
	t.writes++
	if len(told.row) >= toldBytes {
		t.putTold()
	}
}

// putTold writes what has been told.
func (t *txn) putTold() {
	if told := &t.memory.told; len(told.row) > 0 {
		t.put(tableEvent, positionKey(told.first), told.row)
		told.row = told.row[:0]
	}
}

// eachTold calls a function with every event of a row, in order, until it has seen
// enough, and tells whether it has seen all.
func eachTold(key, row []byte, each func(position jobs.Position, event []byte) (more bool)) (all bool, err error) {
	position, err := positionOfKey(key)
	if err != nil {
		return false, err
	}
	for ; len(row) > 0; position.Item++ {
		size, header := binary.Uvarint(row)
		if header <= 0 || size > uint64(len(row)-header) {
			return false, corrupt("the events from %d-%d on are cut short", position.Index, position.Item)
		}
		end := header + int(size)
		if !each(position, row[header:end]) {
			return false, nil
		}
		row = row[end:]
	}
	return true, nil
}

// toldAt finds the first row that may have an event behind a position: that in
// which the position is, or the next one.
func toldAt(cursor *tables.Cursor, after jobs.Position) (key, row []byte) {
	start := positionKey(after)
	key, row = cursor.Seek(start)
	if bytes.Equal(key, start) {
		return key, row
	}
	step := cursor.Prev
	if key == nil {
		step = cursor.Last
	}
	if key, row = step(); key == nil {
		return cursor.First()
	}
	return key, row
}
