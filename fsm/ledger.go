package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

var ledgerKey = []byte("ledger")

// ledger has the numbers that batches change often, in one row: one write per batch. Its encoding is the
// fields in order, as big-endian numbers.
type ledger struct {
	Schema     uint64
	Version    uint64 // version of the commands that the cluster uses
	Index      uint64 // of the last applied entry
	Term       uint64 // of the last applied entry
	Time       int64  // Unix nanoseconds; 0 before the first command
	TimerEpoch uint64
	Generation uint64

	Sequence     uint64 // of the last posted job
	Finishes     uint64 // number of the last finish
	SessionEnds  uint64 // number of the last end of a session
	OpenSessions uint64
	KeptEnds     uint64 // ended sessions that are remembered

	KeptEvents uint64
	EventBytes uint64 // of the kept events, as stored
	LastEvent  jobs.Position
	Compacted  jobs.Position // of the last event that was dropped

	Jobs [stateCount]uint64 // by state, in the order of jobs.States

	Stuck uint64 // finished jobs that need an operator, without their own retention
	Own   uint64 // finished jobs with their own retention

	Principals  uint64
	AccessIndex uint64 // of the last entry that changed one of them

	KeptRecords uint64 // of the audit log
	RecordBytes uint64 // of these, as stored
}

// firstVersion is the cluster version of every new cluster, regardless of its nodes' programs.
const firstVersion = 1

func unknownVersion(version uint64) *fault {
	return corrupt("%w: the cluster uses version %d, and this program supports versions up to %d: install a newer program", command.ErrUnknownVersion, version, command.Version)
}

// stateCount equals len(jobs.States), which is not a constant. A test compares them.
const stateCount = 9

func (l *ledger) time() time.Time {
	if l.Time == 0 {
		return time.Time{}
	}
	return time.Unix(0, l.Time).UTC()
}

// finished returns the number of kept finished jobs.
func (l *ledger) finished() uint64 {
	return l.Jobs[stateNumber(jobs.StateCompleted)] + l.Jobs[stateNumber(jobs.StateTrashed)]
}

func (l *ledger) encode() []byte {
	value, err := binary.Append(nil, binary.BigEndian, l)
	if err != nil {
		panic("internal error: the ledger is not of a fixed size: " + err.Error())
	}
	return value
}

func decodeLedger(value []byte) (ledger, error) {
	var l ledger
	if whole := binary.Size(&l); len(value) != whole {
		return l, fmt.Errorf("the ledger has %d bytes instead of %d", len(value), whole)
	}
	if _, err := binary.Decode(value, binary.BigEndian, &l); err != nil {
		return l, fmt.Errorf("cannot read the ledger: %w", err)
	}
	if l.Schema != schemaVersion {
		return l, fmt.Errorf("the state has schema %d, and this program supports %d", l.Schema, schemaVersion)
	}
	if l.Version < firstVersion || l.Version > command.Version {
		return l, unknownVersion(l.Version).cause
	}
	return l, nil
}

// stateNumber returns the index of a state in jobs.States, or -1.
func stateNumber(state jobs.State) int {
	for i, known := range jobs.States {
		if known == state {
			return i
		}
	}
	return -1
}

// ledgerOf reads the ledger of a database.
func (v *view) ledgerOf() (ledger, error) { return decodeLedger(v.get(tableLedger, ledgerKey)) }
