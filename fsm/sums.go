package fsm

import (
	"fmt"

	"github.com/conductord/conductord/fsm/tables"
)

// TableSum is the sum of the hashes of a table's rows, modulo 2^64. Machines that have applied the same entries have
// equal sums.
type TableSum struct {
	Table string
	Sum   uint64
}

// Sums is a state whose sums can be computed. Close it after use.
type Sums struct{ reader *tables.Reader }

// Sums opens the current state for Compute. It costs as much as opening a read.
func (m *Machine) Sums() (*Sums, error) {
	reader, err := m.reader()
	if err != nil {
		return nil, fmt.Errorf("cannot compute the checksums of the state: %w", err)
	}
	return &Sums{reader}, nil
}

// Compute computes the sums of the opened state. It reads only the rows that were not flushed when the state was opened,
// which takes some milliseconds.
func (s *Sums) Compute() []TableSum {
	sums := make([]TableSum, len(tableNames))
	for t, sum := range s.reader.Sums() {
		sums[t] = TableSum{tableNames[t], sum}
	}
	return sums
}

// Close ends the read.
func (s *Sums) Close() error { return s.reader.Close() }
