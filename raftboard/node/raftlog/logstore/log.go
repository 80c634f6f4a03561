package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// writeTimeout limits a write of the log. raft keeps sending heartbeats while its disk hangs
	// (hashicorp/raft#503), so a node whose write takes longer ends its process.
	writeTimeout = 20 * time.Second
	// hangTimeout is the time after which Hanging reports a hanging write. The node then sends
	// nothing more to its followers, and they elect another leader. It is well above the latency of
	// a busy disk, and leaves time for an election within five seconds.
	hangTimeout = 2 * time.Second
)

// Truncations decides which entries raft may remove from the end of the log.
type Truncations interface {
	// MayCut returns an error unless the entries from an index on may be removed; all means that
	// they are all entries of the log. Nothing is removed after an error.
	MayCut(from uint64, all bool) error
	// Appending is called before entries are appended.
	Appending()
}

// Log keeps raft's log in a store and adds three things that the stores lack:
//
//   - a checksum on every entry, and on the term and vote;
//   - a mark of the last entry at an orderly end;
//   - an end of the process after a write that failed (a second fsync may report a lost page as
//     clean) or hangs.
type Log struct {
	engine      Engine
	terms       *keptTerms
	dataDir     string
	fatal       func(error)
	written     func(time.Duration) // can be nil
	truncations Truncations         // nil: all may be removed. Set before raft starts
	closing     sync.Once
	hangs       atomic.Int32 // writes that have taken longer than hangTimeout
}

// newLog wraps an engine. It closes a damaged engine, even when a read panics.
func newLog(engine Engine, dataDir string, options Options) (log *Log, err error) {
	defer func() {
		if log == nil {
			err = errors.Join(err, engine.Close())
		}
	}()
	terms, err := loadTerms(engine)
	if err != nil {
		return nil, err
	}
	log = &Log{engine: engine, terms: terms, dataDir: dataDir, fatal: options.Fatal, written: options.Written}
	if options.Wrap != nil {
		log.engine = options.Wrap(engine)
	}
	return log, nil
}

// Protect makes raft ask before it removes entries from the end of the log. Call it once, before
// raft starts.
func (l *Log) Protect(truncations Truncations) { l.truncations = truncations }

// IsMonotonic makes raft clear the log when it installs a snapshot, so that no entry of an
// abandoned history remains after it (hashicorp/raft#697).
func (l *Log) IsMonotonic() bool { return true }

// FirstIndex is the index of the first entry; 0: none.
func (l *Log) FirstIndex() (uint64, error) { return l.engine.FirstIndex() }

// LastIndex is the index of the last entry; 0: none.
func (l *Log) LastIndex() (uint64, error) { return l.engine.LastIndex() }

// StoreLog stores one entry durably.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	sealed := make([]*raft.Log, len(logs))
	for i, log := range logs {
		copied := *log
		copied.Extensions = checksum(log)
		sealed[i] = &copied
	}
	if l.truncations != nil {
		l.truncations.Appending()
	}
	return l.watch("write the raft log", func() error {
		if err := l.engine.StoreLogs(sealed); err != nil || len(logs) == 0 {
			return err
		}
		return l.terms.stored(logs[len(logs)-1].Index)
	})
}

// GetLog reads an entry and verifies it.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	err := CatchDamage(l.dataDir, func() error { return l.engine.GetLog(index, log) })
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		return raft.ErrLogNotFound // raft compares this error without unwrapping
	case err != nil:
		err = fmt.Errorf("cannot read entry %d of the raft log: %w", index, err)
		l.fatal(err)
		return err
	}
	if log.Index != index || string(log.Extensions) != string(checksum(log)) {
		err := fmt.Errorf("entry %d of the raft log is damaged on disk: %s", index, StopForGood)
		l.fatal(err)
		return err
	}
	return nil
}

// Get reads a key of the stable store; nil if it was never set.
func (l *Log) Get(key []byte) ([]byte, error) { return l.terms.get(key), nil }

// GetUint64 reads a number of the stable store; 0 if it was never set.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	var number [8]byte
	copy(number[:], l.terms.get(key))
	return binary.BigEndian.Uint64(number[:]), nil
}

// Set stores a key of the stable store, such as a vote.
func (l *Log) Set(key, value []byte) error {
	return l.watch("write a vote", func() error { return l.terms.set(key, value) })
}

// SetUint64 stores a number of the stable store, such as the term.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.watch("write the term", func() error { return l.terms.set(key, binary.BigEndian.AppendUint64(nil, value)) })
}

// DeleteRange removes entries before a snapshot, or the end of the log that a new leader replaces.
// It asks Truncations before it removes that end. After raft has cleared its log for a leader's
// snapshot, it can trim the log by the earlier bounds while it appends further entries: then
// nothing is left to remove.
func (l *Log) DeleteRange(first, last uint64) error {
	return l.watch("trim the raft log", func() error {
		begins, ends, err := Bounds(l.engine)
		if err != nil || ends == 0 {
			return err
		}
		if last < ends {
			return l.engine.DeleteRange(first, last)
		}
		left := uint64(0)
		if first > begins {
			left = first - 1
		}
		if l.truncations != nil {
			err = l.truncations.MayCut(first, left == 0)
		}
		if err == nil && left < l.terms.mark() {
			err = l.terms.setMark(left)
		}
		if err != nil {
			return err
		}
		return l.engine.DeleteRange(first, last)
	})
}

// Close marks the end of the log and closes the store. It may be called more
// than once.
func (l *Log) Close() error {
	var err error
	l.closing.Do(func() {
		var last uint64
		if last, err = l.engine.LastIndex(); err == nil && last != l.terms.mark() {
			err = l.terms.setMark(last)
		}
		err = errors.Join(err, l.engine.Close())
	})
	return err
}

func (l *Log) watch(what string, write func() error) error {
	watchdog := time.AfterFunc(writeTimeout, func() {
		l.fatal(fmt.Errorf("cannot %s: the disk has not answered for %v", what, writeTimeout))
	})
	hanging := time.AfterFunc(hangTimeout, func() { l.hangs.Add(1) })
	began := time.Now()
	err := write()
	watchdog.Stop()
	if !hanging.Stop() {
		l.hangs.Add(-1)
	}
	if err != nil {
		l.fatal(fmt.Errorf("cannot %s: %w", what, err))
		return err
	}
	if l.written != nil {
		l.written(time.Since(began))
	}
	return nil
}

// Reusable returns the free bytes in the log's files. It is negative for raft-wal, which allocates
// a whole segment at once.
func (l *Log) Reusable() int64 {
	if bolt, ok := l.engine.(boltLog); ok {
		return int64(bolt.Stats().FreePageN) * int64(os.Getpagesize())
	}
	return -walSegmentBytes
}

// Hanging reports whether a write has taken longer than hangTimeout.
func (l *Log) Hanging() bool { return l.hangs.Load() > 0 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the data that raft needs: place, kind and content of an entry.
func checksum(log *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[0:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}
