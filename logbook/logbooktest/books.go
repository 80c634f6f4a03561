package logbooktest

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/conductord/conductord/logbook"
)

var bookRows = []row{
	{"a saved book reads back", savedBookReadsBack},
	{"a book may have no flows yet", bookWithoutFlows},
	{"saving again is a repeat", savingAgain},
	{"saving what was read changes nothing", savingWhatWasRead},
	{"saving merges and removes nothing", savingMerges},
	{"a pending flow takes a new plan", pendingFlowTakesPlan},
	{"a flow that has begun keeps its plan", begunFlowKeepsPlan},
	{"a new flow is pending, for any argument", newFlowBeginsPending},
	{"a flow is in one book only", flowInOneBook},
	{"what is unknown is not found", unknownIsNotFound},
	{"books are listed in order, by pages and without flows", booksAreListed},
	{"a destroyed book is gone with all it held", destroyedBook},
	{"values are kept byte for byte", valuesByteForByte},
	{"no caller shares memory with the store", nothingIsShared},
	{"a context that has ended is honoured", endedContext},
}

func savedBookReadsBack(k *kit) {
	want := k.saved("out", "back")
	got := k.book(want.ID)
	if got.ID != want.ID || got.Name != want.Name || len(got.Flows) != 2 {
		k.Fatalf("got %s, want %s", render(got), render(want))
	}
	k.same("meta", got.Meta, want.Meta)
	if got.CreatedAt.IsZero() || got.UpdatedAt.Before(got.CreatedAt) {
		k.Errorf("created at %v, updated at %v", got.CreatedAt, got.UpdatedAt)
	}
	for i := range want.Flows {
		k.samePlan(got.Flows[i], want.Flows[i])
		k.samePlan(k.flow(want.Flows[i].ID), want.Flows[i])
		if got.Flows[i].Book != want.ID || got.Flows[i].State != logbook.FlowPending {
			k.Errorf("flow %d is %s in book %s", i, got.Flows[i].State, got.Flows[i].Book)
		}
	}
}

// samePlan compares the definitions of two flows.
func (k *kit) samePlan(got, want logbook.FlowDetail) {
	k.Helper()
	k.same("flow id", got.ID, want.ID)
	k.same("flow name", got.Name, want.Name)
	k.same("flow factory", got.Factory, want.Factory)
	k.same("flow store", got.Store, want.Store)
	k.same("flow meta", got.Meta, want.Meta)
	k.same("flow targets", got.Targets, want.Targets)
	k.same("flow policy", got.OnChange, want.OnChange)
	k.same("flow failure policy", got.OnFailure, want.OnFailure)
}

func bookWithoutFlows(k *kit) {
	book := k.saved()
	if got := k.book(book.ID); len(got.Flows) != 0 {
		k.Errorf("flows: got %s, want none", render(got.Flows))
	}
	book.Flows = []logbook.FlowDetail{planned("late")}
	k.save(book)
	k.samePlan(k.flow(book.Flows[0].ID), book.Flows[0])
}

func savingAgain(k *kit) {
	book := k.saved("out", "back")
	before := k.book(book.ID)
	k.save(book)
	after := k.book(book.ID)
	k.same("flows after a repeat", after.Flows, before.Flows)
	k.same("time of creation after a repeat", after.CreatedAt, before.CreatedAt)
}

func savingWhatWasRead(k *kit) {
	id := k.begun()
	k.update(logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{task("pay")}})
	before := k.flow(id)
	k.save(k.book(before.Book))
	k.same("flow", k.flow(id), before)
}

func savingMerges(k *kit) {
	book := k.saved("out")
	added := logbook.Book{ID: book.ID, Name: "a longer journey", Flows: []logbook.FlowDetail{planned("back")}}
	k.save(added)
	got := k.book(book.ID)
	if got.Name != added.Name || len(got.Meta) != 0 {
		k.Errorf("got name %q and meta %s, want the new name and no meta", got.Name, render(got.Meta))
	}
	if len(got.Flows) != 2 || got.Flows[0].ID != book.Flows[0].ID || got.Flows[1].ID != added.Flows[0].ID {
		k.Errorf("flows: got %s, want the old one and then the new one", render(got.Flows))
	}
}

func pendingFlowTakesPlan(k *kit) {
	book := k.saved("out")
	book.Flows[0].Name = "outward"
	book.Flows[0].Factory = logbook.Factory{Name: "test", Args: json.RawMessage(`[3]`)}
	book.Flows[0].Store = logbook.Values{"city": json.RawMessage(`"Bergen"`)}
	book.Flows[0].Meta = nil
	book.Flows[0].Targets, book.Flows[0].OnChange = []string{"pay", "fly"}, logbook.ChangePin
	book.Flows[0].OnFailure = logbook.HoldOnFailure
	k.save(book)
	k.samePlan(k.flow(book.Flows[0].ID), book.Flows[0])
	k.samePlan(k.book(book.ID).Flows[0], book.Flows[0])
	book.Flows[0].Targets, book.Flows[0].OnChange = nil, ""
	k.save(book)
	k.samePlan(k.flow(book.Flows[0].ID), book.Flows[0])
}

func begunFlowKeepsPlan(k *kit) {
	for _, change := range []struct {
		name string
		make func(*logbook.FlowDetail)
	}{
		{"name", func(f *logbook.FlowDetail) { f.Name = "other" }},
		{"factory", func(f *logbook.FlowDetail) { f.Factory.Name = "other" }},
		{"arguments", func(f *logbook.FlowDetail) { f.Factory.Args = json.RawMessage(`[1]`) }},
		{"store", func(f *logbook.FlowDetail) { f.Store = logbook.Values{"city": json.RawMessage(`"Rome"`)} }},
		{"meta", func(f *logbook.FlowDetail) { f.Meta = logbook.Values{} }},
		{"targets", func(f *logbook.FlowDetail) { f.Targets = []string{"pay"} }},
		{"policy", func(f *logbook.FlowDetail) { f.OnChange = logbook.ChangeRefuse }},
		{"failure policy", func(f *logbook.FlowDetail) { f.OnFailure = logbook.HoldOnFailure }},
	} {
		book := k.saved("out")
		id := book.Flows[0].ID
		k.update(logbook.Update{Flow: id, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{task("pay")}})
		k.save(book)
		before, beforeFlow := k.book(book.ID), k.flow(id)

		added := planned("back")
		changed := book
		changed.Name = "renamed"
		changed.Flows = []logbook.FlowDetail{added, book.Flows[0]}
		change.make(&changed.Flows[1])
		k.wants("saving another "+change.name, k.conn.SaveBook(k.ctx, changed), logbook.ErrConflict)
		k.same("book after the refusal", k.book(book.ID), before)
		k.same("flow after the refusal", k.flow(id), beforeFlow)
		_, err := k.conn.FlowDetail(k.ctx, added.ID)
		k.wants("a new flow beside the refused one", err, logbook.ErrNotFound)
	}
}

func newFlowBeginsPending(k *kit) {
	book := bound("out")
	book.Flows[0].State = logbook.FlowSuccess
	book.Flows[0].Fence, book.Flows[0].Ended = logbook.Token{Generation: 7, Index: 7}, logbook.Token{Generation: 7, Index: 6}
	book.Flows[0].Begun, book.Flows[0].Sequence = logbook.Token{Generation: 7, Index: 5}, 9
	book.Flows[0].Definition = &logbook.Definition{Hash: "h"}
	book.Flows[0].Interventions = []logbook.Intervention{{ID: book.ID.UUID, Kind: logbook.InterveneRerun, By: "ann"}}
	k.save(book)
	got := k.flow(book.Flows[0].ID)
	if got.Definition != nil || len(got.Interventions) != 0 {
		k.Errorf("got %s, want neither definition nor interventions", render(got))
	}
	if got.State != logbook.FlowPending || got.Sequence != 0 || !got.Fence.IsZero() || !got.Ended.IsZero() || !got.Begun.IsZero() {
		k.Errorf("got %s at %s %d, want pending and no updates", got.State, got.Fence, got.Sequence)
	}
}

func flowInOneBook(k *kit) {
	first, second := k.saved("out"), bound()
	second.Flows = first.Flows
	k.wants("a flow of another book", k.conn.SaveBook(k.ctx, second), logbook.ErrConflict)
	_, err := k.conn.Book(k.ctx, second.ID)
	k.wants("the refused book", err, logbook.ErrNotFound)
}

func unknownIsNotFound(k *kit) {
	k.saved("out")
	_, err := k.conn.Book(k.ctx, logbook.NewBookID())
	k.wants("Book", err, logbook.ErrNotFound)
	_, err = k.conn.FlowDetail(k.ctx, logbook.NewFlowID())
	k.wants("FlowDetail", err, logbook.ErrNotFound)
	k.wants("Update", k.verdict(logbook.Update{Flow: logbook.NewFlowID(), Sequence: 1}), logbook.ErrNotFound)
	k.wantsGone("DestroyBook", func() error { return k.conn.DestroyBook(k.ctx, logbook.NewBookID()) })
	_, err = k.conn.Books(k.ctx, "no cursor", 1)
	k.wants("Books after an unknown cursor", err, logbook.ErrInvalid)
}

func booksAreListed(k *kit) {
	want := make([]logbook.BookID, 10)
	for i := range want {
		want[i] = k.saved("out").ID
	}
	// The store may hold other books; the books of this row must be among them.
	for _, limit := range []int{3, 4, 0} {
		listed := k.list(limit)
		var got []logbook.BookID
		for _, id := range listed {
			if slices.Contains(want, id) {
				got = append(got, id)
			}
		}
		sorted := slices.SortedFunc(slices.Values(want), func(a, b logbook.BookID) int { return bytes.Compare(b.UUID[:], a.UUID[:]) })
		k.same("books by pages", got, sorted)
	}
}

// list reads all books in pages, and checks that each page continues where the previous one
// ended.
func (k *kit) list(limit int) []logbook.BookID {
	k.Helper()
	var all []logbook.BookID
	var last logbook.BookID
	for after := ""; ; {
		page, err := k.conn.Books(k.ctx, after, limit)
		if err != nil {
			k.Fatalf("Books: %v", err)
		}
		if limit > 0 && len(page.Items) > limit {
			k.Fatalf("a page of %d books, and %d were asked for", len(page.Items), limit)
		}
		for i := range page.Items {
			book := &page.Items[i]
			if len(all) > 0 && bytes.Compare(book.ID.UUID[:], last.UUID[:]) >= 0 {
				k.Fatalf("book %s is listed after %s", book.ID, last)
			}
			if len(book.Flows) > 0 {
				k.Errorf("book %s is listed with its flows", book.ID)
			}
			last = book.ID
			all = append(all, last)
		}
		if page.Next == "" {
			return all
		}
		if page.Next == after {
			k.Fatalf("the page after %q continues at itself", after)
		}
		after = page.Next
	}
}

func destroyedBook(k *kit) {
	book, other := k.saved("out", "back"), k.saved("other")
	flow := book.Flows[1].ID
	k.update(logbook.Update{Flow: flow, Sequence: 1, State: logbook.FlowRunning, Atoms: []logbook.AtomChange{task("pay")}})
	if err := k.conn.DestroyBook(k.ctx, book.ID); err != nil {
		k.Fatalf("DestroyBook: %v", err)
	}
	_, err := k.conn.Book(k.ctx, book.ID)
	k.wants("the book", err, logbook.ErrNotFound)
	for i := range book.Flows {
		_, err = k.conn.FlowDetail(k.ctx, book.Flows[i].ID)
		k.wants("its flow", err, logbook.ErrNotFound)
	}
	k.wants("an update of its flow", k.verdict(logbook.Update{Flow: flow, Sequence: 2}), logbook.ErrNotFound)
	k.wantsGone("destroying it again", func() error { return k.conn.DestroyBook(k.ctx, book.ID) })
	k.book(other.ID)

	k.save(book)
	if anew := k.flow(flow); anew.State != logbook.FlowPending || anew.Sequence != 0 || len(anew.Atoms) != 0 {
		k.Errorf("saved anew, the flow is %s at %d with %d atoms", anew.State, anew.Sequence, len(anew.Atoms))
	}
}

// oddValues are JSON values that a decoding store would change.
var oddValues = logbook.Values{
	"spaces":     json.RawMessage("{ \"b\" : 1,\n\t\"a\":[ ] }"),
	"big number": json.RawMessage(`12345678901234567890123456789`),
	"fraction":   json.RawMessage(`2.50`),
	"exponent":   json.RawMessage(`1E+2`),
	"escapes":    json.RawMessage(`"\u00e5\/\u2028<&>"`),
	"letters":    json.RawMessage(`"åßç漢🙂"`),
	"null":       json.RawMessage(`null`),
	"nul":        json.RawMessage(`"\u0000"`),
}

func valuesByteForByte(k *kit) {
	book := bound("out")
	book.Meta, book.Flows[0].Store, book.Flows[0].Meta = oddValues, oddValues, oddValues
	book.Flows[0].Factory.Args = oddValues["spaces"]
	k.save(book)
	k.sameBytes("book meta", k.book(book.ID).Meta, oddValues)
	id := book.Flows[0].ID
	flow := k.flow(id)
	k.sameBytes("store", flow.Store, oddValues)
	k.sameBytes("meta", flow.Meta, oddValues)
	if !bytes.Equal(flow.Factory.Args, oddValues["spaces"]) {
		k.Errorf("factory args: got %q, want %q", flow.Factory.Args, oddValues["spaces"])
	}
	sequence := uint64(0)
	for name, value := range oddValues {
		sequence++
		change := task(name)
		change.Attempts = []logbook.Attempt{ended(execution(1), value)}
		k.update(logbook.Update{Flow: id, Sequence: sequence, Atoms: []logbook.AtomChange{change}})
		atom := k.atom(id, name)
		if len(atom.Attempts) != 1 || !bytes.Equal(atom.Attempts[0].Result, value) {
			k.Errorf("result %s: got %s, want %q", name, render(atom.Attempts), value)
		}
	}
}

func (k *kit) sameBytes(what string, got, want logbook.Values) {
	k.Helper()
	if len(got) != len(want) {
		k.Errorf("%s: got %d values, want %d", what, len(got), len(want))
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			k.Errorf("%s, %s: got %q, want %q", what, name, got[name], want[name])
		}
	}
}

func nothingIsShared(k *kit) {
	book := bound("out")
	book.Flows[0].Targets = []string{"pay"}
	id := book.Flows[0].ID
	k.save(book)
	change := task("pay")
	change.Attempts = []logbook.Attempt{ended(execution(1), json.RawMessage(`"paid"`))}
	change.Progress = &logbook.Progress{Details: json.RawMessage(`"half"`)}
	update := logbook.Update{Flow: id, Sequence: 1, Cause: &logbook.Failure{Kind: "error", Causes: []logbook.Failure{{Kind: "deep", Details: logbook.Values{"d": json.RawMessage(`"why"`)}}}}, Atoms: []logbook.AtomChange{change}}
	update.Definition = &logbook.Definition{Hash: "h", Packed: []byte("packed")}
	k.update(update)
	wantBook, wantFlow := render(k.book(book.ID)), render(k.flow(id))

	spoilBook := func(b *logbook.Book) {
		b.Meta["customer"][0] = 'X'
		b.Flows[0].Store["city"][0] = 'X'
		b.Flows[0].Factory.Args[0] = 'X'
		b.Flows[0].Targets[0] = "X"
	}
	spoilBook(&book)
	read := k.book(book.ID)
	spoilBook(&read)
	update.Cause.Causes[0].Kind, update.Cause.Causes[0].Details["d"][1] = "X", 'X'
	update.Atoms[0].Attempts[0].Result[0] = 'X'
	update.Atoms[0].Progress.Details[0] = 'X'
	update.Definition.Packed[0] = 'X'
	flow := k.flow(id)
	flow.Definition.Packed[0] = 'X'
	flow.Atoms[0].Progress.Details[0] = 'X'
	flow.Cause.Causes[0].Kind, flow.Cause.Causes[0].Details["d"][1] = "X", 'X'
	flow.Atoms[0].Attempts[0].Result[0] = 'X'
	flow.Atoms[0].Attempts[0].Number = 9

	k.same("book", json.RawMessage(render(k.book(book.ID))), json.RawMessage(wantBook))
	k.same("flow", json.RawMessage(render(k.flow(id))), json.RawMessage(wantFlow))
}

func endedContext(k *kit) {
	book := k.saved("out")
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	k.wants("SaveBook", k.conn.SaveBook(ctx, book), context.Canceled)
	_, err := k.conn.Book(ctx, book.ID)
	k.wants("Book", err, context.Canceled)
	_, err = k.conn.Books(ctx, "", 1)
	k.wants("Books", err, context.Canceled)
	_, err = k.conn.FlowDetail(ctx, book.Flows[0].ID)
	k.wants("FlowDetail", err, context.Canceled)
	_, err = k.conn.Update(ctx, logbook.Update{Flow: book.Flows[0].ID, Sequence: 1})
	k.wants("Update", err, context.Canceled)
	k.wants("DestroyBook", k.conn.DestroyBook(ctx, logbook.NewBookID()), context.Canceled)
}
