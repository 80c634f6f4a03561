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

// reader opens a reader of the current state. Only opening excludes Restore. An open reader continues with its
// state.
func (m *Machine) reader() (*tables.Reader, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.database == nil {
		return nil, ErrClosed
	}
	return m.database.Reader()
}

// read calls do with a view of the current state. do may keep only copies: the memory that it reads is
// invalid after it returns.
func (m *Machine) read(do func(*view) error) (err error) {
	reader, err := m.reader()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	defer caught(&err)
	return do(&view{reader: reader})
}
