package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/conductord/conductord/fsm/tables"
)

// snapshotMagic is the first bytes of every snapshot.
var snapshotMagic = [8]byte{'c', 'o', 'n', 'd', 'u', 'c', 't', 'd'}

// The formats that this program reads and writes, for display.
const (
	RowsFormat     = schemaVersion
	SnapshotFormat = snapshotFormat
)

// snapshotFormat is the format of the stream: header, database and sum. schemaVersion is the format of the rows.
const snapshotFormat = 1

// snapshotHeader precedes the database, in big-endian numbers. The database is followed by its length, and by the
// SHA-256 of all bytes before the sum.
type snapshotHeader struct {
	Magic      [8]byte
	Format     uint32
	Schema     uint32
	Index      uint64
	Generation uint64
	Size       uint64 // of the database, in bytes
}

// ErrBadSnapshot: the snapshot is cut short, damaged, or of a version that this
// program does not know.
var ErrBadSnapshot = errors.New("bad snapshot")

// Snapshot is the state at one index. Later entries do not change it. Close it after use.
type Snapshot struct {
	// Index and Term belong to the last entry in the snapshot. Time is the time of the state
	// machine at that entry.
	Index, Term uint64
	Time        time.Time
	Generation  uint64

	header snapshotHeader
	tables *tables.Snapshot
}

// Snapshot opens a snapshot. It flushes the rows in memory, whose number is bounded, and opens a read. WriteTo does the
// main work, in parallel with calls of Apply.
func (m *Machine) Snapshot() (*Snapshot, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed() {
		return nil, ErrClosed
	}
	taken, err := m.database.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("cannot begin a snapshot: %w", err)
	}
	at := m.status.Load().ledger
	return &Snapshot{
		Index: at.Index, Term: at.Term, Time: at.time(), Generation: at.Generation, tables: taken,
		header: snapshotHeader{
			Magic: snapshotMagic, Format: snapshotFormat, Schema: schemaVersion,
			Index: at.Index, Generation: at.Generation, Size: uint64(taken.Size()),
		},
	}, nil
}

// Size returns the bytes of the snapshot's database.
func (s *Snapshot) Size() int64 { return s.tables.Size() }

// StreamSize returns the number of bytes that WriteTo writes.
func (s *Snapshot) StreamSize() int64 {
	return int64(binary.Size(s.header)) + s.Size() + int64(binary.Size(s.header.Size)) + sha256.Size
}

// WriteTo streams the snapshot. Calls must not be concurrent, and not after Close.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sum := sha256.New()
	out := &counter{to: io.MultiWriter(w, sum)}
	if err := binary.Write(out, binary.BigEndian, s.header); err != nil {
		return out.written, fmt.Errorf("cannot write the snapshot's header: %w", err)
	}
	if _, err := s.tables.WriteTo(out); err != nil {
		return out.written, fmt.Errorf("cannot write the snapshot: %w", err)
	}
	if err := binary.Write(out, binary.BigEndian, s.header.Size); err != nil {
		return out.written, fmt.Errorf("cannot write the snapshot's length: %w", err)
	}
	n, err := w.Write(sum.Sum(nil))
	if err != nil {
		err = fmt.Errorf("cannot write the snapshot's checksum: %w", err)
	}
	return out.written + int64(n), err
}

// counter counts the written bytes.
type counter struct {
	to      io.Writer
	written int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.written += int64(n)
	return n, err
}

// Close ends the snapshot. Closing twice is harmless.
func (s *Snapshot) Close() error { return s.tables.Close() }

// Restore replaces the state by the state of a snapshot. It first reads the snapshot into a file beside the database,
// and verifies the whole file. After an error, the state is unchanged; ErrBadSnapshot means that the snapshot is bad.
// Open reads and snapshots continue with the old state.
func (m *Machine) Restore(r io.Reader) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed() {
		return fmt.Errorf("cannot restore: %w", ErrClosed)
	}
	temporary := restoringPath(m.options.Path)
	restored, after, err := m.receive(r, temporary)
	if err != nil {
		return fmt.Errorf("cannot restore: %w", errors.Join(err, removeIfThere(temporary)))
	}
	if err := replaceFile(temporary, m.options.Path); err != nil {
		return fmt.Errorf("cannot restore: %w", errors.Join(err, restored.Close(), removeIfThere(temporary)))
	}
	m.own.clear()
	m.mu.Lock()
	old := m.database
	m.database = restored
	m.mu.Unlock()
	m.status.Store(after)
	m.caches = newCaches()
	if err := old.Close(); err != nil {
		m.options.Logger.Warn("cannot close the earlier state after a restore", "error", err)
	}
	m.options.Logger.Info("restored a snapshot", "index", after.Index, "generation", after.Generation)
	m.announce()
	m.options.Changed(Changes{Index: after.Index, NextDue: after.nextDue, NextSlot: after.nextSlot, Events: true, Restored: true})
	return nil
}

// restoringPath returns the path of the file that receives a snapshot. It is beside the database, so a rename replaces
// the database.
func restoringPath(path string) string { return path + ".restoring" }

// receive writes a snapshot's database to a file, verifies it, and opens it.
func (m *Machine) receive(r io.Reader, path string) (*tables.DB, *status, error) {
	header, err := receiveFile(r, path)
	if err != nil {
		return nil, nil, err
	}
	if err := inspect(path, &header); err != nil {
		return nil, nil, err
	}
	restored, err := m.options.database(path)
	if err != nil {
		return nil, nil, err
	}
	after, err := m.adopt(restored, header)
	if err != nil {
		return nil, nil, errors.Join(err, restored.Close())
	}
	return restored, after, nil
}

// inspect reads every key of a database, and then runs bbolt's check. The checksum was right, so a fault here existed
// when the snapshot was written. inspect runs before the database is opened for writing. Opening and bbolt's check
// panic at a bad page, in bbolt's own goroutines, from which no caller can recover.
func inspect(path string, header *snapshotHeader) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page beyond the end of the file
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: its database is corrupt: %v", ErrBadSnapshot, cause)
		}
	}()
	opened, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("%w: its database cannot be opened: %w", ErrBadSnapshot, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	err = opened.View(func(tx *bolt.Tx) error {
		if uint64(tx.Size()) != header.Size {
			return fmt.Errorf("%w: its database should have %d bytes, and has %d", ErrBadSnapshot, tx.Size(), header.Size)
		}
		for _, name := range tableNames {
			bucket := tx.Bucket([]byte(name))
			if bucket == nil {
				return fmt.Errorf("%w: table %s is missing", ErrBadSnapshot, name)
			}
			if err := tables.CheckBlocks(bucket); err != nil {
				return fmt.Errorf("%w: table %s: %w", ErrBadSnapshot, name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return opened.View(checkDatabase)
}

// receiveFile writes the database of a snapshot to a file, durably, and checks
// the length and the sum.
func receiveFile(r io.Reader, path string) (header snapshotHeader, err error) {
	const ownerOnly = 0o600
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, ownerOnly)
	if err != nil {
		return header, fmt.Errorf("cannot make a file for the snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if header, err = receiveInto(file, r); err != nil {
		return header, err
	}
	if err := file.Sync(); err != nil {
		return header, fmt.Errorf("cannot make the snapshot durable: %w", err)
	}
	return header, nil
}

// CheckSnapshot reads a snapshot to its end. ErrBadSnapshot if it is truncated, damaged, or of another version. Only
// Restore also checks the tables.
func CheckSnapshot(r io.Reader) error {
	_, err := receiveInto(io.Discard, r)
	return err
}

// receiveInto writes the database of a snapshot, and checks the length and the sum.
func receiveInto(w io.Writer, r io.Reader) (header snapshotHeader, err error) {
	sum := sha256.New()
	in := io.TeeReader(r, sum)
	if err := binary.Read(in, binary.BigEndian, &header); err != nil {
		return header, fmt.Errorf("%w: no header: %w", ErrBadSnapshot, err)
	}
	if err := header.check(); err != nil {
		return header, err
	}
	if _, err := io.CopyN(w, in, int64(header.Size)); err != nil {
		return header, fmt.Errorf("cannot receive %d bytes of snapshot: %w", header.Size, asBad(err))
	}
	return header, checkTrailer(r, in, sum, header.Size)
}

func (h *snapshotHeader) check() error {
	const maxSize = 1 << 62 // the largest length in an int64, with room for the rest
	switch {
	case h.Magic != snapshotMagic:
		return fmt.Errorf("%w: its first bytes are %q", ErrBadSnapshot, h.Magic[:])
	case h.Format != snapshotFormat:
		return fmt.Errorf("%w: its format is %d, and this program supports %d", ErrBadSnapshot, h.Format, snapshotFormat)
	case h.Schema != schemaVersion:
		return fmt.Errorf("%w: its schema is %d, and this program supports %d", ErrBadSnapshot, h.Schema, schemaVersion)
	case h.Size > maxSize:
		return fmt.Errorf("%w: it claims to have %d bytes", ErrBadSnapshot, h.Size)
	}
	return nil
}

// checkTrailer reads the length, which is part of the sum, and then the sum, which must end the stream.
func checkTrailer(r, summed io.Reader, sum hash.Hash, size uint64) error {
	var length uint64
	if err := binary.Read(summed, binary.BigEndian, &length); err != nil {
		return fmt.Errorf("cannot read the snapshot's length: %w", asBad(err))
	}
	expected := sum.Sum(nil)
	found := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, found); err != nil {
		return fmt.Errorf("cannot read the snapshot's checksum: %w", asBad(err))
	}
	switch {
	case length != size:
		return fmt.Errorf("%w: its header has the length %d, and its end has the length %d", ErrBadSnapshot, size, length)
	case !bytes.Equal(found, expected):
		return fmt.Errorf("%w: its checksum is %x, and the expected checksum is %x", ErrBadSnapshot, found, expected)
	}
	var one [1]byte
	if n, err := io.ReadFull(r, one[:]); n != 0 {
		return fmt.Errorf("%w: data follows after its end", ErrBadSnapshot)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read the snapshot's end: %w", err)
	}
	return nil
}

// asBad turns the end of a truncated snapshot into ErrBadSnapshot. Other errors of a reader stay.
func asBad(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is truncated", ErrBadSnapshot)
	}
	return err
}

// adopt completes a restored database. It raises the database's generation to this machine's if that is higher, because
// no token may be issued twice after a recovery.
func (m *Machine) adopt(restored *tables.DB, header snapshotHeader) (after *status, err error) {
	defer caught(&err)
	t, err := m.begin(restored, ledger{}, newCaches())
	if err != nil {
		return nil, err
	}
	defer t.writer.Rollback() //nolint:errcheck // after the commit it does nothing, before it there is nothing to lose
	defer m.memory.reset()
	kept, err := t.ledgerOf()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if kept.Index != header.Index || kept.Generation != header.Generation {
		return nil, fmt.Errorf("%w: its header says index %d, and its database %d", ErrBadSnapshot, header.Index, kept.Index)
	}
	t.ledger = kept
	t.Generation = max(kept.Generation, m.options.Generation)
	return t.commit()
}

// checkDatabase runs bbolt's check of every page.
func checkDatabase(tx *bolt.Tx) error {
	var first error
	for err := range tx.Check() { // to the end, so that the checker is not blocked
		if first == nil {
			first = fmt.Errorf("%w: %w", ErrBadSnapshot, err)
		}
	}
	return first
}

// replaceFile renames, and makes the new name durable.
func replaceFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("cannot replace the state: %w", err)
	}
	directory, err := os.Open(filepath.Dir(to))
	if err != nil {
		return fmt.Errorf("cannot open the directory of the state: %w", err)
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("cannot make the new state's name durable: %w", err)
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
