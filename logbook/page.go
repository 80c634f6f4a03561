package logbook

import (
	"context"
	"iter"
)

// Page is a part of a listing. It may be short, or empty, although more follow.
type Page[T any] struct {
	Items []T
	// Next is the After of the query for the next page; empty at the end. Only the
	// store that made it can read it.
	Next string
	// Scans: no index leads to what was asked for alone, so other items had to be
	// looked at and left out.
	Scans bool
}

// MaxPage bounds a listing.
const MaxPage = 1_000

// Pages yields the items of all pages from one on. If a page cannot be read, it
// yields the error and ends.
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

// AllBooks yields the books without their flows, the one with the highest id first.
func AllBooks(ctx context.Context, connection Connection) iter.Seq2[Book, error] {
	return Pages("", func(after string) (Page[Book], error) { return connection.Books(ctx, after, 0) })
}
