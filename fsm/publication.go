package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// A step that waits for a topic has a row in tableWait, like a step that waits for a signal. It also has a row in
// tableSubscription, by which a publication finds the step. Both rows change in one entry. A publication that
// reaches the wait gives the atom a signal with the topic's name. The subscription is on the board of the flow's last
// job, and moves with the job.

// publicationKey returns the start of all keys of a topic and a key.
func publicationKey(board, topic, key string) []byte {
	return appendName(appendName(boardKey(board), topic), key)
}

// subscriptionKey returns the key of a wait for a topic. The waits for one key sort by their starts.
func subscriptionKey(row *v1.WaitRow, flow logbook.FlowID, number uint64, atom uint32) []byte {
	key := binary.BigEndian.AppendUint64(publicationKey(row.GetBoard(), row.GetTopic(), row.GetKey()), number)
	return binary.BigEndian.AppendUint32(append(key, flow.UUID[:]...), atom)
}

// subscriptionOf returns the key of the subscription of a wait; nil: the wait has none.
func subscriptionOf(key, value []byte) []byte {
	row := decodeMessage(value, &v1.WaitRow{})
	if row.GetTopic() == "" || row.GetBoard() == "" {
		return nil
	}
	flow, rest := logbook.FlowID{UUID: [idSize]byte(key[:idSize])}, key[idSize:]
	return subscriptionKey(row, flow, binary.BigEndian.Uint64(rest), binary.BigEndian.Uint32(rest[8:]))
}

// flowOfSubscription returns the flow in a key of tableSubscription.
func flowOfSubscription(key []byte) logbook.FlowID {
	return logbook.FlowID{UUID: [idSize]byte(key[len(key)-idSize-4:])}
}

// publish gives a publication to the waits for its topic and key, or keeps it.
func (t *txn) publish(c *v1.PublishCommand) (*v1.Result, error) {
	p, err := command.PublicationFromProto(c)
	if err != nil {
		return nil, err
	}
	receipt, err := t.publishTo(&p)
	if err != nil {
		return nil, fmt.Errorf("topic %q with key %q on board %q: %w", p.Topic, p.Key, p.Board, err)
	}
	return &v1.Result{Kind: &v1.Result_Publish{Publish: command.PublishReceiptToProto(receipt)}}, nil
}

func (t *txn) publishTo(p *jobs.Publication) (receipt jobs.PublishReceipt, err error) {
	if _, err := t.existingBoard(p.Board); err != nil {
		return receipt, err
	}
	place := publicationKey(p.Board, p.Topic, p.Key)
	id := append(bytes.Clone(place), p.Signal.ID...)
	if first := t.get(tablePublicationID, id); first != nil {
		receipt = decodePublicationID(first)
		receipt.Answer, receipt.First = jobs.SignalRepeated, receipt.Answer
		return receipt, nil
	}
	waits, err := t.subscribers(place, p)
	if err != nil {
		return receipt, err
	}
	counts := t.publications(p.Board)
	receipt = jobs.PublishReceipt{Answer: jobs.SignalTaken, Waits: uint32(len(waits))}
	if len(waits) == 0 {
		if err := roomToKeep(counts, p); err != nil {
			return receipt, err
		}
		receipt.Answer = jobs.SignalKept
	}
	counts.Published++
	p.Signal.At = t.now
	for _, key := range waits {
		t.reach(key, p.Signal)
	}
	if receipt.Answer == jobs.SignalKept {
		t.keepPublication(counts, place, p)
	}
	t.rememberPublication(p.Board, counts.Published, id, receipt)
	t.savePublications(p.Board, counts)
	return receipt, nil
}

// subscribers returns the subscriptions that a publication reaches, by their starts. Waits of finished jobs are
// ignored; a trashed job waits again after a retry.
func (t *txn) subscribers(place []byte, p *jobs.Publication) (waits [][]byte, err error) {
	read := 0
	t.scan(tableSubscription, place, func(key, _ []byte) bool {
		if read++; read > jobs.MaxPublishedWaits {
			err = fmt.Errorf("%w: more than %d steps wait, including steps of trashed jobs: purge the trashed jobs, or wait and publish with narrower keys", jobs.ErrLimit, jobs.MaxPublishedWaits)
			return false
		}
		record := t.flow(flowOfSubscription(key))
		if record == nil {
			return true // removed, and its rows are garbage
		}
		if j := t.findJob(record.last); j != nil && !j.State.Finished() && j.Flow == record.ID {
			waits = append(waits, bytes.Clone(key))
		}
		return p.To == jobs.PublishToAll || len(waits) == 0
	})
	if size := len(waits) * p.Signal.Size(); err == nil && size > jobs.MaxPublishedBytes {
		err = &logbook.LimitError{Field: "publication data times waits", Limit: jobs.MaxPublishedBytes, Size: int64(size), Unit: "bytes"}
	}
	return waits, err
}

// reach gives a publication to a wait.
func (t *txn) reach(subscription []byte, signal logbook.Signal) {
	flow, step := flowOfSubscription(subscription), string(t.get(tableSubscription, subscription))
	t.forgetRunning(flow)
	atom := decodeAtom(t.get(tableAtom, atomKey(flow, step)))
	atom.detail.Take(&signal)
	t.deleteWait(flow, atom)
	atom.waited = 0
	t.saveAtom(flow, atom)
	j := t.job(t.flow(flow).last)
	t.hurry(j)
	t.eventOfSignal(j, signal.Name, step)
}

// subscribe stores the subscription of a wait that starts.
func (t *txn) subscribe(flow logbook.FlowID, a *atomRecord, wait *logbook.Wait, row *v1.WaitRow, j *jobRecord) {
	if wait.Topic == "" || j == nil {
		return
	}
	row.Board, row.Topic, row.Key = j.Board, wait.Topic, wait.Key
	t.put(tableSubscription, subscriptionKey(row, flow, wait.Number, a.number), []byte(a.detail.Name))
}

// moveSubscriptions moves the open waits of a job's flow for topics to the board of the job. With takes, they take the
// publications that the board keeps.
func (t *txn) moveSubscriptions(j *jobRecord, takes bool) {
	t.forgetRunning(j.Flow)
	for _, key := range t.keys(tableWait, j.Flow.UUID[:]) {
		row := decodeMessage(t.get(tableWait, key), &v1.WaitRow{})
		atom := decodeAtom(t.get(tableAtom, atomKey(j.Flow, row.GetStep())))
		wait := atom.detail.OpenWait()
		if wait.Topic == "" || row.GetBoard() == j.Board {
			continue
		}
		t.deleteWait(j.Flow, atom)
		if takes && t.takeKept(atom, j) {
			atom.waited = 0
			t.saveAtom(j.Flow, atom)
			continue
		}
		t.subscribe(j.Flow, atom, wait, row, j)
		t.putMessage(tableWait, key, nil, row)
	}
}

// takeKept gives a wait that starts the oldest kept publication of its topic and key; false if there is none.
func (t *txn) takeKept(a *atomRecord, j *jobRecord) bool {
	wait := a.detail.OpenWait()
	if wait.Topic == "" || j == nil {
		return false
	}
	var key []byte
	var kept *v1.PublicationRow
	t.scan(tableKept, publicationKey(j.Board, wait.Topic, wait.Key), func(k, value []byte) bool {
		if row := decodeMessage(value, &v1.PublicationRow{}); row.GetUntil().AsTime().After(t.now) {
			key, kept = bytes.Clone(k), row
		}
		return kept == nil
	})
	if kept == nil {
		return false
	}
	signal := t.removeKept(key, kept)
	a.detail.Take(signal)
	t.hurry(j)
	t.eventOfSignal(j, signal.Name, a.detail.Name)
	return true
}

// roomToKeep checks that a board can keep a publication for which nothing waits.
func roomToKeep(counts *v1.PublicationsRow, p *jobs.Publication) error {
	size := counts.GetKeptBytes() + uint64(p.Signal.Size())
	switch {
	case p.Keep == 0:
		return fmt.Errorf("%w: publish when a step waits, or keep the publication for a time", jobs.ErrNobodyWaits)
	case counts.GetKept() >= jobs.MaxKept:
		return fmt.Errorf("%w: it keeps %d publications, and the limit is %d: publish when a step waits, or keep publications for a shorter time", jobs.ErrPublicationsFull, counts.GetKept(), jobs.MaxKept)
	case size > jobs.MaxKeptBytes:
		return fmt.Errorf("%w: its kept publications and this one have %d bytes, and the limit is %d: publish when a step waits, or keep publications for a shorter time", jobs.ErrPublicationsFull, size, jobs.MaxKeptBytes)
	}
	return nil
}

// keepPublication stores the latest publication of a board. The caller stores the counts.
func (t *txn) keepPublication(counts *v1.PublicationsRow, place []byte, p *jobs.Publication) {
	key, until := binary.BigEndian.AppendUint64(bytes.Clone(place), counts.GetPublished()), t.now.Add(p.Keep)
	t.putMessage(tableKept, key, nil, &v1.PublicationRow{Signal: command.SignalToProto(&p.Signal), Until: command.TimeToProto(until)})
	t.put(tableKeptUntil, keptUntilKey(until, key), nil)
	counts.Kept++
	counts.KeptBytes += uint64(p.Signal.Size())
}

// removeKept removes a kept publication, and returns its signal.
func (t *txn) removeKept(key []byte, row *v1.PublicationRow) *logbook.Signal {
	board, _ := nameOfKey(key)
	signal, err := command.SignalFromProto(row.GetSignal())
	if err != nil {
		panic(corrupt("a kept publication has an invalid signal: %s", err))
	}
	t.delete(tableKept, key)
	t.delete(tableKeptUntil, keptUntilKey(row.GetUntil().AsTime(), key))
	counts := t.publications(board)
	counts.Kept--
	counts.KeptBytes -= uint64(signal.Size())
	t.savePublications(board, counts)
	return signal
}

// expireKept removes kept publications whose time has passed, the earliest first.
func (t *txn) expireKept(most int) (done int, more bool) {
	var due [][]byte
	cursor := t.cursor(tableKeptUntil)
	for key, _ := cursor.First(); key != nil && !timeOfKey(key).After(t.now); key, _ = cursor.Next() {
		if more = len(due) >= most; more {
			break
		}
		due = append(due, bytes.Clone(key[dueTimeSize:]))
	}
	for _, key := range due {
		t.removeKept(key, decodeMessage(t.get(tableKept, key), &v1.PublicationRow{}))
		board, rest := nameOfKey(key)
		topic, rest := nameOfKey(rest)
		ofTopic, _ := nameOfKey(rest)
		t.record(jobs.Event{Kind: jobs.EventPublicationExpired, Board: board, Signal: topic, Key: ofTopic})
	}
	t.changes.Expired += len(due)
	return len(due), more
}

func keptUntilKey(until time.Time, kept []byte) []byte {
	return append(appendTime(make([]byte, 0, dueTimeSize+len(kept)), until), kept...)
}

// rememberPublication stores the answer to a publication for its repeats, and forgets the oldest of the board.
func (t *txn) rememberPublication(board string, number uint64, id []byte, receipt jobs.PublishReceipt) {
	t.put(tablePublicationID, id, encodePublicationID(receipt))
	t.put(tablePublicationOrder, publicationOrderKey(board, number), id)
	if number <= jobs.MaxPublicationIDs {
		return
	}
	oldest := publicationOrderKey(board, number-jobs.MaxPublicationIDs)
	t.delete(tablePublicationID, t.get(tablePublicationOrder, oldest))
	t.delete(tablePublicationOrder, oldest)
}

func publicationOrderKey(board string, number uint64) []byte {
	return binary.BigEndian.AppendUint64(boardKey(board), number)
}

// publications returns the counts of a board's publications.
func (v *view) publications(board string) *v1.PublicationsRow {
	if value := v.get(tablePublications, []byte(board)); value != nil {
		return decodeMessage(value, &v1.PublicationsRow{})
	}
	return &v1.PublicationsRow{}
}

func (t *txn) savePublications(board string, counts *v1.PublicationsRow) {
	t.putMessage(tablePublications, []byte(board), nil, counts)
}

// removePublications removes the publications of a board with the board.
func (t *txn) removePublications(board string) {
	prefix := boardKey(board)
	for _, key := range t.keys(tableKept, prefix) {
		t.removeKept(key, decodeMessage(t.get(tableKept, key), &v1.PublicationRow{}))
	}
	t.deletePrefix(tablePublicationID, prefix)
	t.deletePrefix(tablePublicationOrder, prefix)
	t.delete(tablePublications, []byte(board))
}

// encodePublicationID returns the row of a publication: whether waits took it in its entry, and their number.
func encodePublicationID(receipt jobs.PublishReceipt) []byte {
	row := make([]byte, 1, 5)
	if receipt.Answer == jobs.SignalTaken {
		row[0] = 1
	}
	return binary.BigEndian.AppendUint32(row, receipt.Waits)
}

func decodePublicationID(value []byte) jobs.PublishReceipt {
	if len(value) != 5 {
		panic(corrupt("the id of a publication is stored in %d bytes", len(value)))
	}
	receipt := jobs.PublishReceipt{Answer: jobs.SignalKept, Waits: binary.BigEndian.Uint32(value[1:])}
	if value[0] == 1 {
		receipt.Answer = jobs.SignalTaken
	}
	return receipt
}
