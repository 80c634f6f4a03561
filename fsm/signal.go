package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// signal gives a signal to the oldest wait of a job for it. Without such a wait, the job keeps the signal.
func (t *txn) signal(c *v1.SignalCommand) (*v1.Result, error) {
	sent, err := command.SignalCommandFromProto(c)
	if err != nil {
		return nil, err
	}
	j, board, err := t.addressee(&sent)
	if err != nil {
		return nil, fmt.Errorf("cannot send signal %q: %w", sent.Signal.Name, err)
	}
	receipt, err := t.receive(j, board, &sent.Signal)
	if err != nil {
		return nil, err
	}
	return &v1.Result{Kind: &v1.Result_Signal{Signal: command.SignalReceiptToProto(receipt)}}, nil
}

// addressee finds the job of a signal. For a signal by key, it also returns the key's board.
func (t *txn) addressee(sent *jobs.SignalCommand) (*jobRecord, string, error) {
	if sent.Key == "" {
		j, err := t.jobByID(sent.Job)
		return j, "", err
	}
	board := cmp.Or(sent.Board, jobs.DefaultBoard)
	j := t.keyHolder(board, sent.Key, sent.Signal.ID)
	if j == nil {
		return nil, "", fmt.Errorf("no unfinished job of board %q has key %q: %w: post the job with the signal, or name a job by its id", board, sent.Key, jobs.ErrNotFound)
	}
	return j, board, nil
}

// keyHolder finds the job of a board that gets a signal by key: the job that has received the id by this key, even
// after its end, so that a repeat never reaches a later job of the key. Otherwise the unfinished job with the key.
func (t *txn) keyHolder(board, key, id string) *jobRecord {
	if len(board) > maxKeyName || len(key) > maxKeyName {
		return nil
	}
	if value := t.get(tableSignalKey, signalKeyKey(board, key, id)); value != nil {
		return t.job(binary.BigEndian.Uint64(value))
	}
	return t.holderOf(board, key)
}

// receive gives a signal to a job. board is the board of a signal by key; empty for a signal to the job's id.
func (t *txn) receive(j *jobRecord, board string, signal *logbook.Signal) (jobs.SignalReceipt, error) {
	if first, known := t.received(j, signal.ID); known {
		return jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: first, Job: j.ID}, nil
	}
	if err := j.admits(signal, t.awaits(j, signal.Name)); err != nil {
		return jobs.SignalReceipt{}, fmt.Errorf("cannot send signal %q to job %s: %w", signal.Name, j.ID, err)
	}
	step := t.accept(j, board, signal)
	if step == "" {
		t.putJob(j)
	} else {
		t.hurry(j)
	}
	t.eventOfSignal(j, signal.Name, step)
	return receiptOf(j, step), nil
}

// received returns the answer to the signal of an id that a job has received.
func (t *txn) received(j *jobRecord, id string) (jobs.SignalAnswer, bool) {
	value := t.get(tableSignalID, signalIDKey(j, id))
	if value == nil {
		return "", false
	}
	answer, _ := decodeSignalID(value)
	return answer, true
}

// accept gives an admitted signal to the oldest wait for it, and returns the waiting step. Without such a wait, the
// signal is unread. The caller stores the job.
func (t *txn) accept(j *jobRecord, board string, signal *logbook.Signal) (step string) {
	signal.At = t.now
	j.signals++
	if step = t.deliver(j, signal); step == "" {
		t.keepSignal(j, signal)
	}
	t.put(tableSignalID, signalIDKey(j, signal.ID), encodeSignalID(receiptOf(j, step).Answer, board))
	if board != "" {
		t.put(tableSignalKey, signalKeyKey(board, j.Key, signal.ID), sequenceKey(j.Sequence))
	}
	return step
}

// receiptOf returns the answer to a new signal: a step has taken the signal, or the job keeps it.
func receiptOf(j *jobRecord, step string) jobs.SignalReceipt {
	if step == "" {
		return jobs.SignalReceipt{Answer: jobs.SignalKept, Job: j.ID}
	}
	return jobs.SignalReceipt{Answer: jobs.SignalTaken, Job: j.ID}
}

// admits checks that a job can receive a signal. A signal for which a step waits needs no room.
func (j *jobRecord) admits(signal *logbook.Signal, awaited bool) error {
	switch {
	case j.State == jobs.StateTrashed:
		return fmt.Errorf("%w: it is trashed", jobs.ErrJobOver)
	case j.State.Finished():
		return fmt.Errorf("%w: its outcome is %s", jobs.ErrJobOver, j.Outcome)
	case j.signals >= jobs.MaxSignals:
		return fmt.Errorf("%w: it has received %d signals, and the limit is %d", jobs.ErrSignalsFull, j.signals, jobs.MaxSignals)
	case awaited:
	case j.UnreadSignals >= jobs.MaxUnreadSignals:
		return fmt.Errorf("%w: it has %d unread signals, and the limit is %d: send the next when a step has taken one", jobs.ErrSignalsFull, j.UnreadSignals, jobs.MaxUnreadSignals)
	case j.signalBytes+uint64(signal.Size()) > jobs.MaxUnreadBytes:
		return fmt.Errorf("%w: its unread signals and this one have %d bytes, and the limit is %d: send the next when a step has taken one",
			jobs.ErrSignalsFull, j.signalBytes+uint64(signal.Size()), jobs.MaxUnreadBytes)
	}
	return nil
}

// keepSignal stores the latest signal of a job as unread. The caller stores the job.
func (t *txn) keepSignal(j *jobRecord, signal *logbook.Signal) {
	t.putMessage(tableSignal, signalKey(j, j.signals), nil, command.SignalToProto(signal))
	j.UnreadSignals++
	j.signalBytes += uint64(signal.Size())
}

// removeSignals removes the signals of a job with its record.
func (t *txn) removeSignals(j *jobRecord) {
	if j.signals == 0 {
		return
	}
	prefix := sequenceKey(j.Sequence)
	t.deletePrefix(tableSignal, prefix)
	for _, key := range t.keys(tableSignalID, prefix) {
		if _, board := decodeSignalID(t.get(tableSignalID, key)); board != "" {
			t.delete(tableSignalKey, signalKeyKey(board, j.Key, string(key[len(prefix):])))
		}
		t.delete(tableSignalID, key)
	}
}

// signalKey returns the key of an unread signal. The signals of a job sort by arrival.
func signalKey(j *jobRecord, number uint64) []byte {
	return binary.BigEndian.AppendUint64(sequenceKey(j.Sequence), number)
}

func signalIDKey(j *jobRecord, id string) []byte {
	return append(append(make([]byte, 0, usualKey), sequenceKey(j.Sequence)...), id...)
}

// signalKeyKey returns the key of a signal that was sent by key.
func signalKeyKey(board, key, id string) []byte {
	return append(appendName(boardKey(board), key), id...)
}

// encodeSignalID returns the row of a received signal: whether a wait took it on arrival, and for a signal by key
// the key's board.
func encodeSignalID(answer jobs.SignalAnswer, board string) []byte {
	row := make([]byte, 1, 1+len(board))
	if answer == jobs.SignalTaken {
		row[0] = 1
	}
	return append(row, board...)
}

func decodeSignalID(value []byte) (answer jobs.SignalAnswer, board string) {
	if len(value) == 0 {
		panic(corrupt("the id of a signal is stored without its answer"))
	}
	if value[0] == 1 {
		return jobs.SignalTaken, string(value[1:])
	}
	return jobs.SignalKept, string(value[1:])
}
