package fsm

import (
	"bytes"
	"encoding/binary"

	"github.com/conductord/conductord/fsm/tables"
	"github.com/conductord/conductord/jobs"
)

// eventRowBytes is the size at which a row of events is full. An entry that posts hundreds of jobs has an event for
// each. Writing and later dropping a row per event would cost more than making the event. Two rows fill a block of the
// tables.
const eventRowBytes = 1_800

// eventBuffer has the events of the current entry that are not in a row yet, each with its length before it. Their
// positions are consecutive. A row has events of one entry only.
type eventBuffer struct {
	first jobs.Position
	row   []byte
}

// bufferEvent appends an event to the buffer.
func (t *txn) bufferEvent(position jobs.Position, event []byte) {
	buffer := &t.memory.events
	if len(buffer.row) == 0 {
		buffer.first = position
	}
	buffer.row = append(binary.AppendUvarint(buffer.row, uint64(len(event))), event...)
	t.writes++
	if len(buffer.row) >= eventRowBytes {
		t.putEvents()
	}
}

// putEvents writes the buffered events as a row.
func (t *txn) putEvents() {
	if buffer := &t.memory.events; len(buffer.row) > 0 {
		t.put(tableEvent, positionKey(buffer.first), buffer.row)
		buffer.row = buffer.row[:0]
	}
}

// eachEvent calls each with every event of a row, in order, until each returns false. It reports whether each got all
// events.
func eachEvent(key, row []byte, each func(position jobs.Position, event []byte) (more bool)) (all bool) {
	position := positionOfKey(key)
	for ; len(row) > 0; position.Item++ {
		size, header := binary.Uvarint(row)
		if header <= 0 || size > uint64(len(row)-header) {
			panic(corrupt("the events from %d-%d on are cut short", position.Index, position.Item))
		}
		end := header + int(size)
		if !each(position, row[header:end]) {
			return false
		}
		row = row[end:]
	}
	return true
}

// eventRowAt finds the first row that can have an event after a position: the row of the position, or the next row.
func eventRowAt(cursor *tables.Cursor, after jobs.Position) (key, row []byte) {
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
