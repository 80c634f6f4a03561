package fsm

import (
	"errors"
	"fmt"

	"github.com/conductord/conductord/fsm/tables"
)

func (o *Options) database(path string) (*tables.DB, error) {
	opened, err := tables.Open(tables.Options{
		Path: path, Names: tableNames, MmapSize: o.MmapSize, MemoryRows: o.MemoryRows,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the state: %w", err)
	}
	return opened, nil
}

// reader begins to read the present state. While it does, the state cannot be
// replaced by that of a snapshot; afterwards it can, and the reader goes on.
func (m *Machine) reader() (*tables.Reader, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.database == nil {
		return nil, ErrClosed
	}
	return m.database.Reader()
}

// read runs a function on the present state. The function must keep copies only: the
// memory that it reads is valid until it returns.
func (m *Machine) read(do func(*view) error) (err error) {
	reader, err := m.reader()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	defer caught(&err)
	return do(&view{reader: reader})
}
