package fsm

import (
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
	j, err := t.jobByID(sent.Job)
	if err != nil {
		return nil, fmt.Errorf("cannot signal: %w", err)
	}
	if value := t.get(tableSignalID, signalIDKey(j, sent.Signal.ID)); value != nil {
		first := decodeSignalID(value)
		return signalled(jobs.SignalReceipt{Answer: jobs.SignalRepeated, First: first}), nil
	}
	if err := j.admits(&sent.Signal, t.awaits(j, sent.Signal.Name)); err != nil {
		return nil, fmt.Errorf("cannot send signal %q to job %s: %w", sent.Signal.Name, j.ID, err)
	}
	sent.Signal.At = t.now
	j.signals++
	answer, step := jobs.SignalTaken, t.deliver(j, &sent.Signal)
	if step == "" {
		answer = jobs.SignalKept
		t.keepSignal(j, &sent.Signal)
		t.putJob(j)
	} else {
		t.hurry(j)
	}
	t.put(tableSignalID, signalIDKey(j, sent.Signal.ID), encodeSignalID(answer))
	t.eventOfSignal(j, sent.Signal.Name, step)
	return signalled(jobs.SignalReceipt{Answer: answer}), nil
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
	t.deletePrefix(tableSignal, sequenceKey(j.Sequence))
	t.deletePrefix(tableSignalID, sequenceKey(j.Sequence))
}

func signalled(receipt jobs.SignalReceipt) *v1.Result {
	return &v1.Result{Kind: &v1.Result_Signal{Signal: command.SignalReceiptToProto(receipt)}}
}

// signalKey returns the key of an unread signal. The signals of a job sort by arrival.
func signalKey(j *jobRecord, number uint64) []byte {
	return binary.BigEndian.AppendUint64(sequenceKey(j.Sequence), number)
}

func signalIDKey(j *jobRecord, id string) []byte {
	return append(append(make([]byte, 0, usualKey), sequenceKey(j.Sequence)...), id...)
}

// encodeSignalID returns the row of a received signal: whether a wait took it on arrival.
func encodeSignalID(answer jobs.SignalAnswer) []byte {
	if answer == jobs.SignalTaken {
		return []byte{1}
	}
	return []byte{0}
}

func decodeSignalID(value []byte) jobs.SignalAnswer {
	if len(value) != 1 {
		panic(corrupt("the id of a signal is stored in %d bytes", len(value)))
	}
	if value[0] == 1 {
		return jobs.SignalTaken
	}
	return jobs.SignalKept
}
