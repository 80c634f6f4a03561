package fsm

import (
	"bytes"

	"github.com/conductord/conductord/logbook"
)

const (
	// maxRemoved bounds the rows that the commands of one entry remove. A book can have millions of
	// steps and attempts, and their removal delays other commands. The remaining rows are garbage,
	// which the leader's sweeps remove.
	maxRemoved = 20_000
	// minRemoved is the number of rows that each removal may remove, even after other removals in
	// the entry. So usual flows leave no garbage.
	minRemoved = 200
)

// flowTables returns the tables in which a flow can have very many rows.
func flowTables() [5]table {
	return [...]table{tableIntervention, tableWait, tableAtom, tableAttempt, tableCheckpoint}
}

// removable returns the number of rows that the current entry may still remove.
func (t *txn) removable() int { return maxRemoved - (t.writes - t.begun) }

// removeBook removes a book with its flows. The count of jobs that refer to the book stays, because finished jobs can
// outlive the book.
func (t *txn) removeBook(id logbook.BookID, flows []logbook.FlowID) {
	room := max(t.removable(), minRemoved)
	for _, flow := range flows {
		for !flow.IsZero() {
			flow = t.removeFlow(t.existingFlow(flow), &room)
		}
	}
	t.deletePrefix(tableBookFlow, id.UUID[:])
	t.delete(tableBook, id.UUID[:])
}

// removeFlow removes a flow, and returns the flow of the iteration before; zero: none. Rows beyond room become garbage.
func (t *txn) removeFlow(record *flowRecord, room *int) (previous logbook.FlowID) {
	id := record.ID
	t.releaseDefinition(record.built)
	t.delete(tableFlow, id.UUID[:])
	t.delete(tableFlowBody, id.UUID[:])
	if !t.clearFlow(id.UUID[:], room) {
		t.put(tableGarbage, id.UUID[:], nil)
	}
	return record.Previous
}

// clearFlow removes garbage rows of a flow, at most room, and reports whether none are left.
func (t *txn) clearFlow(flow []byte, room *int) bool {
	for _, tab := range flowTables() {
		var rows [][]byte
		cursor := t.cursor(tab)
		for key, _ := cursor.Seek(flow); bytes.HasPrefix(key, flow); key, _ = cursor.Next() {
			if len(rows) >= *room {
				t.deleteRows(tab, rows)
				*room = 0
				return false
			}
			rows = append(rows, bytes.Clone(key))
		}
		t.deleteRows(tab, rows)
		*room -= len(rows)
	}
	return true
}

func (t *txn) deleteRows(tab table, rows [][]byte) {
	for _, key := range rows {
		if tab == tableWait {
			t.deleteApproval(approvalKeyOf(key))
			if subscription := subscriptionOf(key, t.get(tableWait, key)); subscription != nil {
				t.delete(tableSubscription, subscription)
			}
		}
		t.delete(tab, key)
	}
}

// clearGarbage removes garbage rows, as many as the entry may still remove, and reports whether more are left.
func (t *txn) clearGarbage() (more bool) {
	for room := t.removable(); ; {
		key, _ := t.cursor(tableGarbage).First()
		if key == nil {
			return false
		}
		flow := bytes.Clone(key)
		if room <= 0 || !t.clearFlow(flow, &room) {
			return true
		}
		t.delete(tableGarbage, flow)
	}
}

// isGarbage reports whether a removed flow still has rows.
func (v *view) isGarbage(flow logbook.FlowID) bool {
	return v.get(tableGarbage, flow.UUID[:]) != nil
}

// hasGarbage reports whether any removed flow still has rows.
func (v *view) hasGarbage() bool {
	key, _ := v.cursor(tableGarbage).First()
	return key != nil
}
