package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// LogStore is how a node keeps raft's log and votes on disk. Each node of a
// cluster has its own: they share entries, not files.
type LogStore string

// The log stores.
const (
	LogStoreBolt LogStore = "bolt" // raft-boltdb: one file, two fsyncs an append
	LogStoreWAL  LogStore = "wal"  // raft-wal: a directory of segments, one fsync an append
)

// LogStores are all that there are, the default first.
var LogStores = []LogStore{LogStoreBolt, LogStoreWAL}

const (
	// lockTimeout is how long to wait for the lock on a file, which a second
	// daemon on the same directory would hold for ever.
	lockTimeout = time.Second
	// diskPatience is how long a write of the log may take. raft keeps sending
	// heartbeats while its disk hangs (hashicorp/raft#503), so a node that
	// waits longer takes itself out.
	diskPatience = 20 * time.Second
	// hangPatience is how long a write of the log may take before the node sends
	// nothing more to its followers, so that they elect another leader. It is well
	// over what a busy disk takes, and leaves time for an election within five
	// seconds.
	hangPatience = 2 * time.Second
	// logCacheSize is how many of the latest entries are kept in memory for
	// the followers, each of up to maxEntryBytes: one that keeps up is never as
	// far behind, and one that is further behind reads the disk.
	logCacheSize = 64
)

// remedy ends every report of a log that is damaged on disk.
const remedy = "stop this node for good: the others go on without it (see docs/operations.md)"

// logEngine is a log store without its guard.
type logEngine interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// guardedLog keeps raft's log in a store and adds what the stores lack:
//
//   - a checksum on every entry, and on the term and vote;
//   - a mark of the last entry at an orderly end;
//   - an end of the process after a write that failed (a second fsync may report
//     a lost page as clean) or hangs.
type guardedLog struct {
	engine  logEngine
	terms   *keptTerms
	dataDir string
	fatal   func(error)
	closing sync.Once
	applied *appliedGuard // replaced before raft starts; until then nothing is applied
	hangs   atomic.Int32  // writes that have taken longer than hangPatience
	written func()        // called after each write that the disk has acknowledged; may be nil. Set before raft starts
}

// openLog opens the log and stable store of a data directory.
func openLog(dataDir string, kind LogStore, logger hclog.Logger, fatal func(error)) (*guardedLog, error) {
	var log *guardedLog
	err := intact(dataDir, func() error {
		engine, err := openEngine(kind, logPath(dataDir, kind), logger)
		if err == nil {
			log, err = guard(engine, dataDir, fatal)
		}
		return err
	})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, errInUse(dataDir)
	case err != nil:
		return nil, fmt.Errorf("cannot open the raft log in %s: %w", dataDir, err)
	}
	return log, nil
}

// guard wraps a store. It closes one that is damaged, also when a read panics.
func guard(engine logEngine, dataDir string, fatal func(error)) (log *guardedLog, err error) {
	defer func() {
		if log == nil {
			err = errors.Join(err, engine.Close())
		}
	}()
	terms, err := loadTerms(engine)
	if err != nil {
		return nil, err
	}
	unapplied := newAppliedGuard(func() uint64 { return 0 }, nil)
	return &guardedLog{engine: engine, terms: terms, dataDir: dataDir, fatal: fatal, applied: unapplied}, nil
}

func openEngine(kind LogStore, path string, logger hclog.Logger) (logEngine, error) {
	if kind == LogStoreWAL {
		return openWAL(path, logger, walSegmentBytes)
	}
	return openBolt(path)
}

func errInUse(dataDir string) error {
	return fmt.Errorf("cannot open the raft log in %s: another process uses this data directory", dataDir)
}

func cutShort(path string, has, wants int64) error {
	return fmt.Errorf("%s has %d bytes and should have %d: %s", path, has, wants, remedy)
}

// intact turns the panics of a read of the log's files into an error: they mean
// that the disk is damaged. bbolt, which maps its file into memory, panics on
// invalid pages, and faults when the file was cut short; raft-wal panics on some
// invalid entries.
func intact(dataDir string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the raft log in %s is damaged (%v): %s", dataDir, broken, remedy)
		}
	}()
	return read()
}

// IsMonotonic makes raft clear the log when it installs a snapshot, so that
// no entry of an abandoned history stays behind it (hashicorp/raft#697).
func (g *guardedLog) IsMonotonic() bool { return true }

// FirstIndex is that of the first entry; 0: there is none.
func (g *guardedLog) FirstIndex() (uint64, error) { return g.engine.FirstIndex() }

// LastIndex is that of the last entry; 0: there is none.
func (g *guardedLog) LastIndex() (uint64, error) { return g.engine.LastIndex() }

// StoreLog stores one entry durably.
func (g *guardedLog) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably.
func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	sealed := make([]*raft.Log, len(logs))
	for i, log := range logs {
		copied := *log
		copied.Extensions = checksum(log)
		sealed[i] = &copied
	}
	g.applied.restored.Store(0) // raft has cleared the log, or had nothing to clear
	return g.watch("write the raft log", func() error {
		if err := g.engine.StoreLogs(sealed); err != nil || len(logs) == 0 {
			return err
		}
		return g.terms.stored(logs[len(logs)-1].Index)
	})
}

// GetLog reads an entry and verifies it.
func (g *guardedLog) GetLog(index uint64, log *raft.Log) error {
	err := intact(g.dataDir, func() error { return g.engine.GetLog(index, log) })
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		return raft.ErrLogNotFound // raft compares, and does not unwrap
	case err != nil:
		err = fmt.Errorf("cannot read entry %d of the raft log: %w", index, err)
		g.fatal(err)
		return err
	}
	if log.Index != index || string(log.Extensions) != string(checksum(log)) {
		err := fmt.Errorf("entry %d of the raft log is damaged on disk: %s", index, remedy)
		g.fatal(err)
		return err
	}
	return nil
}

// Get reads a key of the stable store; nil if it was never set.
func (g *guardedLog) Get(key []byte) ([]byte, error) { return g.terms.get(key), nil }

// GetUint64 reads a number of the stable store; 0 if it was never set.
func (g *guardedLog) GetUint64(key []byte) (uint64, error) {
	var number [8]byte
	copy(number[:], g.terms.get(key))
	return binary.BigEndian.Uint64(number[:]), nil
}

// Set stores a key of the stable store, such as a vote.
func (g *guardedLog) Set(key, value []byte) error {
	return g.watch("write a vote", func() error { return g.terms.set(key, value) })
}

// SetUint64 stores a number of the stable store, such as the term.
func (g *guardedLog) SetUint64(key []byte, value uint64) error {
	return g.watch("write the term", func() error { return g.terms.set(key, binary.BigEndian.AppendUint64(nil, value)) })
}

// DeleteRange removes entries before a snapshot, or the end of the log that a new
// leader replaces. It refuses to remove an applied entry from that end.
func (g *guardedLog) DeleteRange(first, last uint64) error {
	return g.watch("trim the raft log", func() error {
		begins, ends, err := bounds(g.engine)
		if err != nil {
			return err
		}
		if last < ends {
			return g.engine.DeleteRange(first, last)
		}
		left := uint64(0)
		if first > begins {
			left = first - 1
		}
		err = g.applied.mayCut(first, left == 0)
		if err == nil && left < g.terms.mark() {
			err = g.terms.setMark(left)
		}
		if err != nil {
			return err
		}
		return g.engine.DeleteRange(first, last)
	})
}

// Close marks the end of the log and closes the store. It may be called more
// than once.
func (g *guardedLog) Close() error {
	var err error
	g.closing.Do(func() {
		var last uint64
		if last, err = g.engine.LastIndex(); err == nil && last != g.terms.mark() {
			err = g.terms.setMark(last)
		}
		err = errors.Join(err, g.engine.Close())
	})
	return err
}

func (g *guardedLog) watch(what string, write func() error) error {
	watchdog := time.AfterFunc(diskPatience, func() {
		g.fatal(fmt.Errorf("cannot %s: the disk has not answered for %v", what, diskPatience))
	})
	hanging := time.AfterFunc(hangPatience, func() { g.hangs.Add(1) })
	err := write()
	watchdog.Stop()
	if !hanging.Stop() {
		g.hangs.Add(-1)
	}
	if err != nil {
		g.fatal(fmt.Errorf("cannot %s: %w", what, err))
		return err
	}
	if g.written != nil {
		g.written()
	}
	return nil
}

// reusable is how many bytes of the log's files are free for more entries. It is
// negative for raft-wal, which takes a whole segment at once.
func (g *guardedLog) reusable() int64 {
	if bolt, ok := g.engine.(boltLog); ok {
		return int64(bolt.Stats().FreePageN) * int64(os.Getpagesize())
	}
	return -walSegmentBytes
}

// hanging reports whether a write has taken longer than hangPatience.
func (g *guardedLog) hanging() bool { return g.hangs.Load() > 0 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers what raft relies on: place, kind and content of an entry.
func checksum(log *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}
