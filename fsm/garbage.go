package fsm

import (
	"bytes"

	"github.com/conductord/conductord/logbook"
)

const (
	// maxRemoved bounds the rows that the commands of one entry remove at once:
	// a book can hold millions of steps and attempts, and while they are removed
	// nothing else is applied. The rest is garbage, for the leader's sweeps.
	maxRemoved = 20_000
	// minRemoved is what one removal may take whatever came before it in the
	// entry, so that the flows of everyday leave no garbage.
	minRemoved = 200
)

// flowTables hold what a flow may have very much of.
func flowTables() [3]table { return [...]table{tableIntervention, tableAtom, tableAttempt} }

// removable is how many rows the present entry may yet remove.
func (t *txn) removable() int { return maxRemoved - (t.writes - t.begun) }

// removeBook removes a book with its flows. It leaves the count of the jobs that
// refer to the book: finished ones may outlive it.
func (t *txn) removeBook(id logbook.BookID, flows []logbook.FlowID) {
	room := max(t.removable(), minRemoved)
	for _, flow := range flows {
		t.releaseDefinition(t.existingFlow(flow).built)
		t.delete(tableFlow, flow.UUID[:])
		t.delete(tableFlowBody, flow.UUID[:])
		if !t.clearFlow(flow.UUID[:], &room) {
			t.put(tableGarbage, flow.UUID[:], nil)
		}
	}
	t.deletePrefix(tableBookFlow, id.UUID[:])
	t.delete(tableBook, id.UUID[:])
}

// clearFlow removes leftover rows of a flow within the given room, and reports whether
// that was all.
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
		t.delete(tab, key)
	}
}

// clearGarbage removes leftover rows of flows whose books are gone, as many as the entry
// has room for, and reports whether more are left.
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

// isGarbage reports whether a flow is gone and rows of it are left.
func (v *view) isGarbage(flow logbook.FlowID) bool {
	return v.get(tableGarbage, flow.UUID[:]) != nil
}

// hasGarbage reports whether anything is left of flows that are gone.
func (v *view) hasGarbage() bool {
	key, _ := v.cursor(tableGarbage).First()
	return key != nil
}
