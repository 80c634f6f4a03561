package tables

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Writer changes the tables, and reads its own changes. It belongs to one
// goroutine, and ends with Commit or Rollback.
type Writer struct {
	Reader
	owned []bool // by table: the tree of recent belongs to this Writer, which can change it
	ended bool
}

// Begin makes the Writer. There must be no other open Writer.
func (db *DB) Begin() (*Writer, error) {
	r, err := db.Reader()
	if err != nil {
		return nil, err
	}
	next := *r.recent
	next.trees = append([]*tree(nil), next.trees...)
	r.recent, r.tombstones = &next, &db.tombstones
	return &Writer{Reader: *r, owned: make([]bool, len(db.options.Names))}, nil
}

// own returns a tree of a table that can be changed.
func (w *Writer) own(t Table) *tree {
	if !w.owned[t] {
		w.owned[t] = true
		if w.recent.trees[t] == nil {
			w.recent.trees[t] = newTree()
		} else {
			w.recent.trees[t] = w.recent.trees[t].Copy()
		}
	}
	return w.recent.trees[t]
}

// Put writes a row. Key and value are copied.
func (w *Writer) Put(t Table, key, value []byte) error {
	switch {
	case len(key) == 0:
		return errors.New("a row needs a key")
	case len(key) > bolt.MaxKeySize:
		return fmt.Errorf("a key has %d bytes; the limit is %d", len(key), bolt.MaxKeySize)
	case len(value) > bolt.MaxValueSize:
		return fmt.Errorf("a value has %d bytes; the limit is %d", len(value), bolt.MaxValueSize)
	}
	kept := w.set(t, key, w.recent.keep(value))
	w.tombstones.put(t, kept)
	return nil
}

// Delete removes a row, if the row exists.
func (w *Writer) Delete(t Table, key []byte) { w.set(t, key, nil) }

func (w *Writer) set(t Table, key, value []byte) (kept string) {
	kept = stringOf(w.recent.keep(key))
	w.own(t).Set(kept, value)
	w.recent.rows++
	w.recent.bytes += len(key) + len(value) + rowOverhead
	return kept
}

// Rollback discards the writes. After Commit, it does nothing.
func (w *Writer) Rollback() error {
	if w.ended {
		return nil
	}
	w.ended = true
	w.tombstones.forget() // some may contain rows whose deletion is discarded
	return w.Close()
}

// Commit makes the writes visible to all later reads. It can wait for a flush, because at most two
// layers are in memory. After an error, nothing was committed, and the tables can no longer be
// written.
func (w *Writer) Commit() error {
	if w.ended {
		return errors.New("internal error: the writer has ended")
	}
	w.ended = true
	// The read of the file ends first: a flush may be waiting for it.
	if err := w.Close(); err != nil {
		return err
	}
	return w.db.publish(w.recent)
}

// publish replaces the recent layer, and freezes it if it has grown enough.
func (db *DB) publish(next *layer) error {
	grown := next.rows >= db.options.MemoryRows || next.bytes >= db.options.MemoryBytes
	if grown {
		<-db.flushed
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.failed != nil:
		return db.failed
	case db.closed:
		return ErrClosed
	case !grown:
		db.recent = next
		return nil
	}
	db.freezeLocked(next)
	return nil
}

// freezeLocked starts the flush of a layer, and opens a new layer. The previous layer is
// already flushed.
func (db *DB) freezeLocked(full *layer) {
	db.frozen, db.recent = full, newLayer(len(db.options.Names))
	db.tombstones.forget() // its rows will leave memory
	done := make(chan struct{})
	db.flushed = done
	go db.flush(full, done) // ends with the transaction
}
