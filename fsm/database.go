package fsm

import (
	"errors"
	"fmt"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
)

// database is an open bbolt file with a count of its users: bbolt's Close
// waits for open reads, and a restoration must not wait for a snapshot that is
// still being written from the state before it. The last user closes.
type database struct {
	bolt  *bolt.DB
	users atomic.Int64 // one of them is the Machine
}

func openDatabase(path string, mmapSize int) (*database, error) {
	const ownerOnly = 0o600 // jobs carry what users put into them
	opened, err := bolt.Open(path, ownerOnly, &bolt.Options{
		Timeout: lockTimeout,
		// The file is a cache: nothing relies on it after a stop, so nothing
		// is gained by syncing it.
		NoSync:          true,
		NoGrowSync:      true,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mmapSize,
		NoStatistics:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the database %s: %w", path, err)
	}
	d := &database{bolt: opened}
	d.users.Store(1)
	return d, nil
}

// release ends one use.
func (d *database) release() error {
	if d.users.Add(-1) > 0 {
		return nil
	}
	if err := d.bolt.Close(); err != nil {
		return fmt.Errorf("cannot close the database: %w", err)
	}
	return nil
}

// use takes the present database; the caller must release it.
func (m *Machine) use() (*database, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.database == nil {
		return nil, ErrClosed
	}
	m.database.users.Add(1)
	return m.database, nil
}

// read runs a function in a short read transaction. What the function keeps
// must be copies: bbolt's memory is only good within the transaction.
func (m *Machine) read(do func(*view) error) error {
	present, err := m.use()
	if err != nil {
		return err
	}
	err = present.bolt.View(func(tx *bolt.Tx) error { return do(&view{tx: tx}) })
	return errors.Join(err, present.release())
}
