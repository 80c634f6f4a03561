package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

const (
	logFile = "raft.db"
	// lockTimeout is how long to wait for the lock on the file, which a second
	// daemon on the same directory would hold for ever.
	lockTimeout = time.Second
	// diskPatience is how long a write of the log may take. raft keeps sending
	// heartbeats while its disk hangs (hashicorp/raft#503), so a node that
	// waits longer takes itself out.
	diskPatience = 20 * time.Second
	logCacheSize = 512
)

// guardedLog keeps raft's log in raft-boltdb and adds what that store does not
// do: a checksum on every entry, an end of the process after a write that has
// failed (a second fsync may call a lost page clean), and after one that hangs.
type guardedLog struct {
	*raftboltdb.BoltStore
	fatal   func(error)
	written func() // counts a write that the disk has acknowledged; nil: nobody counts. Set before raft starts
}

// openLog opens the log and stable store of a data directory.
func openLog(dataDir string, fatal func(error)) (*guardedLog, error) {
	path := filepath.Join(dataDir, logFile)
	err := checkLength(path)
	var store *raftboltdb.BoltStore
	if err == nil {
		store, err = raftboltdb.New(raftboltdb.Options{
			Path:        path,
			BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
	}
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, fmt.Errorf("cannot open %s: another process uses this data directory", path)
	case err != nil:
		return nil, fmt.Errorf("cannot open the raft log in %s: %w", dataDir, err)
	}
	return &guardedLog{BoltStore: store, fatal: fatal}, nil
}

// checkLength refuses a file that was cut short. bbolt would read beyond its
// end, in a goroutine of its own, and the process would end with a stack.
func checkLength(path string) error {
	file, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && file.Size() == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > file.Size() {
			return fmt.Errorf("it has %d bytes and should have %d: stop this node for good: the others go on without it (see docs/operations.md)", file.Size(), tx.Size())
		}
		return nil
	})
	return errors.Join(err, db.Close())
}

// intact reads the log's file, which bbolt maps into memory. bbolt panics on
// pages that make no sense, and a file that was cut short is a fault of memory:
// both are a damaged disk, and an error.
func intact(dataDir string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the raft log in %s is damaged (%v): stop this node for good: the others go on without it (see docs/operations.md)", dataDir, broken)
		}
	}()
	return read()
}

// IsMonotonic makes raft clear the log when it installs a snapshot, so that
// no entry of an abandoned history stays behind it (hashicorp/raft#697).
func (g *guardedLog) IsMonotonic() bool { return true }

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
	return g.watch("write the raft log", func() error { return g.BoltStore.StoreLogs(sealed) })
}

// GetLog reads an entry and verifies it.
func (g *guardedLog) GetLog(index uint64, log *raft.Log) error {
	switch err := g.BoltStore.GetLog(index, log); {
	case errors.Is(err, raft.ErrLogNotFound):
		return err
	case err != nil:
		err = fmt.Errorf("cannot read entry %d of the raft log: %w", index, err)
		g.fatal(err)
		return err
	}
	if log.Index != index || string(log.Extensions) != string(checksum(log)) {
		err := fmt.Errorf("entry %d of the raft log is damaged on disk: stop this node for good: the others go on without it (see docs/operations.md)", index)
		g.fatal(err)
		return err
	}
	return nil
}

// Set stores a key of the stable store, such as a vote.
func (g *guardedLog) Set(key, value []byte) error {
	return g.watch("write a vote", func() error { return g.BoltStore.Set(key, value) })
}

// SetUint64 stores a number of the stable store, such as the term.
func (g *guardedLog) SetUint64(key []byte, value uint64) error {
	return g.watch("write the term", func() error { return g.BoltStore.SetUint64(key, value) })
}

// DeleteRange drops entries behind a snapshot.
func (g *guardedLog) DeleteRange(first, last uint64) error {
	return g.watch("trim the raft log", func() error { return g.BoltStore.DeleteRange(first, last) })
}

func (g *guardedLog) watch(what string, write func() error) error {
	watchdog := time.AfterFunc(diskPatience, func() {
		g.fatal(fmt.Errorf("cannot %s: the disk has not answered for %v", what, diskPatience))
	})
	err := write()
	watchdog.Stop()
	if err != nil {
		g.fatal(fmt.Errorf("cannot %s: %w", what, err))
		return err
	}
	if g.written != nil {
		g.written()
	}
	return nil
}

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
