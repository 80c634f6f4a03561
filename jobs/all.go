package jobs

import (
	"context"
	"iter"

	"github.com/conductord/conductord/logbook"
)

// All yields the jobs that a query selects, page by page, in posting order. It
// ends with an error, the last thing that is yielded, or with the last job. A
// limit of the query is that of a page.
func All(ctx context.Context, board Reader, query Query) iter.Seq2[Job, error] {
	return logbook.Pages(query.After, func(after string) (Page[Job], error) {
		query.After = after
		return board.Jobs(ctx, query)
	})
}

// AllClaims yields the claims that a query selects, page by page, as All does
// jobs.
func AllClaims(ctx context.Context, board Attendant, query ClaimQuery) iter.Seq2[HeldClaim, error] {
	return logbook.Pages(query.After, func(after string) (Page[HeldClaim], error) {
		query.After = after
		return board.Claims(ctx, query)
	})
}

// AllErrors yields the errors that a query selects, page by page, the latest
// first, as All does jobs.
func AllErrors(ctx context.Context, board Historian, query ErrorQuery) iter.Seq2[JobError, error] {
	return logbook.Pages(query.After, func(after string) (Page[JobError], error) {
		query.After = after
		return board.Errors(ctx, query)
	})
}

// AllBoards yields the boards by name, page by page, as All does jobs.
func AllBoards(ctx context.Context, board Boards) iter.Seq2[BoardStatus, error] {
	return logbook.Pages("", func(after string) (Page[BoardStatus], error) { return board.BoardList(ctx, after, 0) })
}
