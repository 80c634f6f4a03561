package fsm

import (
	"bytes"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
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
	if subscription := subscriptionOf(key, value); subscription != nil && string(c.get(tableSubscription, subscription)) != step {
		return fmt.Errorf("step %q of flow %s waits for a topic, and has no subscription", step, flow)
	}
	return nil
}

// checkSubscription requires the open wait of a subscription.
func (c *census) checkSubscription(key, step []byte) error {
	flow := flowOfSubscription(key)
	if c.isGarbage(flow) {
		return nil
	}
	atom := decodeAtom(c.get(tableAtom, atomKey(flow, string(step))))
	wait := waitKey(flow, atom.waited, atom.number)
	if value := c.get(tableWait, wait); value == nil || !bytes.Equal(subscriptionOf(wait, value), key) {
		return fmt.Errorf("the subscription of step %q of flow %s has no wait", step, flow)
	}
	return nil
}

// checkKept requires the end of a kept publication.
func (c *census) checkKept(key, value []byte) error {
	until := decodeMessage(value, &v1.PublicationRow{}).GetUntil().AsTime()
	if board, _ := nameOfKey(key); c.get(tablePublications, []byte(board)) == nil {
		return fmt.Errorf("a publication of board %q is not counted", board)
	}
	if keys := c.keys(tableKeptUntil, keptUntilKey(until, key)); len(keys) != 1 {
		return fmt.Errorf("a kept publication has %d ends", len(keys))
	}
	return nil
}

// checkPublications compares the counts of a board with its publications.
func (c *census) checkPublications(board string, value []byte) error {
	row, kept, size := decodeMessage(value, &v1.PublicationsRow{}), uint32(0), uint64(0)
	c.scan(tableKept, boardKey(board), func(_, value []byte) bool {
		signal, _ := command.SignalFromProto(decodeMessage(value, &v1.PublicationRow{}).GetSignal())
		kept++
		size += uint64(signal.Size())
		return true
	})
	ids, order := len(c.keys(tablePublicationID, boardKey(board))), len(c.keys(tablePublicationOrder, boardKey(board)))
	if want := int(min(row.GetPublished(), jobs.MaxPublicationIDs)); kept != row.GetKept() || size != row.GetKeptBytes() || ids != want || order != want {
		return fmt.Errorf("board %q keeps %d publications of %d bytes, and %d and %d ids, and counts %v", board, kept, size, ids, order, row)
	}
	return nil
}

// signalRow checks a row of signals, approvals or publications.
func (c *census) signalRow(t table, key, value []byte) error {
	switch t {
	case tableReminder:
		return c.checkReminder(key)
	case tableSubscription:
		return c.checkSubscription(key, value)
	case tableKept:
		return c.checkKept(key, value)
	case tablePublications:
		return c.checkPublications(string(key), value)
	default:
		return c.checkSignalKey(key, value)
	}
}
