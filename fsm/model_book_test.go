package fsm_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// modelBook is a stored book.
type modelBook struct {
	id, name, board string
	made            time.Time
	flows           []*modelFlow // in the order of their addition
}

// modelFlow is a flow of a book.
type modelFlow struct {
	logbook.FlowDetail
	plan *v1.FlowDetail // from the latest save
	busy *modelJob      // its unfinished job; nil: none

	changed []string          // atoms of the latest update
	waited  map[string]uint64 // numbers of the open waits, by atom
	boards  map[string]string // boards of the waits for a topic, by atom
	// times of the latest reminders of open approvals, by atom
	reminded map[string]time.Time
	last     *modelJob // its last job, which may be removed already; nil: it never had one
}

// flowOf returns the flow of a job; nil if the job has none, or the flow was removed.
func (m *model) flowOf(j *modelJob) *modelFlow { return m.flows[j.Flow.String()] }

// ownBook reports whether the book of a job exists and was not destroyed and saved again under the
// same id.
func (m *model) ownBook(j *modelJob) bool {
	book := m.books[j.Book.String()]
	return book != nil && !book.made.After(j.PostedAt)
}

// plannedBook is a book as a command will create it. Nothing changes until it is written.
type plannedBook struct {
	given *v1.Book // nil: a saved book, which does not change
	id    string
	board string // of a new book
	fresh []*v1.FlowDetail
	other []*v1.FlowDetail // existing flows that change
}

func (m *model) planBook(given *v1.Book, board string) (*plannedBook, error) {
	plan := &plannedBook{given: given, id: given.Id, board: board}
	if m.foreign(m.books[given.Id], board) {
		return nil, jobs.ErrNotFound
	}
	for _, f := range given.Flows {
		known := m.flows[f.Id]
		switch {
		case known == nil:
			plan.fresh = append(plan.fresh, f)
		case known.Book.String() != given.Id:
			return nil, jobs.ErrConflict
		case proto.Equal(known.plan, f):
		case known.State != logbook.FlowPending, !known.Begun.IsZero(), known.busy != nil && !(known.busy.State == jobs.StateHeld && !known.busy.Parked && known.busy.Kind == f.Factory.Name):
			return nil, jobs.ErrConflict
		default:
			plan.other = append(plan.other, f)
		}
	}
	return plan, nil
}

// foreign reports whether a book exists, but the current principal may not use it for a board.
func (m *model) foreign(book *modelBook, board string) bool {
	return book != nil && m.by != "" && book.board != board
}

func (m *model) writeBook(plan *plannedBook) {
	if plan == nil || plan.given == nil {
		return
	}
	book := m.books[plan.id]
	if book == nil {
		book = &modelBook{id: plan.id, board: plan.board, made: m.now}
		m.books[plan.id] = book
	}
	book.name = plan.given.Name
	for _, f := range plan.fresh {
		detail, err := command.FlowDetailFromProto(f)
		if err != nil {
			panic(err)
		}
		detail.Book, detail.State = parsedBook(plan.id), logbook.FlowPending
		flow := &modelFlow{FlowDetail: detail, plan: f}
		m.flows[f.Id] = flow
		book.flows = append(book.flows, flow)
	}
	for _, f := range plan.other {
		m.flows[f.Id].plan, m.flows[f.Id].Name, m.flows[f.Id].Factory.Name = f, f.Name, f.Factory.Name
	}
}

func (m *model) saveBook(given *v1.Book) error {
	plan, err := m.planBook(given, given.Board)
	if err == nil {
		m.writeBook(plan)
	}
	return err
}

func (m *model) destroyBook(id string) error {
	book := m.books[id]
	if book == nil {
		return jobs.ErrNotFound
	}
	if slices.ContainsFunc(book.flows, func(f *modelFlow) bool { return f.busy != nil }) {
		return jobs.ErrConflict
	}
	m.removeBook(id)
	return nil
}

func (m *model) removeBook(id string) {
	for _, flow := range m.books[id].flows {
		for id := flow.ID; !id.IsZero(); {
			previous := m.flows[id.String()].Previous
			delete(m.flows, id.String())
			id = previous
		}
	}
	delete(m.books, id)
}

// modelWork is the work of a job.
type modelWork struct {
	book *plannedBook
	flow string // id
}

// planWork finds the flow of a posting: the named flow, or the only flow of its book.
func (m *model) planWork(p *v1.Posting) (*modelWork, error) {
	work := &modelWork{flow: p.Flow}
	var flows []string
	switch known := m.books[p.BookId]; {
	case p.Book != nil:
		var err error
		if work.book, err = m.planBook(p.Book, boardNamed(p.Board)); err != nil {
			return nil, err
		}
		if known = m.books[p.Book.Id]; known != nil {
			flows = flowIDs(known)
		}
		for _, f := range work.book.fresh {
			flows = append(flows, f.Id)
		}
	case p.BookId == "":
		return nil, nil
	case known == nil, m.foreign(known, boardNamed(p.Board)):
		return nil, jobs.ErrNotFound
	default:
		work.book, flows = &plannedBook{id: p.BookId}, flowIDs(known)
	}
	named := work.flow
	if named == "" && p.Book != nil && len(p.Book.Flows) == 1 {
		named = p.Book.Flows[0].Id
	}
	switch old := m.flows[named]; {
	case work.flow == "" && len(flows) != 1:
		return nil, jobs.ErrInvalid
	case old != nil && old.Continued && old.Book.String() == work.book.id:
		return nil, jobs.ErrConflict
	case work.flow == "":
		work.flow = flows[0]
	case !slices.Contains(flows, work.flow):
		return nil, jobs.ErrNotFound
	}
	if flow := m.flows[work.flow]; flow != nil && flow.busy != nil {
		return nil, jobs.ErrConflict
	}
	return work, nil
}

func flowIDs(book *modelBook) (ids []string) {
	for _, flow := range book.flows {
		ids = append(ids, flow.ID.String())
	}
	return ids
}

// attach gives a new job its flow.
func (m *model) attach(j *modelJob, work *modelWork) {
	if work == nil {
		return
	}
	m.writeBook(work.book)
	flow, book := m.flows[work.flow], m.books[work.book.id]
	flow.busy, flow.last = j, j
	j.Kind, j.Book, j.BookName, j.Flow = flow.Factory.Name, flow.Book, book.name, flow.ID
	m.moveSubscriptions(j, false)
}

// bookLines are the books by their ids, with their flows.
func (m *model) bookLines() []string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(m.books)) {
		lines = append(lines, fmt.Sprintf("book %s, made %s", m.books[id].name, ago(m.books[id].made)))
		for _, flow := range m.books[id].flows {
			lines = append(lines, flowLine(&flow.FlowDetail))
		}
	}
	return lines
}
