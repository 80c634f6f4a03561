package logbook

import (
	"context"
	"iter"
)

// AllBooks yields the books, page by page, in the order of their ids and without their flows.
// If a page cannot be read, it yields the error and ends.
func AllBooks(ctx context.Context, connection Connection) iter.Seq2[Book, error] {
	return func(yield func(Book, error) bool) {
		after := BookID{}
		for {
			page, err := connection.Books(ctx, after, MaxPage)
			if err != nil {
				yield(Book{}, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
				after = page[i].ID
			}
			if len(page) == 0 {
				return
			}
		}
	}
}
