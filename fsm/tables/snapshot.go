package tables

import (
	"fmt"
	"io"
	"sync"
)

// Snapshot is the state after one commit, completely in the file. Changes of the tables do not
// affect it. It must be closed.
type Snapshot struct {
	reader *Reader
	close  sync.Once
}

// Snapshot flushes the layers in memory, and opens a snapshot. No Writer may be open meanwhile.
func (db *DB) Snapshot() (*Snapshot, error) {
	if err := db.flushAll(); err != nil {
		return nil, err
	}
	reader, err := db.Reader()
	if err != nil {
		return nil, err
	}
	return &Snapshot{reader: reader}, nil
}

// flushAll flushes all rows to the file.
func (db *DB) flushAll() error {
	<-db.flushed
	db.mu.Lock()
	if db.failed == nil && !db.closed && !db.recent.empty() {
		db.freezeLocked(db.recent)
	}
	db.mu.Unlock()
	<-db.flushed
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.failed
}

// Reader returns the reader of the snapshot, which is valid until the snapshot is closed.
func (s *Snapshot) Reader() *Reader { return s.reader }

// Size returns the number of bytes that WriteTo writes.
func (s *Snapshot) Size() int64 { return s.reader.tx.Size() }

// WriteTo writes the file: a bbolt database, in which each table is a bucket.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := s.reader.tx.WriteTo(w)
	if err != nil {
		err = fmt.Errorf("cannot write the tables: %w", err)
	}
	return n, err
}

// Close ends the snapshot. Closing twice is harmless.
func (s *Snapshot) Close() error {
	var err error
	s.close.Do(func() { err = s.reader.Close() })
	return err
}
