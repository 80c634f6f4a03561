package fsm

import (
	"bytes"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// checkSignals compares the counts of a job with its signals.
func (c *census) checkSignals(j *jobRecord) error {
	unread, size := 0, uint64(0)
	c.scan(tableSignal, sequenceKey(j.Sequence), func(_, value []byte) bool {
		unread++
		size += uint64(decode(value, &v1.Signal{}, command.SignalFromProto).Size())
		return true
	})
	ids := c.keys(tableSignalID, sequenceKey(j.Sequence))
	received := len(ids)
	for _, key := range ids {
		if _, board := decodeSignalID(c.get(tableSignalID, key)); board != "" && c.get(tableSignalKey, signalKeyKey(board, j.Key, string(key[sequenceSize:]))) == nil {
			return fmt.Errorf("job %s received signal %q by key, and the key has no row", j.ID, key[sequenceSize:])
		}
	}
	if unread != j.UnreadSignals || size != j.signalBytes || uint64(received) != j.signals {
		return fmt.Errorf("job %s has %d unread signals of %d bytes and %d ids, and counts %d of %d bytes and %d", j.ID, unread, size, received, j.UnreadSignals, j.signalBytes, j.signals)
	}
	return nil
}

// checkWait requires the row of an atom's open wait.
func (c *census) checkWait(key, value []byte) error {
	flow, atom := logbook.FlowID{UUID: [idSize]byte(key[:idSize])}, decodeAtom(value)
	if atom.waited != 0 && c.get(tableWait, waitKey(flow, atom.waited, atom.number)) == nil && !c.isGarbage(flow) {
		return fmt.Errorf("step %q of flow %s waits for a signal, and has no row", atom.detail.Name, flow)
	}
	asks := atom.waited != 0 && atom.detail.OpenWait().Approval != nil
	if listed := atom.waited != 0 && c.get(tableApproval, approvalKey(flow, atom.waited, atom.number)) != nil; listed != asks && !c.isGarbage(flow) {
		return fmt.Errorf("step %q of flow %s waits for an approval: %v, and is listed: %v", atom.detail.Name, flow, asks, listed)
	}
	return nil
}

// checkSignalKey requires the job that received a signal by key.
func (c *census) checkSignalKey(key, value []byte) error {
	if c.get(tableJob, value) == nil {
		return fmt.Errorf("signal %q was sent by key to a job that is not there", key)
	}
	return nil
}

// checkReminder requires the open approval of a reminder.
func (c *census) checkReminder(key []byte) error {
	row := decodeMessage(c.get(tableApproval, key[dueTimeSize:]), &v1.ApprovalRow{})
	if row.GetRemindAt() == nil || !row.GetRemindAt().AsTime().Equal(timeOfKey(key)) {
		return fmt.Errorf("reminder %x belongs to no approval that has it", key)
	}
	return nil
}

// checkWaitRow requires the open wait of a row.
func (c *census) checkWaitRow(key, value []byte) error {
	flow, step := logbook.FlowID{UUID: [idSize]byte(key[:idSize])}, decodeMessage(value, &v1.WaitRow{}).GetStep()
	stored := c.get(tableAtom, atomKey(flow, step))
	if c.isGarbage(flow) {
		return nil
	}
	if stored == nil {
		return fmt.Errorf("flow %s has a wait of step %q, which is not there", flow, step)
	}
	if atom := decodeAtom(stored); !bytes.Equal(key, waitKey(flow, atom.waited, atom.number)) {
		return fmt.Errorf("flow %s has a wait of step %q, which does not wait", flow, step)
	}
	return nil
}
