package logbooktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/conductord/conductord/logbook"
)

var limitRows = []row{
	{"a name at the limit is kept, one byte more is refused", namesAtLimit},
	{"a name must be a name", namesMustBeNames},
	{"a value at the limit is kept, one byte more is refused", valuesAtLimit},
	{"a value must be one JSON value", valuesMustBeJSON},
	{"a store has a limit too", storesAtLimit},
	{"a result at the limit is kept, one byte more is refused", resultsAtLimit},
	{"stderr at the limit is kept, one byte more is refused", stderrAtLimit},
	{"a flow has a limit of steps", stepsAtLimit},
	{"a command has a limit", commandsAtLimit},
	{"a book and its flows have ids, each its own", idsAreNeeded},
}

// refused checks that an error is an error for wrong input.
func (k *kit) refused(what string, err error) {
	k.Helper()
	if !errors.Is(err, logbook.ErrInvalid) && !errors.Is(err, logbook.ErrLimit) && !errors.Is(err, logbook.ErrConflict) {
		k.Errorf("%s: got error %v, want a refusal", what, err)
	}
}

// absent checks that a refused book was not stored.
func (k *kit) absent(book logbook.Book) {
	k.Helper()
	_, err := k.conn.Book(k.ctx, book.ID)
	k.wants("a refused book", err, logbook.ErrNotFound)
	for i := range book.Flows {
		_, err := k.conn.FlowDetail(k.ctx, book.Flows[i].ID)
		k.wants("a flow of a refused book", err, logbook.ErrNotFound)
	}
}

// named are the fields of a book with a name.
var named = []struct {
	name string
	set  func(b *logbook.Book, name string)
}{
	{"book", func(b *logbook.Book, name string) { b.Name = name }},
	{"flow", func(b *logbook.Book, name string) { b.Flows[0].Name = name }},
	{"factory", func(b *logbook.Book, name string) { b.Flows[0].Factory.Name = name }},
	{"meta value", func(b *logbook.Book, name string) { b.Meta = logbook.Values{name: json.RawMessage(`1`)} }},
	{"store value", func(b *logbook.Book, name string) { b.Flows[0].Store = logbook.Values{name: json.RawMessage(`1`)} }},
}

func namesAtLimit(k *kit) {
	most := logbook.MaxLimits.Name
	fits := strings.Repeat("å", most/2) + strings.Repeat("x", most%2)
	for _, place := range named {
		book := bound("out")
		place.set(&book, fits)
		k.save(book)
		book = bound("out")
		place.set(&book, fits+"x")
		k.wantsLimit("the name of a "+place.name, k.conn.SaveBook(k.ctx, book), most, most+1)
		k.absent(book)
	}
	id := k.begun()
	k.update(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{task(fits)}})
	err := k.verdict(logbook.Update{Flow: id, Sequence: 2, Atoms: []logbook.AtomChange{task(fits + "x")}})
	k.wantsLimit("the name of an atom", err, most, most+1)
	k.standsAt(id, logbook.FlowPending, 1)
}

func namesMustBeNames(k *kit) {
	id := k.begun()
	for _, name := range []string{"", "a\x00b", "line\nbreak", "tab\t", "del\x7f", "c1 \u0085"} {
		for _, place := range named {
			book := bound("out")
			place.set(&book, name)
			k.wantsInvalid(fmt.Sprintf("the name %q of a %s", name, place.name), k.conn.SaveBook(k.ctx, book))
		}
		k.wantsInvalid(fmt.Sprintf("the name %q of an atom", name), k.verdict(logbook.Update{Flow: id, Sequence: 1, Atoms: []logbook.AtomChange{task(name)}}))
	}
	k.standsAt(id, logbook.FlowPending, 0)
}

// text makes a JSON string of a size, quotes included.
func text(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

var valued = []struct {
	name string
	set  func(b *logbook.Book, value json.RawMessage)
}{
	{"book meta", func(b *logbook.Book, value json.RawMessage) { b.Meta = logbook.Values{"v": value} }},
	{"flow meta", func(b *logbook.Book, value json.RawMessage) { b.Flows[0].Meta = logbook.Values{"v": value} }},
	{"flow store", func(b *logbook.Book, value json.RawMessage) { b.Flows[0].Store = logbook.Values{"v": value} }},
	{"factory args", func(b *logbook.Book, value json.RawMessage) { b.Flows[0].Factory.Args = value }},
}

// longest is the maximum size of a value for the store.
func (k *kit) longest() int { return logbook.PlainLimits(k.conn, logbook.MaxLimits).Value }

func valuesAtLimit(k *kit) {
	most := k.longest()
	for _, place := range valued {
		book := bound("out")
		place.set(&book, text(most))
		k.save(book)
		book = bound("out")
		place.set(&book, text(most+1))
		k.wantsLimit(place.name, k.conn.SaveBook(k.ctx, book), most, most+1)
		k.absent(book)
	}
}

func valuesMustBeJSON(k *kit) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	book := bound("out")
	book.Meta["v"] = json.RawMessage(nested(logbook.MaxJSONDepth))
	k.save(book)
	for _, place := range valued {
		for _, value := range []string{`{`, `nope`, `1 2`, `{"a":}`, "\"\xff\"", `'x'`, " ", `{"k":1,"k":2}`, `1e400`, `"\ud800"`} {
			book := bound("out")
			place.set(&book, json.RawMessage(value))
			k.wantsInvalid(fmt.Sprintf("%s %q", place.name, value), k.conn.SaveBook(k.ctx, book))
			k.absent(book)
		}
		book := bound("out")
		place.set(&book, json.RawMessage(nested(logbook.MaxJSONDepth+1)))
		k.wantsLimit("nesting of "+place.name, k.conn.SaveBook(k.ctx, book), logbook.MaxJSONDepth, logbook.MaxJSONDepth+1)
	}
}

func storesAtLimit(k *kit) {
	values := make(logbook.Values)
	for i := range logbook.MaxValues {
		values[fmt.Sprint("v", i)] = json.RawMessage(`1`)
	}
	book := bound("out")
	book.Flows[0].Store = values
	k.save(book)
	k.same("store", k.flow(book.Flows[0].ID).Store, values)
	values["more"] = json.RawMessage(`1`)
	book = bound("out")
	book.Flows[0].Store = values
	k.wantsLimit("store", k.conn.SaveBook(k.ctx, book), logbook.MaxValues, logbook.MaxValues+1)
	book.Flows[0].Store = logbook.Values{"empty": nil}
	k.wantsInvalid("an empty value", k.conn.SaveBook(k.ctx, book))
	k.absent(book)
}

// attempted is an update of one step with one attempt.
func attempted(id logbook.FlowID, sequence uint64, name string, attempt logbook.Attempt) logbook.Update {
	change := task(name)
	change.Attempts = []logbook.Attempt{attempt}
	return logbook.Update{Flow: id, Sequence: sequence, Atoms: []logbook.AtomChange{change}}
}

func resultsAtLimit(k *kit) {
	id, most := k.begun(), k.longest()
	k.update(attempted(id, 1, "pay", ended(execution(1), text(most))))
	if got := k.atom(id, "pay").Attempts[0].Result; len(got) != most {
		k.Errorf("got a result of %d bytes, want %d", len(got), most)
	}
	k.wantsLimit("result", k.verdict(attempted(id, 2, "fly", ended(execution(1), text(most+1)))), most, most+1)
	k.wantsInvalid("result", k.verdict(attempted(id, 2, "fly", ended(execution(1), json.RawMessage(`done`)))))
	k.standsAt(id, logbook.FlowPending, 1)
}

func stderrAtLimit(k *kit) {
	id := k.begun()
	attempt := ended(execution(1), nil)
	attempt.Stderr = strings.Repeat("x", logbook.MaxStderr)
	k.update(attempted(id, 1, "pay", attempt))
	_, shorter := k.conn.(logbook.Encrypting) // such a store stores less of the end
	kept := k.atom(id, "pay").Attempts[0]
	if got := kept.Stderr; got != attempt.Stderr && !(shorter && kept.StderrTruncated && len(got) > logbook.MaxStderr/2) {
		k.Errorf("got %d bytes of stderr, want %d", len(got), logbook.MaxStderr)
	}
	attempt.Stderr += "x"
	k.wantsLimit("stderr", k.verdict(attempted(id, 2, "fly", attempt)), logbook.MaxStderr, logbook.MaxStderr+1)
	k.standsAt(id, logbook.FlowPending, 1)
}

func stepsAtLimit(k *kit) {
	most := logbook.MaxLimits.Steps
	changes := make([]logbook.AtomChange, 0, most+1)
	for i := range most + 1 {
		changes = append(changes, task(fmt.Sprint("s", i)))
	}
	id := k.begun()
	k.wantsLimit("steps of an update", k.verdict(logbook.Update{Flow: id, Sequence: 1, Atoms: changes}), most, most+1)
	k.standsAt(id, logbook.FlowPending, 0)
	k.update(logbook.Update{Flow: id, Sequence: 1, Atoms: changes[:most]})
	flow := k.flow(id)
	if len(flow.Atoms) != most {
		k.Fatalf("got %d atoms, want %d", len(flow.Atoms), most)
	}
	for i := range flow.Atoms {
		if flow.Atoms[i].Name != changes[i].Name {
			k.Fatalf("atom %d is %q, want %q", i, flow.Atoms[i].Name, changes[i].Name)
		}
	}
	k.wantsLimit("one step more", k.verdict(logbook.Update{Flow: id, Sequence: 2, Atoms: changes[most:]}), most, most+1)
	k.update(logbook.Update{Flow: id, Sequence: 2, Atoms: changes[:1]})
}

func commandsAtLimit(k *kit) {
	most := logbook.MaxLimits.Command
	book := bound("out")
	for i := range most/k.longest() + 1 {
		book.Meta[fmt.Sprint("v", i)] = text(k.longest())
	}
	k.wantsLimit("a book larger than a command", k.conn.SaveBook(k.ctx, book), most, most+1)
	k.absent(book)
}

func idsAreNeeded(k *kit) {
	for what, spoil := range map[string]func(*logbook.Book){
		"book without an id":           func(b *logbook.Book) { b.ID = logbook.BookID{} },
		"flow without an id":           func(b *logbook.Book) { b.Flows[1].ID = logbook.FlowID{} },
		"flow that stands there twice": func(b *logbook.Book) { b.Flows[1].ID = b.Flows[0].ID },
	} {
		book := bound("out", "back")
		spoil(&book)
		k.wantsInvalid("a "+what, k.conn.SaveBook(k.ctx, book))
		if !book.ID.IsZero() {
			_, err := k.conn.Book(k.ctx, book.ID)
			k.wants("a refused book", err, logbook.ErrNotFound)
		}
	}
	k.wants("an update without a flow", k.verdict(logbook.Update{Sequence: 1}), logbook.ErrInvalid)
}
