package bareraft

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// counter is the state machine: how many commands were applied. It implements
// raft.BatchingFSM, as the daemon's does.
type counter struct{ commands uint64 }

// ApplyBatch counts the commands of entries. The answer to an entry is its number of commands.
func (c *counter) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	for i, log := range logs {
		n := 0
		if log.Type == raft.LogCommand {
			n = commandsIn(log.Data)
		}
		c.commands += uint64(n)
		answers[i] = n
	}
	return answers
}

// Apply counts the commands of one entry.
func (c *counter) Apply(log *raft.Log) any { return c.ApplyBatch([]*raft.Log{log})[0] }

// Snapshot notes the count.
func (c *counter) Snapshot() (raft.FSMSnapshot, error) {
	return counted(binary.BigEndian.AppendUint64(nil, c.commands)), nil
}

// Restore reads a count.
func (c *counter) Restore(from io.ReadCloser) error {
	err := binary.Read(from, binary.BigEndian, &c.commands)
	return errors.Join(err, from.Close())
}

// counted is a snapshot of the count.
type counted []byte

// Persist writes the count to raft's sink.
func (c counted) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(c); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release does nothing: the snapshot holds no resources.
func (counted) Release() {}

// appendCommand appends a command, with its length first, to an entry.
func appendCommand(entry, command []byte) []byte {
	return append(binary.AppendUvarint(entry, uint64(len(command))), command...)
}

// commandsIn counts the commands of an entry, up to the first damage.
func commandsIn(entry []byte) int {
	n := 0
	for len(entry) > 0 {
		size, head := binary.Uvarint(entry)
		if head <= 0 || size > uint64(len(entry)-head) {
			return n
		}
		entry = entry[head+int(size):]
		n++
	}
	return n
}
