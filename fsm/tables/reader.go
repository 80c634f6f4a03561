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
	buckets        []*bolt.Bucket
	gaps           *gaps // of a Writer; nil where nobody keeps them
}

// fillPercent is how full bbolt leaves a page that it splits. Nearly all keys
// are those of a sequence or sort by time, so new ones come at the end: with
// bbolt's 50 % the file, and every snapshot, would be half air.
const fillPercent = 0.9

func (r *Reader) bucket(t Table) *bolt.Bucket {
	if r.buckets[t] == nil {
		r.buckets[t] = r.tx.Bucket([]byte(r.db.options.Names[t]))
	}
	return r.buckets[t]
}

// Get reads a value; nil if there is none. It is good until the end of the
// read or the commit, and must not be changed.
func (r *Reader) Get(t Table, key []byte) []byte {
	if value, said := r.recent.get(t, key); said {
		return value
	}
	if value, said := r.frozen.get(t, key); said {
		return value
	}
	return r.bucket(t).Get(key)
}

// Cursor goes through a table. Where a Writer's cursor stands is undefined once
// the Writer has written to the table, until it seeks again.
func (r *Reader) Cursor(t Table) *Cursor {
	c := &Cursor{reader: r, table: t, file: r.bucket(t).Cursor(), recent: r.recent.trees[t]}
	c.layers[0].iter, c.layers[1].iter = r.recent.iter(t), r.frozen.iter(t)
	return c
}

// Close ends the read. It is called once.
func (r *Reader) Close() error {
	err := r.tx.Rollback()
	if err != nil {
		err = fmt.Errorf("cannot end a read of the tables: %w", err)
	}
	return errors.Join(err, r.db.release())
}
