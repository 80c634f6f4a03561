package jobs

import (
	"context"
	"iter"

	"github.com/conductord/conductord/logbook"
)

// All yields the selected jobs in the order of the query. It reads them page by page;
// query.Limit is the size of a page. If a page cannot be read, All yields the error as the
// last item.
func All(ctx context.Context, board Reader, query Query) iter.Seq2[Job, error] {
	return logbook.Pages(query.After, func(after string) (Page[Job], error) {
		query.After = after
		return board.Jobs(ctx, query)
	})
}

// AllClaims yields the selected claims, as All yields jobs.
func AllClaims(ctx context.Context, board Attendant, query ClaimQuery) iter.Seq2[HeldClaim, error] {
	return logbook.Pages(query.After, func(after string) (Page[HeldClaim], error) {
		query.After = after
		return board.Claims(ctx, query)
	})
}

// AllErrors yields the selected errors, the latest first, as All yields jobs.
func AllErrors(ctx context.Context, board Historian, query ErrorQuery) iter.Seq2[JobError, error] {
	return logbook.Pages(query.After, func(after string) (Page[JobError], error) {
		query.After = after
		return board.Errors(ctx, query)
	})
}

// boardLister lists boards, as Boards does.
type boardLister interface {
	BoardList(ctx context.Context, after string, limit int) (Page[BoardStatus], error)
}

// AllBoards yields all boards, sorted by name, as All yields jobs.
func AllBoards(ctx context.Context, board boardLister) iter.Seq2[BoardStatus, error] {
	return logbook.Pages("", func(after string) (Page[BoardStatus], error) { return board.BoardList(ctx, after, 0) })
}
