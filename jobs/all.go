package jobs

import (
	"context"
	"iter"
)

// All yields the jobs that a query selects, page by page, in posting order. It
// ends with an error, the last thing that is yielded, or with the last job. A
// limit of the query is that of a page.
func All(ctx context.Context, board Reader, query Query) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for {
			page, err := board.Jobs(ctx, query)
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
			query.After = page.Next
		}
	}
}

// AllClaims yields the claims that a query selects, page by page, as All does
// jobs.
func AllClaims(ctx context.Context, board Attendant, query ClaimQuery) iter.Seq2[HeldClaim, error] {
	return func(yield func(HeldClaim, error) bool) {
		for {
			page, err := board.Claims(ctx, query)
			if err != nil {
				yield(HeldClaim{}, err)
				return
			}
			for _, held := range page.Claims {
				if !yield(held, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			query.After = page.Next
		}
	}
}

// AllErrors yields the errors that a query selects, page by page, the latest
// first, as All does jobs.
func AllErrors(ctx context.Context, board Historian, query ErrorQuery) iter.Seq2[JobError, error] {
	return func(yield func(JobError, error) bool) {
		for {
			page, err := board.Errors(ctx, query)
			if err != nil {
				yield(JobError{}, err)
				return
			}
			for _, one := range page.Errors {
				if !yield(one, nil) {
					return
				}
			}
			if page.Next == nil {
				return
			}
			query.Before = page.Next
		}
	}
}

// AllBoards yields the boards by name, page by page, as All does jobs.
func AllBoards(ctx context.Context, board Boards) iter.Seq2[BoardStatus, error] {
	return func(yield func(BoardStatus, error) bool) {
		after := ""
		for {
			page, err := board.BoardList(ctx, after, 0)
			if err != nil {
				yield(BoardStatus{}, err)
			}
			if err != nil || len(page) == 0 {
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			after = page[len(page)-1].Name
		}
	}
}
