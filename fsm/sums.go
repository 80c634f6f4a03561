package fsm

import (
	"fmt"

	"github.com/conductord/conductord/fsm/tables"
)

// TableSum is the sum of the hashes of a table's rows, modulo 2^64. Machines that have
// applied the same entries have the same sums.
type TableSum struct {
	Table string
	Sum   uint64
}

// Sums are the sums of a state that are not computed yet. Close it.
type Sums struct{ reader *tables.Reader }

// Sums begins to sum up the present state, at the price of opening a read.
func (m *Machine) Sums() (*Sums, error) {
	reader, err := m.reader()
	if err != nil {
		return nil, fmt.Errorf("cannot sum up the state: %w", err)
	}
	return &Sums{reader}, nil
}

// Compute computes the sums, whatever has been applied since. It looks at every row that was
// not flushed yet when the sums began: some milliseconds.
func (s *Sums) Compute() []TableSum {
	sums := make([]TableSum, len(tableNames))
	for t, sum := range s.reader.Sums() {
		sums[t] = TableSum{tableNames[t], sum}
	}
	return sums
}

// Close ends the read.
func (s *Sums) Close() error { return s.reader.Close() }
