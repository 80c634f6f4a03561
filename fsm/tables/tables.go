// Package tables keeps sorted tables of bytes in a bbolt file, with the latest writes in memory: a
// log-structured store of a memtable over one file.
//
// One Writer at a time changes a DB. A commit writes to a layer in memory (the memtable). At a
// limit, the layer is frozen and a new layer starts. The frozen layer is flushed into the file in
// one transaction, while further commits continue. Reads search the layers first and then the file.
// So a commit writes no pages: ten writes of a row between two flushes cost the file one write, and
// a flush writes pages in the order of their keys.
//
// In the file, rows are in blocks: some kilobytes of rows are one value of bbolt. A bbolt value for
// each row would cost a search from the root, a node in memory and sixteen bytes of the page. Many
// rows are smaller than that. A block is written by copying its rows, and rows that are added to a
// table in order share a block.
//
// Guarantees: every read that starts after a commit sees the whole commit, and earlier reads see
// none of it. A read sees one state until its end, whatever is committed or flushed meanwhile. The
// time of a flush does not change the result of a read.
//
// Assumptions: the file is not needed after a stop. It is not synced, and lacks the rows in memory.
// A Snapshot contains everything.
package tables

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Default limits of a layer in memory: a flush takes some tens of milliseconds. During a flush,
// there can be twice as much in memory.
const (
	DefaultMemoryRows  = 16 << 10
	DefaultMemoryBytes = 8 << 20
)

// lockTimeout limits the wait of Open for another process to release the file. After that, Open
// returns an error.
const lockTimeout = time.Second

// ErrClosed: the DB has been closed.
var ErrClosed = errors.New("the tables are closed")

// Options configure a DB.
type Options struct {
	// Path is the file, which is made if it is missing. Required.
	Path string
	// Names are the names of the tables; a Table is an index into them. Open makes missing tables.
	// Required.
	Names []string
	// MmapSize is the reserved address space, in bytes. A file that grows beyond it must be mapped
	// again, which waits for every open read. Default: bbolt's.
	MmapSize int
	// MemoryRows and MemoryBytes are the size of a layer in memory at which it is flushed. Default:
	// DefaultMemoryRows, DefaultMemoryBytes.
	MemoryRows, MemoryBytes int
}

func (o Options) withDefaults() Options {
	if o.MemoryRows == 0 {
		o.MemoryRows = DefaultMemoryRows
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	return o
}

func (o Options) validate() error {
	var faults []error
	if o.Path == "" {
		faults = append(faults, errors.New("no path for the file"))
	}
	if len(o.Names) == 0 {
		faults = append(faults, errors.New("no tables"))
	}
	if o.MemoryRows < 0 || o.MemoryBytes < 0 {
		faults = append(faults, fmt.Errorf("cannot keep %d rows and %d bytes in memory", o.MemoryRows, o.MemoryBytes))
	}
	return errors.Join(faults...)
}

// Table is the number of a table in Options.Names.
type Table int

// DB is a set of tables. All methods except Begin and Snapshot may be called concurrently.
// Begin and Snapshot must not overlap each other or an open Writer.
type DB struct {
	options Options
	file    *bolt.DB
	// users counts the open reads, and the DB itself; the last one closes the file. bbolt's
	// Close waits for open reads, so the caller would wait too.
	users atomic.Int64

	// mu protects the fields that a read uses. No lock of mu is held during a write to the file.
	mu     sync.RWMutex
	recent *layer // of the commits since the last freeze
	frozen *layer // is being flushed; nil if none is
	closed bool

	// Of the writer and its flushes.
	flushed    chan struct{} // closed when the frozen layer has been flushed, or cannot be
	failed     error         // reason of a failed flush; set before flushed is closed
	merge      merge         // of the flush in progress
	tombstones tombstones
}

// Open opens the tables in a file, and makes missing tables.
func Open(options Options) (*DB, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("cannot open the tables: %w", err)
	}
	file, err := openFile(options.Path, options.MmapSize)
	if err != nil {
		return nil, err
	}
	db := &DB{
		options: options, file: file, recent: newLayer(len(options.Names)),
		flushed: make(chan struct{}), tombstones: newTombstones(len(options.Names)),
	}
	close(db.flushed)
	db.users.Store(1)
	if err := file.Update(db.makeTables); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make the tables: %w", err), db.Close())
	}
	return db, nil
}

// openFile opens a file that is not needed after a stop, so it is never synced.
func openFile(path string, mmapSize int) (*bolt.DB, error) {
	const ownerOnly = 0o600 // rows contain users' data
	file, err := bolt.Open(path, ownerOnly, &bolt.Options{
		Timeout:         lockTimeout,
		NoSync:          true,
		NoGrowSync:      true,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mmapSize,
		PageSize:        pageBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the file of the tables %s: %w", path, err)
	}
	return file, nil
}

func (db *DB) makeTables(tx *bolt.Tx) error {
	for _, name := range db.options.Names {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	_, err := tx.CreateBucketIfNotExists(sumsBucket)
	return err
}

// Close closes the file after the current flush and the last open read; it waits only for the
// flush. Rows in memory are lost. Closing twice is harmless.
func (db *DB) Close() error {
	db.mu.Lock()
	closed, flushed := db.closed, db.flushed
	db.closed = true
	db.mu.Unlock()
	if closed {
		return nil
	}
	<-flushed
	return db.release()
}

// release ends one use of the file.
func (db *DB) release() error {
	if db.users.Add(-1) > 0 {
		return nil
	}
	if err := db.file.Close(); err != nil {
		return fmt.Errorf("cannot close the file of the tables: %w", err)
	}
	return nil
}

// Reader opens a read of the state after the last commit. The read must be closed. It opens the
// file first and then the layers, and no layer is released in between. So a row that a flush moves
// from a layer into the file is visible in at least one of them. If it is visible in both, it is
// the same row.
func (db *DB) Reader() (*Reader, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.closed {
		return nil, ErrClosed
	}
	tx, err := db.file.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("cannot begin to read the tables: %w", err)
	}
	db.users.Add(1)
	return &Reader{db: db, tx: tx, recent: db.recent, frozen: db.frozen, files: make([]*inFile, len(db.options.Names))}, nil
}

// Read runs a function over the state after the last commit. The function must keep
// copies only.
func (db *DB) Read(do func(*Reader) error) error {
	r, err := db.Reader()
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// Reusable returns the free bytes in the file, minus the bytes that the rows in memory need at the
// next flush. It can be negative. The file never shrinks.
func (db *DB) Reusable() int64 {
	stats := db.file.Stats()
	db.mu.RLock()
	defer db.mu.RUnlock()
	unflushed := db.recent.bytes
	if db.frozen != nil {
		unflushed += db.frozen.bytes
	}
	return int64(stats.FreePageN+stats.PendingPageN)*int64(db.file.Info().PageSize) - int64(unflushed)
}

// Size returns the approximate length of the file, in bytes.
func (db *DB) Size() (size int64, err error) {
	err = db.Read(func(r *Reader) error {
		size = r.tx.Size()
		return nil
	})
	return size, err
}
