package fsm_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// answerBytes is the maximum size of an answer's content.
const answerBytes = 3 << 20

// gathered reads all pages, checks that each next cursor differs from the previous one, and returns
// the number of pages.
func gathered[T any, N comparable](t *testing.T, page func(after N) ([]T, N, error)) (all []T, pages int) {
	t.Helper()
	var after, none N
	for {
		found, next, err := page(after)
		if err != nil {
			t.Fatal(err)
		}
		all, pages = append(all, found...), pages+1
		if next == none {
			return all, pages
		}
		if len(found) == 0 || next == after {
			t.Fatalf("a page of %d continues at %v after %v", len(found), next, after)
		}
		after = next
	}
}

// TestListsAreReadByPages: the pages together have all rows of a list, and each page fits into an
// answer.
func TestListsAreReadByPages(t *testing.T) {
	r := newRig(t)
	const sessions, entities, drains = 3_000, 100, 500
	long, kib16 := strings.Repeat("h", logbook.MaxLimits.Name), `"`+strings.Repeat("m", 16<<10-10)+`"`
	var opened []*v1.Command
	for i := range sessions {
		opened = append(opened, &v1.Command{Kind: &v1.Command_OpenSession{OpenSession: &v1.Opening{Id: id(fmt.Sprint(i)), Name: long, Host: long}}})
	}
	r.do(opened...)
	for i := range entities {
		r.do(register(fmt.Sprint(i%7), &v1.Entity{
			Kind: []string{"conductor", "b", "a"}[i%3], Name: fmt.Sprint("e", i), Metadata: []*v1.NamedValue{{Name: "m", Value: value(kib16)}},
		}))
	}
	for i := range drains {
		r.do(&v1.Command{Kind: &v1.Command_DrainConductor{DrainConductor: &v1.DrainCommand{
			Conductor: fmt.Sprint("c", i), Absent: true, By: long, Reason: strings.Repeat("r", jobs.MaxReason),
		}}})
	}

	allSessions, err := r.Sessions()
	if err != nil || len(allSessions) != sessions {
		t.Fatalf("%d sessions: %v", len(allSessions), err)
	}
	for _, limit := range []int{0, 3} {
		page := func(after jobs.SessionID) ([]jobs.Session, jobs.SessionID, error) { return r.SessionPage(after, limit) }
		if got, pages := gathered(t, page); !reflect.DeepEqual(got, allSessions) || pages < 2 || limit > 0 && pages != (sessions+limit-1)/limit {
			t.Errorf("%d sessions on %d pages of %d", len(got), pages, limit)
		}
	}
	allDrains, err := r.Drains()
	if err != nil || len(allDrains) != drains {
		t.Fatalf("%d drains: %v", len(allDrains), err)
	}
	if got, pages := gathered(t, r.DrainPage); !reflect.DeepEqual(got, allDrains) || pages < 2 {
		t.Errorf("%d drains on %d pages", len(got), pages)
	}
	for kind, want := range map[string]int{"": entities, "conductor": 34, "b": 33, "none": 0} {
		seen := map[string]bool{}
		got, pages := gathered(t, func(after string) ([]jobs.Entity, string, error) {
			found, next, err := r.EntityPage(kind, "", after, 0)
			size := 0
			for _, entity := range found {
				size += len(entity.Metadata["m"])
				seen[entity.Name] = kind == "" || entity.Kind == kind
			}
			if size > answerBytes {
				t.Errorf("a page of kind %q has %d bytes", kind, size)
			}
			return found, next, err
		})
		if len(got) != want || len(seen) != want || (want == entities) != (pages > 1) {
			t.Errorf("%d entities of kind %q, %d different ones, on %d pages", len(got), kind, len(seen), pages)
		}
	}
	named, _, err := r.EntityPage("conductor", "e3", "", 0)
	few, next, failed := r.EntityPage("conductor", "", "", 2)
	if err != nil || failed != nil || len(named) != 1 || named[0].Name != "e3" || len(few) != 2 || next == "" {
		t.Errorf("of one name %d entities, of two at most %d, then %q: %v", len(named), len(few), next, errors.Join(err, failed))
	}
	if _, _, err := r.EntityPage("", "", "no next", 0); err == nil {
		t.Error("a page after nothing known is read")
	}
}

// TestBooksAreReadByParts: each part of a book has at least one of its flows.
func TestBooksAreReadByParts(t *testing.T) {
	r := newRig(t)
	const flows, size = 12, 200 << 10
	for i := range flows {
		r.do(saveBook(&v1.Book{Id: id("b"), Name: "large", Flows: []*v1.FlowDetail{{
			Id: id(fmt.Sprint("f", i)), Book: id("b"), Name: fmt.Sprint("f", i),
			Factory: &v1.Factory{Name: "k", Args: value(`"` + strings.Repeat("x", size) + `"`)},
		}}}))
	}
	whole, err := r.Book(bookID("b"))
	if err != nil || len(whole.Flows) != flows {
		t.Fatalf("%d flows: %v", len(whole.Flows), err)
	}
	for _, row := range []struct{ bytes, parts int }{{fsm.Unbounded, 1}, {size * 5, 3}, {size / 2, flows}, {0, flows}} {
		var got []logbook.FlowDetail
		parts := 0
		for more := true; more; parts++ {
			part, follow, err := r.BookPart(whole.ID, len(got), row.bytes)
			if err != nil || part.Name != "large" {
				t.Fatalf("part %d is %q: %v", parts, part.Name, err)
			}
			got, more = append(got, part.Flows...), follow
		}
		if !reflect.DeepEqual(got, whole.Flows) || parts != row.parts {
			t.Errorf("%d flows in %d parts of %d bytes, not %d", len(got), parts, row.bytes, row.parts)
		}
	}
}
