package fsm

import (
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// checkCheckpoints compares the counts of an atom with its checkpoints.
func (c *census) checkCheckpoints(key, value []byte) error {
	flow, atom := logbook.FlowID{UUID: [idSize]byte(key[:idSize])}, decodeAtom(value)
	prefix, counted, found := checkpointPrefix(flow, atom.number), logbook.Checkpoints{}, logbook.Checkpoints{}
	if atom.detail.Checkpoints != nil {
		counted = *atom.detail.Checkpoints
	}
	c.scan(tableCheckpoint, prefix, func(key, value []byte) bool {
		found.Count++
		found.Bytes += len(key) - len(prefix) + len(decodeMessage(value, &v1.CheckpointRow{}).GetValue().GetJson())
		return true
	})
	if (found.Count != counted.Count || found.Bytes != counted.Bytes) && !c.isGarbage(flow) {
		return fmt.Errorf("step %q of flow %s has %d checkpoints of %d bytes, and counts %d of %d bytes", atom.detail.Name, flow, found.Count, found.Bytes, counted.Count, counted.Bytes)
	}
	return nil
}
