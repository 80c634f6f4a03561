package tables

import (
	"bytes"
	"fmt"

	"github.com/tidwall/btree"
	bolt "go.etcd.io/bbolt"
)

// fillPercent is how full bbolt leaves a page that it splits. Nearly all keys
// are those of a sequence or sort by time, so new ones come at the end: with
// bbolt's 50 % the file, and every snapshot, would be half air.
const fillPercent = 0.9

// flush writes a layer into the file.
func (db *DB) flush(full *layer, done chan<- struct{}) {
	defer close(done)
	err := db.file.Update(func(tx *bolt.Tx) error { return db.write(tx, full) })
	db.mu.Lock()
	defer db.mu.Unlock()
	if err != nil {
		db.failed = fmt.Errorf("cannot write the tables to their file: %w", err)
		return // what cannot be written is still to be read
	}
	db.frozen = nil
}

// write writes a layer in the order of its keys, so that each block is written
// once.
func (db *DB) write(tx *bolt.Tx, full *layer) error {
	m := &db.merge
	defer m.forget()
	for t, written := range full.trees {
		if written == nil {
			continue
		}
		bucket := tx.Bucket([]byte(db.options.Names[t]))
		m.run(bucket.Cursor(), written.Iter())
		if err := m.apply(bucket); err != nil {
			return fmt.Errorf("table %s: %w", db.options.Names[t], err)
		}
		if err := addSum(tx, db.options.Names[t], m.sum); err != nil {
			return err
		}
	}
	return nil
}

// merge brings what was written to a table into its blocks. It reads all of them
// that it needs before it changes one: bbolt's cursors do not know their way among
// pages that have just been emptied.
type merge struct {
	blocks  *bolt.Cursor
	written btree.MapIter[string, []byte]

	// Of the blocks that are being made anew.

	rows    []row
	old     [][]byte // their keys
	atEnd   bool     // none is behind them
	changed bool

	sum     uint64 // by how much the table's sum changes
	changes []row  // blocks by key to be written; nil: the block is deleted
	memory  []byte // for blocks, with room at its end
}

// keptMemory is how much memory for blocks is kept from one flush to the next, at
// most: as much as one of rows that are added in order needs.
const keptMemory = DefaultMemoryBytes

// room gives a slice without length and with that capacity, which is good until
// the flush is over: what was given before stays where it is.
func (m *merge) room(size int) []byte {
	used := len(m.memory)
	if cap(m.memory)-used < size {
		m.memory, used = make([]byte, 0, max(size, min(2*cap(m.memory), keptMemory), blockBytes)), 0
	}
	m.memory = m.memory[:used+size]
	return m.memory[used : used : used+size]
}

// forget lets go of what the flush has read and written.
func (m *merge) forget() {
	clear(m.rows[:cap(m.rows)])
	clear(m.old[:cap(m.old)])
	clear(m.changes[:cap(m.changes)])
	m.blocks, m.written = nil, btree.MapIter[string, []byte]{}
	if m.memory = m.memory[:0]; cap(m.memory) > keptMemory {
		m.memory = nil
	}
}

func (m *merge) run(blocks *bolt.Cursor, written btree.MapIter[string, []byte]) {
	m.blocks, m.written, m.changes, m.sum = blocks, written, m.changes[:0], 0
	for more := m.written.First(); more; {
		m.rows, m.old, m.changed = m.rows[:0], m.old[:0], false
		more = m.gather()
		if m.changed { // else rows were deleted that had never been in the file
			m.replace()
		}
	}
}

// apply changes the table.
func (m *merge) apply(to *bolt.Bucket) (err error) {
	to.FillPercent = fillPercent
	for _, change := range m.changes {
		if change.value == nil {
			err = to.Delete(change.key)
		} else {
			err = to.Put(change.key, change.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gather merges the block in which the next written row belongs with all that was
// written of it, and with the blocks behind it for as long as little is left. No
// block is gathered twice: what was written behind the last one goes with that. It
// reports whether there is more to write.
func (m *merge) gather() (more bool) {
	key, value := m.blocks.Seek(bytesOf(m.written.Key()))
	if m.atEnd = key == nil; m.atEnd {
		key, value = m.blocks.Last()
	}
	for more = true; ; {
		if key != nil {
			m.old = append(m.old, key)
		}
		more = m.mergeBlock(value, key, more)
		enough := !m.changed || sizeOf(m.rows) >= smallBlock
		if m.atEnd || enough && !more {
			return more
		}
		key, value = m.blocks.Next()
		if m.atEnd = key == nil; enough && !m.atEnd {
			return more
		}
	}
}

// mergeBlock adds the rows of a block, as they are with what was written up to
// its key: up to the end, if no block is behind it.
func (m *merge) mergeBlock(old block, until []byte, more bool) bool {
	at := 0
	for ; more; more = m.written.Next() {
		key, value := bytesOf(m.written.Key()), m.written.Value()
		if !m.atEnd && bytes.Compare(key, until) > 0 {
			break
		}
		order := -1
		for ; at < old.rows(); at++ {
			if order = bytes.Compare(old.key(at), key); order >= 0 {
				break
			}
			m.add(old.row(at))
		}
		there := at < old.rows() && order == 0
		if there {
			_, before := old.row(at)
			m.sum -= rowSum(key, before)
			at++
		}
		if value != nil {
			m.sum += rowSum(key, value)
			m.add(key, value)
		}
		m.changed = m.changed || there || value != nil
	}
	for ; at < old.rows(); at++ {
		m.add(old.row(at))
	}
	return more
}

func (m *merge) add(key, value []byte) { m.rows = append(m.rows, row{key, value}) }

// replace has what was gathered stand in the place of the blocks from which it
// comes. The key of the last one stays: the next block begins behind it. At the
// end of the table there is no next one, and rows are likely to be added there: so
// all blocks but the last are full, and elsewhere they have the same room.
func (m *merge) replace() {
	about := blockBytes
	if !m.atEnd {
		size := sizeOf(m.rows)
		about = size / ((size + blockBytes - 1) / blockBytes)
	}
	old := m.old
	for rows := m.rows; len(rows) > 0; {
		many := firstBlock(rows, about)
		key := rows[many-1].key
		if many == len(rows) && !m.atEnd {
			key = m.old[len(m.old)-1]
		}
		for len(old) > 0 && bytes.Compare(old[0], key) <= 0 {
			if !bytes.Equal(old[0], key) {
				m.remove(old[0])
			}
			old = old[1:]
		}
		m.changes = append(m.changes, row{key, appendBlock(m.room(sizeOf(rows[:many])), rows[:many])})
		rows = rows[many:]
	}
	for _, key := range old {
		m.remove(key)
	}
}

func (m *merge) remove(key []byte) { m.changes = append(m.changes, row{key: key}) }
