package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/conductord/conductord/logbook"
)

// SaveBook writes a book and its flows, or merges them into the existing book. A new flow is pending
// and without atoms, regardless of the argument: only updates change its state and atoms.
func (c *Connection) SaveBook(ctx context.Context, given logbook.Book) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.limits.CheckBook(&given); err != nil {
		return err
	}
	if err := c.checkSize(given); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range given.Flows {
		if err := c.admitsLocked(given.ID, &given.Flows[i]); err != nil {
			return fmt.Errorf("cannot save book %s: %w", given.ID, err)
		}
	}
	c.mergeLocked(&given, now())
	return nil
}

// admitsLocked checks that a flow of a saved book is new, unchanged, or may be changed. It writes
// nothing.
func (c *Connection) admitsLocked(id logbook.BookID, given *logbook.FlowDetail) error {
	known, ok := c.flows[given.ID]
	switch {
	case !ok:
		return nil
	case known.head.Book != id:
		return fmt.Errorf("%w: flow %s is in book %s", logbook.ErrConflict, given.ID, known.head.Book)
	case known.head.State != logbook.FlowPending && !samePlan(&known.head, given):
		return fmt.Errorf("%w: flow %s has started and cannot be changed", logbook.ErrConflict, given.ID)
	}
	return nil
}

// samePlan reports whether two flows have the same definition.
func samePlan(a, b *logbook.FlowDetail) bool {
	return a.Name == b.Name && a.Factory.Name == b.Factory.Name &&
		bytes.Equal(a.Factory.Args, b.Factory.Args) &&
		sameValues(a.Store, b.Store) && sameValues(a.Meta, b.Meta) &&
		slices.Equal(a.Targets, b.Targets) && a.OnChange == b.OnChange && a.OnFailure == b.OnFailure
}

func sameValues(a, b logbook.Values) bool {
	return maps.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

func (c *Connection) mergeLocked(given *logbook.Book, at time.Time) {
	kept, ok := c.books[given.ID]
	if !ok {
		kept = &book{head: logbook.Book{ID: given.ID, CreatedAt: at, Board: given.Board}}
		c.books[given.ID] = kept
	}
	kept.head.Name, kept.head.Meta, kept.head.UpdatedAt = given.Name, clone(given.Meta), at
	for i := range given.Flows {
		c.mergeFlowLocked(kept, &given.Flows[i], at)
	}
}

func (c *Connection) mergeFlowLocked(into *book, given *logbook.FlowDetail, at time.Time) {
	kept, ok := c.flows[given.ID]
	if !ok {
		kept = &flow{
			head:  logbook.FlowDetail{ID: given.ID, Book: into.head.ID, State: logbook.FlowPending, CreatedAt: at, UpdatedAt: at},
			names: make(map[string]int),
		}
		c.flows[given.ID] = kept
		into.flows = append(into.flows, given.ID)
	} else if samePlan(&kept.head, given) {
		return
	}
	plan := clone(*given)
	kept.head.Name, kept.head.Factory = plan.Name, plan.Factory
	kept.head.Store, kept.head.Meta = plan.Store, plan.Meta
	kept.head.Targets, kept.head.OnChange, kept.head.OnFailure = plan.Targets, plan.OnChange, plan.OnFailure
	kept.head.UpdatedAt = at
}
