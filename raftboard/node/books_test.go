package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/conductord/conductord/logbook"
)

// TestLargeBooksAreListed: books that are too long for one answer are listed in
// several.
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
	listed, err := client.Books(t.Context(), logbook.BookID{}, 0)
	if err != nil || len(listed) != books {
		t.Fatalf("%d books of %d are listed: %v", len(listed), books, err)
	}
}
