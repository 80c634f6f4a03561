package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// maxFlows bounds the flows of a book. A book can grow with every SaveBook,
// and is read and destroyed as one.
const maxFlows = 10_000

// bookPlan is a book as it will be, worked out before anything is written.
type bookPlan struct {
	head    logbook.Book // without flows
	save    bool         // the head is new or differs
	present int          // flows that the book has already
	flows   []*plannedFlow
}

// plannedFlow is a flow that a book plan looked at.
type plannedFlow struct {
	record *flowRecord
	body   *logbook.FlowDetail // what the record leaves out; nil: stays
	isNew  bool
	save   bool
}

// saveBook writes a book, or merges it into the one that exists.
func (t *txn) saveBook(c *v1.Book) error {
	book, err := command.BookFromProto(c)
	if err != nil {
		return err
	}
	plan, err := t.planBook(&book)
	if err != nil {
		return fmt.Errorf("cannot save book %s: %w", book.ID, err)
	}
	return t.writeBook(plan)
}

func (t *txn) planBook(book *logbook.Book) (*bookPlan, error) {
	if book.ID.IsZero() {
		return nil, &logbook.InvalidError{Field: "book id", Reason: "unset"}
	}
	head, found, err := t.book(book.ID)
	if err != nil {
		return nil, err
	}
	plan := &bookPlan{head: head}
	if !found {
		plan.head = logbook.Book{ID: book.ID, CreatedAt: t.now}
	}
	if !found || head.Name != book.Name || !sameValues(head.Meta, book.Meta) {
		plan.head.Name, plan.head.Meta, plan.head.UpdatedAt, plan.save = book.Name, book.Meta, t.now, true
	}
	if plan.present, err = t.flowsOfBook(book.ID); err != nil {
		return nil, err
	}
	seen := make(map[logbook.FlowID]bool, len(book.Flows))
	for i := range book.Flows {
		if seen[book.Flows[i].ID] {
			return nil, &logbook.InvalidError{Field: "flow id", Reason: fmt.Sprintf("%s stands twice in the book", book.Flows[i].ID)}
		}
		seen[book.Flows[i].ID] = true
		planned, err := t.planSave(book.ID, &book.Flows[i])
		if err != nil {
			return nil, err
		}
		plan.flows = append(plan.flows, planned)
	}
	if size := plan.size(); size > maxFlows {
		return nil, &logbook.LimitError{Field: "book flows", Limit: maxFlows, Size: int64(size), Unit: "flows"}
	}
	return plan, nil
}

// planSave works out what becomes of one flow of a book that is saved. A new
// flow begins PENDING and without atoms, whatever is given: only updates tell
// what has happened.
func (t *txn) planSave(book logbook.BookID, given *logbook.FlowDetail) (*plannedFlow, error) {
	if given.ID.IsZero() {
		return nil, &logbook.InvalidError{Field: "flow id", Reason: "unset"}
	}
	record, err := t.flow(given.ID)
	if err != nil {
		return nil, err
	}
	if record == nil && t.isGarbage(given.ID) {
		return nil, fmt.Errorf("%w: flow %s was destroyed, and its steps are still being removed: try again in some seconds", logbook.ErrConflict, given.ID)
	}
	if record == nil {
		fresh := &flowRecord{FlowDetail: logbook.FlowDetail{
			ID: given.ID, Book: book, Name: given.Name, Factory: logbook.Factory{Name: given.Factory.Name},
			State: logbook.FlowPending, CreatedAt: t.now, UpdatedAt: t.now,
		}}
		body := *given
		body.Cause = nil
		return &plannedFlow{record: fresh, body: &body, isNew: true, save: true}, nil
	}
	if record.Book != book {
		return nil, fmt.Errorf("%w: flow %s is in book %s", logbook.ErrConflict, given.ID, record.Book)
	}
	body, err := t.flowBody(record)
	if err != nil {
		return nil, err
	}
	switch {
	case samePlan(body, given):
		return &plannedFlow{record: record}, nil
	case record.State != logbook.FlowPending, !record.Begun.IsZero():
		return nil, fmt.Errorf("%w: flow %s has begun and cannot be changed", logbook.ErrConflict, given.ID)
	case record.job != 0:
		return nil, fmt.Errorf("%w: flow %s is that of an unfinished job and cannot be changed", logbook.ErrConflict, given.ID)
	}
	record.Name, record.Factory.Name, record.UpdatedAt = given.Name, given.Factory.Name, t.now
	changed := *given
	changed.Cause = body.Cause
	return &plannedFlow{record: record, body: &changed, save: true}, nil
}

// samePlan reports whether two flows plan the same work.
func samePlan(a, b *logbook.FlowDetail) bool {
	return a.Name == b.Name && a.Factory.Name == b.Factory.Name &&
		bytes.Equal(a.Factory.Args, b.Factory.Args) && sameValues(a.Store, b.Store) && sameValues(a.Meta, b.Meta) &&
		slices.Equal(a.Targets, b.Targets) && a.OnChange == b.OnChange
}

func sameValues(a, b logbook.Values) bool {
	return maps.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

// planSavedBook is the plan for a book that is there and stays as it is.
func (t *txn) planSavedBook(id logbook.BookID) (*bookPlan, error) {
	head, found, err := t.book(id)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("book %s: %w", id, logbook.ErrNotFound)
	}
	present, err := t.flowsOfBook(id)
	return &bookPlan{head: head, present: present}, err
}

// size is how many flows the book will have.
func (p *bookPlan) size() int {
	size := p.present
	for _, planned := range p.flows {
		if planned.isNew {
			size++
		}
	}
	return size
}

// planFlow finds the flow of a book that a posting asks for: the one that it
// names, or the only one.
func (t *txn) planFlow(book *bookPlan, id logbook.FlowID) (*plannedFlow, error) {
	if id.IsZero() {
		if size := book.size(); size != 1 {
			return nil, &logbook.InvalidError{Field: "posting flow", Reason: fmt.Sprintf("unset, and the book has %d flows", size)}
		}
		if len(book.flows) == 1 {
			return book.flows[0], nil
		}
		ids, err := t.flowIDs(book.head.ID)
		if err != nil {
			return nil, err
		}
		id = ids[0]
	}
	for _, planned := range book.flows {
		if planned.record.ID == id {
			return planned, nil
		}
	}
	record, err := t.flow(id)
	switch {
	case err != nil:
		return nil, err
	case record == nil || record.Book != book.head.ID:
		return nil, fmt.Errorf("flow %s of book %s: %w", id, book.head.ID, logbook.ErrNotFound)
	}
	planned := &plannedFlow{record: record}
	book.flows = append(book.flows, planned)
	return planned, nil
}

// writeBook writes what a plan says. The error is a fault.
func (t *txn) writeBook(plan *bookPlan) error {
	if plan.save {
		head := plan.head
		t.putMessage(tableBook, head.ID.UUID[:], nil, command.BookToProto(&head))
	}
	place := uint32(plan.present)
	for _, planned := range plan.flows {
		if planned.isNew {
			t.put(tableBookFlow, bookFlowKey(plan.head.ID, place), planned.record.ID.UUID[:])
			place++
		}
		if planned.save {
			t.saveFlow(planned.record)
		}
		if planned.body != nil {
			t.saveFlowBody(planned.body)
		}
	}
	return nil
}

// destroyBook removes a book that no unfinished job needs.
func (t *txn) destroyBook(c *v1.DestroyBookCommand) error {
	id, err := logbook.ParseBookID(c.GetBook())
	if err != nil {
		return err
	}
	_, found, err := t.book(id)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("cannot destroy book %s: %w", id, logbook.ErrNotFound)
	}
	flows, err := t.flowIDs(id)
	if err != nil {
		return err
	}
	flow, busy, err := t.busyFlow(flows)
	switch {
	case err != nil:
		return err
	case busy:
		return fmt.Errorf("cannot destroy book %s: %w: flow %s is that of an unfinished job", id, logbook.ErrConflict, flow)
	}
	t.removeBook(id, flows)
	return nil
}

// busyFlow finds a flow to which an unfinished job refers.
func (v *view) busyFlow(flows []logbook.FlowID) (flow logbook.FlowID, busy bool, err error) {
	for _, flow := range flows {
		record, err := v.existingFlow(flow)
		if err != nil || record.job != 0 {
			return flow, err == nil, err
		}
	}
	return logbook.FlowID{}, false, nil
}

// book reads a book without its flows.
func (v *view) book(id logbook.BookID) (book logbook.Book, found bool, err error) {
	value := v.get(tableBook, id.UUID[:])
	if value == nil {
		return logbook.Book{}, false, nil
	}
	book, err = decode(value, &v1.Book{}, command.BookFromProto)
	return book, err == nil, err
}

// flowsOfBook counts the flows of a book: they are numbered from 0 without
// gaps, so the last number is enough.
func (v *view) flowsOfBook(id logbook.BookID) (int, error) {
	cursor := v.cursor(tableBookFlow)
	key, _ := cursor.Seek(bookFlowKey(id, 1<<32-1))
	if key == nil {
		key, _ = cursor.Last()
	} else if !bytes.HasPrefix(key, id.UUID[:]) {
		key, _ = cursor.Prev()
	}
	if !bytes.HasPrefix(key, id.UUID[:]) {
		return 0, nil
	}
	if len(key) != idSize+4 {
		return 0, corrupt("a flow of book %s has a key of %d bytes", id, len(key))
	}
	return int(binary.BigEndian.Uint32(key[idSize:])) + 1, nil
}

// flowIDs are the flows of a book in the order in which they were added.
func (v *view) flowIDs(id logbook.BookID) ([]logbook.FlowID, error) {
	var flows []logbook.FlowID
	err := v.scan(tableBookFlow, id.UUID[:], func(_, value []byte) (bool, error) {
		flow, err := uuid.FromBytes(value)
		if err != nil {
			return false, corrupt("a flow of book %s has a bad id: %w", id, err)
		}
		flows = append(flows, logbook.FlowID{UUID: flow})
		return true, nil
	})
	return flows, err
}
