// Package logbooktest checks that a store keeps the promises of
// logbook.Connection. Every implementation runs Exercise: the store in
// memory, the bare state machine, and clusters through the client.
//
// The suite draws all its ids itself and looks at no other object, so runs can share a
// cluster. It requires the limits logbook.MaxLimits, and uses flows without jobs; package
// jobstest checks flows of jobs.
package logbooktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/conductord/conductord/logbook"
)

// patience limits one row of the suite. It is far longer than any row needs, so only a hanging
// store exceeds it.
const patience = 60 * time.Second

type row struct {
	name string
	run  func(k *kit)
}

// Exercise runs the suite. Open is called once for each row, from parallel subtests. It can return
// the same connection for all of them.
func Exercise(t *testing.T, open func(t *testing.T) logbook.Connection) {
	t.Helper()
	for _, group := range []struct {
		name string
		rows []row
	}{
		{"books", bookRows},
		{"updates", updateRows},
		{"states", stateRows},
		{"limits", limitRows},
		{"checkpoints", checkpointRows},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, r := range group.rows {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					r.run(&kit{T: t, ctx: ctx, conn: open(t)})
				})
			}
		})
	}
}

// kit has the helpers of a row.
type kit struct {
	*testing.T
	ctx  context.Context
	conn logbook.Connection
}

// planned makes a flow that has not started.
func planned(name string) logbook.FlowDetail {
	return logbook.FlowDetail{
		ID:      logbook.NewFlowID(),
		Name:    name,
		Factory: logbook.Factory{Name: "test", Args: json.RawMessage(`{"rooms": 2}`)},
		Store:   logbook.Values{"city": json.RawMessage(`"Oslo"`)},
		Meta:    logbook.Values{"team": json.RawMessage(`"travel"`)},
	}
}

// bound makes a book of flows with the given names.
func bound(flows ...string) logbook.Book {
	book := logbook.Book{
		ID:   logbook.NewBookID(),
		Name: "a journey",
		Meta: logbook.Values{"customer": json.RawMessage(`{"name": "Ann"}`)},
	}
	for _, name := range flows {
		book.Flows = append(book.Flows, planned(name))
	}
	return book
}

// saved saves a book of flows with the given names.
func (k *kit) saved(flows ...string) logbook.Book {
	k.Helper()
	book := bound(flows...)
	k.save(book)
	return book
}

// begun saves a book of one flow.
func (k *kit) begun() logbook.FlowID {
	k.Helper()
	return k.saved("one").Flows[0].ID
}

func (k *kit) save(book logbook.Book) {
	k.Helper()
	if err := k.conn.SaveBook(k.ctx, book); err != nil {
		k.Fatalf("SaveBook: %v", err)
	}
}

func (k *kit) book(id logbook.BookID) logbook.Book {
	k.Helper()
	book, err := k.conn.Book(k.ctx, id)
	if err != nil {
		k.Fatalf("Book: %v", err)
	}
	return book
}

func (k *kit) flow(id logbook.FlowID) logbook.FlowDetail {
	k.Helper()
	flow, err := k.conn.FlowDetail(k.ctx, id)
	if err != nil {
		k.Fatalf("FlowDetail: %v", err)
	}
	return flow
}

func (k *kit) atom(id logbook.FlowID, name string) logbook.AtomDetail {
	k.Helper()
	flow := k.flow(id)
	atom, ok := flow.Atom(name)
	if !ok {
		k.Fatalf("flow has no atom %q, but %s", name, render(flow.Atoms))
	}
	return *atom
}

// verdict applies one update and returns its verdict. If a store refuses the whole call, that
// error is the verdict.
func (k *kit) verdict(u logbook.Update) error {
	k.Helper()
	verdicts, err := k.conn.Update(k.ctx, u)
	if err != nil {
		if verdicts != nil {
			k.Errorf("Update answered verdicts beside the error %v", err)
		}
		return err
	}
	if len(verdicts) != 1 {
		k.Fatalf("Update of 1 answered %d verdicts", len(verdicts))
	}
	return verdicts[0]
}

func (k *kit) update(u logbook.Update) {
	k.Helper()
	if err := k.verdict(u); err != nil {
		k.Fatalf("Update %d: %v", u.Sequence, err)
	}
}

// wants checks the kind of an error; nil: no error.
func (k *kit) wants(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// wantsGone checks that the removal of an absent object fails. If an answer was lost, a client
// interprets "not found" as the success of its own earlier attempt. So wantsGone repeats a call
// that reports success.
func (k *kit) wantsGone(what string, remove func() error) {
	k.Helper()
	err := remove()
	for range 2 {
		if err == nil {
			err = remove()
		}
	}
	k.wants(what, err, logbook.ErrNotFound)
}

// wantsLimit checks that the error is a *logbook.LimitError with these numbers.
func (k *kit) wantsLimit(what string, err error, limit, size int) {
	k.Helper()
	var over *logbook.LimitError
	switch {
	case !errors.Is(err, logbook.ErrLimit) || !errors.As(err, &over):
		k.Errorf("%s: got error %v, want a *logbook.LimitError", what, err)
	case over.Field == "" || over.Limit != int64(limit) || over.Size < int64(size):
		k.Errorf("%s: got %+v, want a field, limit %d and size %d", what, *over, limit, size)
	}
}

// wantsInvalid checks that the error is a *logbook.InvalidError with a field.
func (k *kit) wantsInvalid(what string, err error) {
	k.Helper()
	var invalid *logbook.InvalidError
	if !errors.Is(err, logbook.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field == "" {
		k.Errorf("%s: got error %v, want a *logbook.InvalidError that names a field", what, err)
	}
}

// same compares two values by their JSON forms.
func (k *kit) same(what string, got, want any) {
	k.Helper()
	if g, w := render(got), render(want); g != w {
		k.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func render(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("(%v) %+v", err, value)
	}
	return string(text)
}
