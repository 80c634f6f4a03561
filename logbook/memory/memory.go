// Package memory keeps a logbook in the memory of one process, for tests and for programs that run
// flows without a cluster. The logbook ends with the process.
//
// It has no jobs, so no flow has an unfinished job. It therefore accepts updates only with the zero
// token, and a book can always be destroyed. The decisions about updates and limits are package
// logbook's own, as in a cluster. Arguments and results are deep copies: callers share no memory
// with the store.
package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Connection is a logbook.Connection in this process's memory.
type Connection struct {
	limits logbook.Limits // constant

	mu    sync.RWMutex
	books map[logbook.BookID]*book // guarded by mu
	flows map[logbook.FlowID]*flow // guarded by mu; of all books
}

var _ logbook.Connection = (*Connection)(nil)

// book is a book without its flows, with the ids of its flows in order.
type book struct {
	head  logbook.Book
	flows []logbook.FlowID
}

// flow has a flow without its atoms, and the atoms by order and by name. The cost of an update
// therefore depends on its changes, not on the size of the flow.
type flow struct {
	head  logbook.FlowDetail
	atoms []*atom
	names map[string]int
}

// atom is an atom with the values of its checkpoints.
type atom struct {
	logbook.AtomDetail
	checkpoints logbook.Values
}

// New makes an empty logbook, with limits completed by Limits.WithDefaults.
func New(limits logbook.Limits) *Connection {
	return &Connection{
		limits: limits.WithDefaults(),
		books:  make(map[logbook.BookID]*book),
		flows:  make(map[logbook.FlowID]*flow),
	}
}

// checkSize refuses input that would not fit into one command. It measures the JSON form, because
// this package has no wire encoding.
func (c *Connection) checkSize(command any) error {
	encoded, err := json.Marshal(command)
	if err != nil {
		return &logbook.InvalidError{Field: "command", Reason: err.Error()}
	}
	if len(encoded) > c.limits.Command {
		return &logbook.LimitError{Field: "command", Limit: int64(c.limits.Command), Size: int64(len(encoded)), Unit: "bytes"}
	}
	return nil
}

// Book reads a book with its flows, without their atoms.
func (c *Connection) Book(ctx context.Context, id logbook.BookID) (logbook.Book, error) {
	if err := ctx.Err(); err != nil {
		return logbook.Book{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.books[id]
	if !ok {
		return logbook.Book{}, fmt.Errorf("cannot read book %s: %w", id, logbook.ErrNotFound)
	}
	answer := clone(found.head)
	for _, flowID := range found.flows {
		short := clone(c.flows[flowID].head)
		short.Definition = nil
		answer.Flows = append(answer.Flows, short)
	}
	return answer, nil
}

// Books reads books without their flows, the highest id first.
func (c *Connection) Books(ctx context.Context, after string, limit int) (page logbook.Page[logbook.Book], err error) {
	if err := ctx.Err(); err != nil {
		return page, err
	}
	if after != "" {
		if _, err := logbook.ParseBookID(after); err != nil {
			return page, err
		}
	}
	if limit <= 0 || limit > logbook.MaxPage {
		limit = logbook.MaxPage
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var ids []logbook.BookID
	for id := range c.books {
		if after == "" || id.String() < after {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, newestFirst)
	if len(ids) > limit {
		ids = ids[:limit]
		page.Next = ids[limit-1].String()
	}
	for _, id := range ids {
		page.Items = append(page.Items, clone(c.books[id].head))
	}
	return page, nil
}

func newestFirst(a, b logbook.BookID) int { return strings.Compare(b.String(), a.String()) }

// FlowDetail reads a flow with its atoms and their attempts.
func (c *Connection) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	if err := ctx.Err(); err != nil {
		return logbook.FlowDetail{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.flows[id]
	if !ok {
		return logbook.FlowDetail{}, fmt.Errorf("cannot read flow %s: %w", id, logbook.ErrNotFound)
	}
	answer := clone(found.head)
	for _, a := range found.atoms {
		answer.Atoms = append(answer.Atoms, clone(a.AtomDetail))
	}
	return answer, nil
}

// Checkpoints reads the checkpoints of a step.
func (c *Connection) Checkpoints(ctx context.Context, id logbook.FlowID, step string) (logbook.Values, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.flows[id]
	if !ok {
		return nil, fmt.Errorf("cannot read the checkpoints of flow %s: %w", id, logbook.ErrNotFound)
	}
	at, ok := found.names[step]
	if !ok {
		return nil, nil
	}
	return clone(found.atoms[at].checkpoints), nil
}

// DestroyBook removes a book, its flows and their atoms.
func (c *Connection) DestroyBook(ctx context.Context, id logbook.BookID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.books[id]
	if !ok {
		return fmt.Errorf("cannot destroy book %s: %w", id, logbook.ErrNotFound)
	}
	for _, flowID := range found.flows {
		delete(c.flows, flowID)
	}
	delete(c.books, id)
	return nil
}

// now is the time for a write: UTC, without the monotonic part, in the form that a store returns.
func now() time.Time { return time.Now().UTC().Round(0) }
