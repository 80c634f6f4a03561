// Package logstore keeps raft's log, term and vote of one node on disk.
//
// A Kind is a format: raft-boltdb or raft-wal. Both implement Engine. A Log wraps an engine and adds
// what both lack; it implements raft.LogStore and raft.StableStore. Convert changes a data
// directory from one kind to the other.
//
// Guarantees: an acknowledged write is read back unchanged, or the log is refused. Open refuses a
// log that has lost acknowledged entries or a vote, and repairs the effects of a crash. A write
// that fails, or hangs for 20 s, calls fatal: the process must end, because the content of the
// disk is unknown.
//
// Assumed: one process uses the data directory (the caller holds its lock), fsync is honest, and
// the pages of a file change only by damage. Logs may be called concurrently, as raft requires;
// only the owner calls Close and Protect.
package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Kind is a format of raft's log and votes on disk. Each node of a cluster has its own: nodes
// share entries, not files.
type Kind string

// The kinds.
const (
	Bolt Kind = "bolt" // raft-boltdb: one file, two fsyncs an append
	WAL  Kind = "wal"  // raft-wal: a directory of segments, one fsync an append
)

// Kinds are all kinds, the default first.
var Kinds = []Kind{Bolt, WAL}

// StopForGood ends every report of a log that is damaged on disk.
const StopForGood = "stop this node permanently; the other nodes continue without it (see \"A disk is lost\" in docs/repair.md)"

// lockTimeout limits the wait for the lock on a file. A second daemon on the same directory would
// hold the lock without limit.
const lockTimeout = time.Second

// Engine is a log store without the checks of Log.
type Engine interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// Options configures a log.
type Options struct {
	Logger hclog.Logger // nil: none
	// Fatal is called for damage found after Open, and for a write that fails or hangs. It may be
	// called concurrently and more than once.
	Fatal func(error)
	// Wrap replaces the engine in tests, for example by an engine that fails; nil: no replacement.
	Wrap func(Engine) Engine
	// Written is called after each write that the disk has acknowledged. It may be called
	// concurrently. nil: none.
	Written func(took time.Duration)
}

// Path is the path of a data directory's log.
func Path(dataDir string, kind Kind) string {
	if kind == WAL {
		return filepath.Join(dataDir, walDir)
	}
	return filepath.Join(dataDir, boltFile)
}

// Size is the size of a log's files in bytes.
func Size(dataDir string, kind Kind) (size int64) {
	_ = filepath.WalkDir(Path(dataDir, kind), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // a file that was just removed has no size
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}

// Open opens the log of a data directory, and makes an empty one if there is none.
func Open(dataDir string, kind Kind, options Options) (*Log, error) {
	if options.Logger == nil {
		options.Logger = hclog.NewNullLogger()
	}
	return open(dataDir, options, func() (Engine, error) { return openEngine(kind, Path(dataDir, kind), options.Logger) })
}

func open(dataDir string, options Options, engine func() (Engine, error)) (*Log, error) {
	var log *Log
	err := CatchDamage(dataDir, func() error {
		opened, err := engine()
		if err == nil {
			log, err = newLog(opened, dataDir, options)
		}
		return err
	})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("cannot open the raft log in %s: another process uses this data directory", dataDir)
	case err != nil:
		return nil, fmt.Errorf("cannot open the raft log in %s: %w", dataDir, err)
	}
	return log, nil
}

func openEngine(kind Kind, path string, logger hclog.Logger) (Engine, error) {
	if kind == WAL {
		return openWAL(path, logger, walSegmentBytes)
	}
	return openBolt(path)
}

func cutShort(path string, has, wants int64) error {
	return fmt.Errorf("%s has %d bytes instead of %d: %s", path, has, wants, StopForGood)
}

// CatchDamage turns the panics of a read of the log's files into an error: they mean that the
// disk is damaged. bbolt, which maps its file into memory, panics on invalid pages, and faults
// when the file was cut short. raft-wal panics on some invalid entries.
func CatchDamage(dataDir string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the raft log in %s is damaged (%v): %s", dataDir, broken, StopForGood)
		}
	}()
	return read()
}

// Bounds are the first and the last entry of a log; 0: the log is empty.
func Bounds(log raft.LogStore) (first, last uint64, err error) {
	if first, err = log.FirstIndex(); err != nil {
		return 0, 0, err
	}
	last, err = log.LastIndex()
	return first, last, err
}
