package tables

import (
	"bytes"
	"fmt"

	"github.com/tidwall/btree"
	bolt "go.etcd.io/bbolt"
)

// fillPercent is the share of a page that bbolt fills when it splits the page. Nearly all keys are
// sequences or sort by time, so new keys are at the end: with bbolt's default of 50 %, half of the
// file and of every snapshot would be empty.
const fillPercent = 0.9

// flush writes a layer into the file.
func (db *DB) flush(full *layer, done chan<- struct{}) {
	defer close(done)
	err := db.file.Update(func(tx *bolt.Tx) error { return db.write(tx, full) })
	db.mu.Lock()
	defer db.mu.Unlock()
	if err != nil {
		db.failed = fmt.Errorf("cannot write the tables to their file: %w", err)
		return // unwritten rows must remain readable
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

// merge adds the written rows of a table to its blocks. It reads all necessary blocks before it
// changes one: bbolt's cursors do not work on pages that have just been emptied.
type merge struct {
	blocks  *bolt.Cursor
	written btree.MapIter[string, []byte]

	// The blocks that are being rewritten.

	rows    []row
	old     [][]byte // their keys
	atEnd   bool     // no block follows them
	changed bool

	sum     uint64 // change of the table's sum
	changes []row  // blocks by key to be written; nil: the block is deleted
	memory  []byte // for blocks, with free space at its end
}

// keptMemory limits the memory for blocks that is kept from one flush to the next. It is enough for
// rows that are added in order.
const keptMemory = DefaultMemoryBytes

// room returns a slice of length 0 and the given capacity, which is valid until the end of the
// flush. Earlier slices do not move.
func (m *merge) room(size int) []byte {
	used := len(m.memory)
	if cap(m.memory)-used < size {
		m.memory, used = make([]byte, 0, max(size, min(2*cap(m.memory), keptMemory), blockBytes)), 0
	}
	m.memory = m.memory[:used+size]
	return m.memory[used : used : used+size]
}

// forget releases the memory of the flush.
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
		if m.changed { // otherwise the deleted rows had never been in the file
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

// gather merges the block of the next written row with all written rows of this block. If few rows
// remain, it also merges the following blocks. No block is gathered twice: rows after the last
// gathered block belong to the next one. It reports whether there are more rows to write.
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

// mergeBlock merges the rows of a block with the written rows up to its key, or with all remaining
// written rows if no block follows.
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

// replace replaces the gathered blocks with new blocks of the merged rows. The last new block keeps
// the key of the last old block, because the next block starts after this key. At the end of the
// table there is no next block, and further rows are likely: there, all blocks except the last are
// full. Elsewhere, all new blocks have about the same size.
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
