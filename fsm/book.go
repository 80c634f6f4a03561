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
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// maxFlows bounds the flows of a book. Every SaveBook can add flows, and a book is destroyed in one
// command.
const maxFlows = 10_000

// bookPlan is the planned state of a book. Nothing of it is written yet.
type bookPlan struct {
	head    logbook.Book // without flows
	save    bool         // the head is new or differs
	present int          // flows that the book has already
	flows   []*plannedFlow
}

// plannedFlow is a flow of a bookPlan.
type plannedFlow struct {
	record *flowRecord
	body   *logbook.FlowDetail // fields that the record lacks; nil: unchanged
	isNew  bool
	save   bool
}

// saveBook writes a book, or merges it into the existing book with its id.
func (t *txn) saveBook(c *v1.Book) error {
	book, err := command.BookFromProto(c)
	if err != nil {
		return err
	}
	board := book.Board
	if known, found := t.book(book.ID); found && board == "" {
		board = known.Board
	}
	plan, err := t.planBook(&book, board)
	if err != nil {
		return fmt.Errorf("cannot save book %s: %w", book.ID, err)
	}
	t.writeBook(plan)
	return nil
}

// planBook plans the save of a book for a board, or for none.
func (t *txn) planBook(book *logbook.Book, board string) (*bookPlan, error) {
	if book.ID.IsZero() {
		return nil, &logbook.InvalidError{Field: "book id", Reason: "unset"}
	}
	head, found := t.book(book.ID)
	plan := &bookPlan{head: head}
	if found {
		plan.present = t.flowsOfBook(book.ID)
	} else {
		plan.head = logbook.Book{ID: book.ID, CreatedAt: t.now, Board: board}
	}
	if err := t.checkBoardOf(&plan.head, board); err != nil {
		return nil, err
	}
	if !found || head.Name != book.Name || !sameValues(head.Meta, book.Meta) {
		plan.head.Name, plan.head.Meta, plan.head.UpdatedAt, plan.save = book.Name, book.Meta, t.now, true
	}
	seen := make(map[logbook.FlowID]bool, len(book.Flows))
	for i := range book.Flows {
		if seen[book.Flows[i].ID] {
			return nil, &logbook.InvalidError{Field: "flow id", Reason: fmt.Sprintf("%s occurs twice in the book", book.Flows[i].ID)}
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

// planSave plans the save of one flow of a book. A new flow is pending and has no atoms, regardless of the
// argument, because only updates change them.
func (t *txn) planSave(book logbook.BookID, given *logbook.FlowDetail) (*plannedFlow, error) {
	if given.ID.IsZero() {
		return nil, &logbook.InvalidError{Field: "flow id", Reason: "unset"}
	}
	record := t.flow(given.ID)
	if record == nil && t.isGarbage(given.ID) {
		return nil, errFlowTaken(given.ID)
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
		return nil, errFlowTaken(given.ID)
	}
	body := t.flowBody(record)
	switch {
	case samePlan(body, given):
		return &plannedFlow{record: record}, nil
	case record.State != logbook.FlowPending, !record.Begun.IsZero():
		return nil, fmt.Errorf("%w: flow %s has started and cannot be changed", logbook.ErrConflict, given.ID)
	case record.job != 0 && !t.waitsForSteps(record, given):
		return nil, fmt.Errorf("%w: flow %s belongs to an unfinished job that is not held, and cannot be changed", logbook.ErrConflict, given.ID)
	}
	record.Name, record.Factory.Name, record.UpdatedAt = given.Name, given.Factory.Name, t.now
	changed := *given
	changed.Cause = body.Cause
	return &plannedFlow{record: record, body: &changed, save: true}, nil
}

// errFlowTaken refuses the id of an existing flow. The text reveals nothing about the flow, which can belong
// to another tenant.
func errFlowTaken(id logbook.FlowID) error {
	return fmt.Errorf("%w: flow id %s is used in another book, or in a destroyed book whose steps are not removed yet; use a new id",
		logbook.ErrConflict, id)
}

// waitsForSteps reports whether the flow can still get steps: its job was posted with Hold and is not
// released, and the factory is unchanged. The factory is the job's kind, which cannot change.
func (t *txn) waitsForSteps(flow *flowRecord, given *logbook.FlowDetail) bool {
	j := t.job(flow.job)
	return j.State == jobs.StateHeld && !j.Parked && j.Kind == given.Factory.Name
}

// samePlan reports whether two flows plan the same work.
func samePlan(a, b *logbook.FlowDetail) bool {
	return a.Name == b.Name && a.Factory.Name == b.Factory.Name &&
		bytes.Equal(a.Factory.Args, b.Factory.Args) && sameValues(a.Store, b.Store) && sameValues(a.Meta, b.Meta) &&
		slices.Equal(a.Targets, b.Targets) && a.OnChange == b.OnChange && a.OnFailure == b.OnFailure
}

func sameValues(a, b logbook.Values) bool {
	return maps.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

// planSavedBook returns the plan for an existing book that does not change.
func (t *txn) planSavedBook(id logbook.BookID, board string) (*bookPlan, error) {
	head, found := t.book(id)
	if !found {
		return nil, errNoBook(id, board)
	}
	if err := t.checkBoardOf(&head, board); err != nil {
		return nil, err
	}
	present := t.flowsOfBook(id)
	return &bookPlan{head: head, present: present}, nil
}

// size returns the number of flows that the book will have.
func (p *bookPlan) size() int {
	size := p.present
	for _, planned := range p.flows {
		if planned.isNew {
			size++
		}
	}
	return size
}

// planFlow finds the flow of a posting in a book: the named flow, or the only one.
func (t *txn) planFlow(book *bookPlan, id logbook.FlowID) (*plannedFlow, error) {
	if id.IsZero() {
		if size := book.size(); size != 1 {
			return nil, &logbook.InvalidError{Field: "posting flow", Reason: fmt.Sprintf("not set; a book with %d flows requires it", size)}
		}
		if len(book.flows) == 1 {
			return book.flows[0], nil
		}
		ids := t.flowIDs(book.head.ID)
		id = ids[0]
	}
	for _, planned := range book.flows {
		if planned.record.ID == id {
			return planned, nil
		}
	}
	record := t.flow(id)
	if record == nil || record.Book != book.head.ID {
		return nil, fmt.Errorf("flow %s of book %s: %w", id, book.head.ID, logbook.ErrNotFound)
	}
	planned := &plannedFlow{record: record}
	book.flows = append(book.flows, planned)
	return planned, nil
}

// writeBook writes a plan.
func (t *txn) writeBook(plan *bookPlan) {
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
}

// destroyBook removes a book to which no unfinished job refers.
func (t *txn) destroyBook(c *v1.DestroyBookCommand) error {
	id, err := logbook.ParseBookID(c.GetBook())
	if err != nil {
		return err
	}
	if _, found := t.book(id); !found {
		return fmt.Errorf("cannot destroy book %s: %w", id, logbook.ErrNotFound)
	}
	flows := t.flowIDs(id)
	if flow, busy := t.busyFlow(flows); busy {
		return fmt.Errorf("cannot destroy book %s: %w: flow %s belongs to an unfinished job", id, logbook.ErrConflict, flow)
	}
	t.removeBook(id, flows)
	return nil
}

// busyFlow finds a flow to which an unfinished job refers.
func (v *view) busyFlow(flows []logbook.FlowID) (flow logbook.FlowID, busy bool) {
	for _, flow := range flows {
		record := v.existingFlow(flow)
		if record.job != 0 {
			return flow, true
		}
	}
	return logbook.FlowID{}, false
}

// book reads a book without its flows.
func (v *view) book(id logbook.BookID) (book logbook.Book, found bool) {
	value := v.get(tableBook, id.UUID[:])
	if value == nil {
		return logbook.Book{}, false
	}
	book = decode(value, &v1.Book{}, command.BookFromProto)
	return book, true
}

// flowsOfBook counts the flows of a book: they are numbered from 0 without
// gaps, so the last number is enough.
func (v *view) flowsOfBook(id logbook.BookID) int {
	cursor := v.cursor(tableBookFlow)
	key, _ := cursor.Seek(bookFlowKey(id, 1<<32-1))
	if key == nil {
		key, _ = cursor.Last()
	} else if !bytes.HasPrefix(key, id.UUID[:]) {
		key, _ = cursor.Prev()
	}
	if !bytes.HasPrefix(key, id.UUID[:]) {
		return 0
	}
	if len(key) != idSize+4 {
		panic(corrupt("a flow of book %s has a key of %d bytes", id, len(key)))
	}
	return int(binary.BigEndian.Uint32(key[idSize:])) + 1
}

// flowIDs returns the flows of a book in the order of their addition.
func (v *view) flowIDs(id logbook.BookID) []logbook.FlowID {
	var flows []logbook.FlowID
	v.scan(tableBookFlow, id.UUID[:], func(_, value []byte) bool {
		flow, err := uuid.FromBytes(value)
		if err != nil {
			panic(corrupt("a flow of book %s has a bad id: %w", id, err))
		}
		flows = append(flows, logbook.FlowID{UUID: flow})
		return true
	})
	return flows
}
