package fsm

import (
	"bytes"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/fsm/tables"
)

// Entry is one committed entry of the log.
type Entry struct {
	Index, Term uint64
	// Data is the result of command.EncodeEntry. It is empty for an entry without commands, such as
	// a change of members. Then only the index changes.
	Data []byte
	// Unanswered: no caller reads the results, so Apply does not make them. The state does not
	// depend on it.
	Unanswered bool
}

// Apply applies entries in order, in one transaction. It skips entries that were applied before.
// results[i][j] is the result of command j of entry i; results[i] is nil for a skipped or unanswered
// entry.
//
// An error means that the machine cannot continue: the disk or the data is bad, or an entry has content
// that this program does not know. Nothing of the batch was applied, and later calls fail too. The
// process must stop.
func (m *Machine) Apply(entries []Entry) ([][]*v1.Result, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.broken != nil {
		return nil, m.broken
	}
	if m.closed() {
		return nil, ErrClosed
	}
	results, changes, err := m.applyBatch(entries)
	if err != nil {
		m.broken = fmt.Errorf("cannot apply the log after entry %d: %w", m.AppliedIndex(), err)
		return nil, m.broken
	}
	m.announce()
	if changes != nil {
		m.options.Changed(*changes)
	}
	return results, nil
}

// begin starts a transaction on a database.
func (m *Machine) begin(on *tables.DB, from ledger, known caches) (*txn, error) {
	writer, err := on.Begin()
	if err != nil {
		return nil, fmt.Errorf("cannot begin a transaction: %w", err)
	}
	return &txn{
		view: view{reader: &writer.Reader, caches: known}, writer: writer, ledger: from,
		eventsKept: uint64(m.options.EventsKept), queues: make(map[Queue]bool), memory: &m.memory, messages: &m.messages,
	}, nil
}

// applyBatch runs the transaction. The changes are nil if there are none.
func (m *Machine) applyBatch(entries []Entry) (results [][]*v1.Result, changes *Changes, err error) {
	defer caught(&err)
	t, err := m.begin(m.database, m.status.Load().ledger, m.caches) // after a failed batch, no code reads the caches
	if err != nil {
		return nil, nil, err
	}
	defer t.writer.Rollback() //nolint:errcheck // after the commit it does nothing, before it there is nothing to lose
	defer m.memory.reset()
	results = make([][]*v1.Result, len(entries))
	for i := range entries {
		if results[i], err = t.entry(&entries[i]); err != nil {
			return nil, nil, fmt.Errorf("entry %d: %w", entries[i].Index, err)
		}
	}
	m.own.add(t.own) // before a watch can read their events
	after, err := t.commit()
	if err != nil {
		return nil, nil, err
	}
	m.status.Store(after)
	if t.writes == 0 {
		return results, nil, nil
	}
	t.changes.Index, t.changes.NextDue, t.changes.NextSlot = after.Index, after.nextDue, after.nextSlot
	return results, &t.changes, nil
}

// entry applies one entry.
func (t *txn) entry(e *Entry) ([]*v1.Result, error) {
	if e.Index <= t.Index {
		return nil, nil
	}
	t.Index, t.Term, t.item, t.records, t.begun, t.use = e.Index, e.Term, 0, 0, t.writes, entryUse{}
	if len(e.Data) == 0 {
		return nil, nil
	}
	decoded, err := command.DecodeEntry(e.Data)
	if err != nil {
		return nil, err
	}
	t.Time = max(t.Time, decoded.GetTimeUnixNano())
	t.now, t.answered = t.time(), !e.Unanswered
	var results []*v1.Result
	if t.answered {
		results = make([]*v1.Result, 0, len(decoded.GetCommands()))
	}
	for i, c := range decoded.GetCommands() {
		result, err := t.command(c)
		if err != nil {
			return nil, fmt.Errorf("command %d, %s: %w", i+1, command.Name(c), err)
		}
		if t.answered {
			results = append(results, result)
		}
	}
	t.putEvents()
	return results, nil
}

// command applies one command. A refusal is a result. The error is a fault, or an unknown
// command.
func (t *txn) command(c *v1.Command) (answer *v1.Result, err error) {
	defer caught(&err)
	before := t.writes
	t.by = c.GetPrincipal()
	apply := appliers[command.Name(c)]
	if apply == nil {
		return nil, fmt.Errorf("%w: %T", command.ErrUnknownCommand, c.GetKind())
	}
	result, err := apply(t, c)
	if err == nil {
		t.postWaiting()
	}
	if err != nil && t.writes != before {
		// Every command decides before its first write. Otherwise some writes of a refused
		// command would remain.
		panic(corrupt("internal error: refused after %d writes: %w", t.writes-before, err))
	}
	t.audit(c, err)
	switch {
	case err == nil && result == nil && t.answered:
		return &v1.Result{}, nil
	case err == nil:
		return result, nil
	case !t.answered:
		return nil, nil
	}
	return &v1.Result{Error: command.ErrorToProto(err)}, nil
}

// commit writes the ledger and ends the transaction.
func (t *txn) commit() (*status, error) {
	if t.changes.Events {
		t.trimEvents()
	}
	if !t.auditedAt.IsZero() {
		t.trimAudit()
	}
	t.saveCounters()
	after := &status{ledger: t.ledger}
	if err := t.writer.Put(tableLedger, ledgerKey, t.ledger.encode()); err != nil {
		return nil, fmt.Errorf("cannot write the ledger: %w", err)
	}
	after.nextDue, after.nextSlot = t.nextDue(), t.nextSlot()
	if err := t.writer.Commit(); err != nil {
		return nil, fmt.Errorf("cannot commit: %w", err)
	}
	return after, nil
}

func (v *view) nextDue() time.Time {
	var due []byte // the keys of all these tables start with the time
	for _, tab := range [...]table{tableDue, tableDeadline, tableReminder, tableKeptUntil} {
		if first, _ := v.cursor(tab).First(); first != nil && (due == nil || bytes.Compare(first, due) < 0) {
			due = bytes.Clone(first)
		}
	}
	if due == nil {
		return time.Time{}
	}
	return timeOfKey(due)
}
