package logbook

import (
	"context"
	"iter"
)

// Page is a part of a list. It can be short or empty although more pages follow.
type Page[T any] struct {
	Items []T
	// Next is the After of the query for the next page. Empty: this page is the last. Only
	// the store that made it can read it.
	Next string
	// Scans: no index covers the query, so the store read and skipped other items.
	Scans bool
}

// MaxPage bounds the items of a page.
const MaxPage = 1_000

// Pages yields the items of all pages, starting after the given cursor. If a page cannot be
// read, Pages yields the error as the last item.
func Pages[T any](after string, read func(after string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			page, err := read(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for i := range page.Items {
				if !yield(page.Items[i], nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

// AllBooks yields all books without their flows, in the order of Connection.Books. If a page
// cannot be read, AllBooks yields the error as the last item.
func AllBooks(ctx context.Context, connection Connection) iter.Seq2[Book, error] {
	return Pages("", func(after string) (Page[Book], error) { return connection.Books(ctx, after, 0) })
}
