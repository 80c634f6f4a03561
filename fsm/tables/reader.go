package tables

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Reader is the state after one commit. It belongs to one goroutine.
type Reader struct {
	db             *DB
	tx             *bolt.Tx
	recent, frozen *layer
	files          []*inFile   // by table; nil before the first use
	tombstones     *tombstones // of a Writer; nil for other readers
}

// inFile has the blocks of a table in the file.
type inFile struct {
	blocks *bolt.Bucket
	lookup *bolt.Cursor // for Get
}

func (r *Reader) file(t Table) *inFile {
	if r.files[t] == nil {
		blocks := r.tx.Bucket([]byte(r.db.options.Names[t]))
		r.files[t] = &inFile{blocks: blocks, lookup: blocks.Cursor()}
	}
	return r.files[t]
}

// Get reads a value; nil if there is none. The value is valid until the end of the read or the
// commit, and must not be changed.
func (r *Reader) Get(t Table, key []byte) []byte {
	if value, said := r.recent.get(t, key); said {
		return value
	}
	if value, said := r.frozen.get(t, key); said {
		return value
	}
	_, found := r.file(t).lookup.Seek(key)
	return block(found).get(key)
}

// Cursor goes through a table. After the Writer has written to the table, the position of its
// cursor is undefined until the next seek.
func (r *Reader) Cursor(t Table) *Cursor {
	c := &Cursor{reader: r, table: t, file: fileCursor{blocks: r.file(t).blocks.Cursor()}, recent: r.recent.trees[t]}
	c.layers[0].iter, c.layers[1].iter = r.recent.iter(t), r.frozen.iter(t)
	return c
}

// Close ends the read. Call it once.
func (r *Reader) Close() error {
	err := r.tx.Rollback()
	if err != nil {
		err = fmt.Errorf("cannot end a read of the tables: %w", err)
	}
	return errors.Join(err, r.db.release())
}
