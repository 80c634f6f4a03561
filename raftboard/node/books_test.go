package node_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// TestLargeBooksAreListed: books that are too long for one answer are listed in several.
func TestLargeBooksAreListed(t *testing.T) {
	t.Parallel()
	const books = 24
	client := newCluster(t, 1).startAll().client()
	long := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	for range books {
		book := logbook.Book{ID: logbook.NewBookID(), Name: "large", Meta: logbook.Values{"note": long}}
		if err := client.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
	}
	listed := 0
	for _, err := range logbook.AllBooks(t.Context(), client) {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	if listed != books {
		t.Fatalf("%d books of %d are listed", listed, books)
	}
}

// TestLongListsAreRead: a book of many flows, and a long list of entities, are read completely
// although no single answer can contain them.
func TestLongListsAreRead(t *testing.T) {
	t.Parallel()
	client := newCluster(t, 1).startAll().client()
	const saves, each, entities = 7, 4, 320
	args := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	book := logbook.Book{ID: logbook.NewBookID(), Name: "large"}
	for i := range saves {
		book.Flows = nil
		for j := range each {
			book.Flows = append(book.Flows, logbook.FlowDetail{
				ID: logbook.NewFlowID(), Book: book.ID, Name: fmt.Sprint(i*each + j), Factory: logbook.Factory{Name: "k", Args: args},
			})
		}
		if err := client.SaveBook(t.Context(), book); err != nil {
			t.Fatal(err)
		}
	}
	read, err := client.Book(t.Context(), book.ID)
	if err != nil || len(read.Flows) != saves*each {
		t.Fatalf("%d flows are read: %v", len(read.Flows), err)
	}
	for i := range read.Flows {
		if flow := &read.Flows[i]; flow.Name != fmt.Sprint(i) || len(flow.Factory.Args) != len(args) {
			t.Errorf("flow %d is %s, with %d bytes of arguments", i, flow.Name, len(flow.Factory.Args))
		}
	}

	meta := json.RawMessage(`"` + strings.Repeat("m", jobs.MaxMetadata-10) + `"`)
	session := jobs.NewSessionID()
	for i := range entities {
		if i%160 == 0 {
			session = jobs.NewSessionID()
			if _, err := client.OpenSession(t.Context(), jobs.Opening{ID: session, Name: "worker", TTL: jobs.MaxTTL}); err != nil {
				t.Fatal(err)
			}
		}
		entity := jobs.Entity{Kind: []string{"worker", "b"}[i%2], Name: fmt.Sprint(i), Metadata: logbook.Values{"m": meta}}
		if err := client.Register(t.Context(), session, entity); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := client.Entities(t.Context(), "")
	if err != nil || len(listed) != entities {
		t.Fatalf("%d entities are listed: %v", len(listed), err)
	}
	inOrder := slices.IsSortedFunc(listed, func(a, b jobs.Entity) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	if !inOrder {
		t.Error("they are not by kind and name")
	}
}
