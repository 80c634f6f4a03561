package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// Each checkpoint of a step has its own row, so that the cost of a checkpoint does not depend on the number of
// earlier ones. The atom has their counts. Rows and counts change in one entry, under the token of the update.

// checkpointPrefix returns the prefix of the keys of an atom's checkpoints.
func checkpointPrefix(flow logbook.FlowID, atom uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, usualKey), flow.UUID[:]...), atom)
}

func checkpointKey(flow logbook.FlowID, atom uint32, name string) []byte {
	return append(checkpointPrefix(flow, atom), name...)
}

// planCheckpoints counts the checkpoints of a change, and keeps them for putCheckpoints.
func (t *txn) planCheckpoints(flow logbook.FlowID, a *atomRecord, change *logbook.AtomChange) error {
	for i := range change.Checkpoints {
		c := &change.Checkpoints[i]
		if len(c.Name) > maxKeyName {
			return &logbook.LimitError{Field: "checkpoint name", Limit: maxKeyName, Size: int64(len(c.Name)), Unit: "bytes"}
		}
		at := slices.IndexFunc(a.recorded, func(r logbook.Checkpoint) bool { return r.Name == c.Name })
		replaced := -1
		if at >= 0 {
			replaced = a.recorded[at].Size()
		} else if row := t.checkpoint(flow, a.number, c.Name); row != nil && !a.dropped {
			replaced = len(c.Name) + len(row.GetValue().GetJson())
		}
		if err := a.detail.CountCheckpoint(c, replaced); err != nil {
			return err
		}
		if at >= 0 {
			a.recorded[at] = *c
		} else {
			a.recorded = append(a.recorded, *c)
		}
	}
	return nil
}

// putCheckpoints removes the checkpoints that the update drops, and writes the checkpoints that it records.
func (t *txn) putCheckpoints(flow logbook.FlowID, a *atomRecord) {
	if a.dropped {
		t.deletePrefix(tableCheckpoint, checkpointPrefix(flow, a.number))
	}
	for i := range a.recorded {
		c := &a.recorded[i]
		t.putMessage(tableCheckpoint, checkpointKey(flow, a.number, c.Name), nil, &v1.CheckpointRow{Value: command.ValueToProto(c.Value)})
	}
	a.dropped, a.recorded = false, nil
}

// checkpoint reads a checkpoint; nil if there is none.
func (v *view) checkpoint(flow logbook.FlowID, atom uint32, name string) *v1.CheckpointRow {
	value := v.get(tableCheckpoint, checkpointKey(flow, atom, name))
	if value == nil {
		return nil
	}
	return decodeMessage(value, &v1.CheckpointRow{})
}

// Checkpoints reads the checkpoints of a step, sorted by name. A step without a record has none. ErrNotFound if
// the flow does not exist.
func (m *Machine) Checkpoints(flow logbook.FlowID, step string) (checkpoints []*v1.Checkpoint, err error) {
	if err := logbook.MaxLimits.CheckName("step", step); err != nil {
		return nil, err
	}
	err = m.read(func(v *view) error {
		if v.flow(flow) == nil {
			return fmt.Errorf("flow %s: %w", flow, logbook.ErrNotFound)
		}
		value := v.get(tableAtom, atomKey(flow, step))
		if value == nil {
			return nil
		}
		prefix := checkpointPrefix(flow, atomNumber(value))
		v.scan(tableCheckpoint, prefix, func(key, value []byte) bool {
			row := decodeMessage(value, &v1.CheckpointRow{})
			checkpoints = append(checkpoints, &v1.Checkpoint{Name: string(key[len(prefix):]), Value: row.GetValue()})
			return true
		})
		return nil
	})
	return checkpoints, err
}
