package bareraft

import (
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

// logStore is the store to which raft writes.
type logStore interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// countedLog is the daemon's log store without its checksums. Like the daemon, it counts the
// writes that wait for the disk.
type countedLog struct {
	logStore
	writes atomic.Uint64
}

func openLog(options Options) (*countedLog, error) {
	var store logStore
	var err error
	switch options.LogStore {
	case "", "bolt":
		store, err = raftboltdb.New(raftboltdb.Options{
			Path:        filepath.Join(options.Dir, logFile),
			BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
	case "wal":
		store, err = wal.Open(options.Dir, wal.WithLogger(hclog.NewNullLogger()))
	default:
		err = fmt.Errorf("there is no log store %q", options.LogStore)
	}
	if err != nil {
		return nil, err
	}
	return &countedLog{logStore: store}, nil
}

// IsMonotonic returns the same answer as the daemon's log.
func (c *countedLog) IsMonotonic() bool { return true }

func (c *countedLog) count(err error) error {
	if err == nil {
		c.writes.Add(1)
	}
	return err
}

// StoreLog stores one entry durably.
func (c *countedLog) StoreLog(log *raft.Log) error { return c.count(c.logStore.StoreLog(log)) }

// StoreLogs stores entries durably.
func (c *countedLog) StoreLogs(logs []*raft.Log) error { return c.count(c.logStore.StoreLogs(logs)) }

// DeleteRange drops entries that a snapshot covers.
func (c *countedLog) DeleteRange(first, last uint64) error {
	return c.count(c.logStore.DeleteRange(first, last))
}

// Set stores a key of the stable store, such as a vote.
func (c *countedLog) Set(key, value []byte) error { return c.count(c.logStore.Set(key, value)) }

// SetUint64 stores a number of the stable store, such as the term.
func (c *countedLog) SetUint64(key []byte, value uint64) error {
	return c.count(c.logStore.SetUint64(key, value))
}
