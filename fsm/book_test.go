package fsm_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/logbook"
)

func TestSaveBookMerges(t *testing.T) {
	r := newRig(t)
	r.ok(saveBook(book("b", "one")))
	r.harmless(saveBook(book("b", "one")))
	r.now = r.now.Add(time.Second)
	more := book("b", "two")
	more.Name, more.Meta = "renamed", []*v1.NamedValue{{Name: "k", Value: value(`"v"`)}}
	r.ok(saveBook(more))
	saved, err := r.Book(bookID("b"))
	if err != nil {
		t.Fatal(err)
	}
	if saved.Name != "renamed" || len(saved.Flows) != 2 || saved.Flows[0].Name != "one" || saved.Flows[1].Name != "two" ||
		!saved.CreatedAt.Equal(start) || !saved.UpdatedAt.Equal(r.now) || string(saved.Meta["k"]) != `"v"` {
		t.Errorf("saved %+v", saved)
	}
}

func TestSaveBookRules(t *testing.T) {
	changed := func(of string) *v1.Command {
		b := book("book of "+of, "flow of "+of)
		b.Flows[0].Store[0].Value = value("9")
		return saveBook(b)
	}
	same := func(of string) *v1.Command { return saveBook(book("book of "+of, "flow of "+of)) }
	r := newRig(t)
	r.ok(open("ann"))
	r.ok(saveBook(book("book of free", "flow of free")))
	r.ok(changed("free"))
	r.posted(flowPosting("posted"))
	r.refused(changed("posted"), "conflict")
	r.harmless(same("posted"))
	held := flowPosting("held")
	held.Hold = true
	r.posted(held)
	r.ok(changed("held"))
	other := book("book of held", "flow of held")
	other.Flows[0].Factory.Name = "another"
	r.refused(saveBook(other), "conflict")
	r.ok(change(&v1.Change{Job: id("held"), Release: true}))
	r.refused(saveBook(book("book of held", "flow of held")), "conflict")
	r.harmless(changed("held"))
	token := r.claimed("ann", flowPosting("begun"))
	r.ok(updateFlow(update("flow of begun", token, 1, "running", task("x", "running"))))
	r.ok(trash(ending("begun", token)))
	r.refused(changed("begun"), "conflict")
	r.harmless(same("begun"))
	r.refused(saveBook(book("other", "fresh", "flow of free")), "conflict")
	r.refused(saveBook(book("other", "f", "f")), "invalid")
	r.refused(saveBook(&v1.Book{Name: "x"}), "invalid")
	r.refused(saveBook(&v1.Book{Id: id("b"), Flows: []*v1.FlowDetail{{Name: "no id"}}}), "invalid")
	flow, _, err := r.Flow(flowID("flow of begun"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || flow.State != logbook.FlowRunning || len(flow.Atoms) != 1 {
		t.Errorf("the begun flow is %+v: %v", flow, err)
	}
}

func TestNewFlowIsPending(t *testing.T) {
	r := newRig(t)
	b := book("b", "one")
	b.Flows[0].State, b.Flows[0].Sequence = "success", 9
	b.Flows[0].Cause = &v1.Failure{Kind: "error"}
	b.Flows[0].Atoms = []*v1.AtomDetail{{Name: "x", Kind: "task", State: "success", Intention: "execute"}}
	r.ok(saveBook(b))
	flow, _, err := r.Flow(flowID("one"), fsm.Part{MaxBytes: fsm.Unbounded})
	if err != nil || flow.State != logbook.FlowPending || flow.Sequence != 0 || len(flow.Atoms) != 0 || flow.Cause != nil {
		t.Errorf("saved %+v: %v", flow, err)
	}
}

func TestDestroyBook(t *testing.T) {
	r := newRig(t)
	r.refused(destroyBook("nothing"), "not_found")
	r.ok(open("ann"))
	token := r.claimed("ann", flowPosting("a"))
	r.ok(updateFlow(update("flow of a", token, 1, "running", task("x", "running", executing(1)), task("x", "success", executed(1, "1")))))
	r.refused(destroyBook("book of a"), "conflict")
	r.ok(trash(ending("a", token)))
	r.ok(destroyBook("book of a"))
	r.refused(destroyBook("book of a"), "not_found")
	if _, err := r.Book(bookID("book of a")); !errors.Is(err, logbook.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	claimed, _, err := r.Claimed(jobID(id("a")), fsm.Unbounded)
	if err != nil || claimed.Book != nil || claimed.Flow != nil {
		t.Errorf("a job whose book is gone: %+v %v", claimed, err)
	}
	r.ok(saveBook(book("book of a", "flow of a"))) // nothing of the old book is left
	if flow, _, err := r.Flow(flowID("flow of a"), fsm.Part{MaxBytes: fsm.Unbounded}); err != nil || len(flow.Atoms) != 0 {
		t.Errorf("flow %+v: %v", flow, err)
	}
}

func TestBooksByPage(t *testing.T) {
	r := newRig(t)
	for i := range 7 {
		r.ok(saveBook(book(fmt.Sprint(i), fmt.Sprint("flow ", i))))
	}
	seen := make(map[string]bool)
	last := logbook.BookID{}
	for book, err := range logbook.Pages("", func(after string) (logbook.Page[logbook.Book], error) { return r.Books(after, 3) }) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[book.Name] || len(seen) > 0 && book.ID.String() >= last.String() || len(book.Flows) != 0 {
			t.Errorf("book %+v after %s", book, last)
		}
		seen[book.Name], last = true, book.ID
	}
	if len(seen) != 7 {
		t.Errorf("listed %d", len(seen))
	}
}
