package node

import (
	"errors"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// boltFile holds log, term and votes of a node whose log store is bolt.
const boltFile = "raft.db"

// boltLog is raft-boltdb as a logEngine.
type boltLog struct{ *raftboltdb.BoltStore }

func openBolt(path string) (logEngine, error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	store, err := raftboltdb.New(raftboltdb.Options{
		Path:        path,
		BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
	if err != nil {
		return nil, err
	}
	return boltLog{store}, nil
}

// Get reads a key. raft's contract wants nothing, and not an error, for one
// that was never set.
func (b boltLog) Get(key []byte) ([]byte, error) {
	value, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return value, err
}

// GetUint64 reads a number; 0 if it was never set.
func (b boltLog) GetUint64(key []byte) (uint64, error) {
	value, err := b.BoltStore.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return value, err
}
