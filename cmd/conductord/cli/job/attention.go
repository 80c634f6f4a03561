package job

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/jobs"
)

// longWait is the time after which waiting jobs on a board without claims need attention.
const longWait = time.Minute

// attention lists the jobs that need an operator with several queries, one after the other.
type attention struct {
	queries []jobs.Query
	parked  int // index of the query that lists only parked jobs
}

// look makes the queries once: failed, trashed, parked, and waiting on a board without a claim.
func (a *attention) look(ctx context.Context, cluster jobs.Boards, base jobs.Query) error {
	if a.queries != nil {
		return nil
	}
	of := func(change func(*jobs.Query)) {
		query := base
		change(&query)
		a.queries = append(a.queries, query)
	}
	of(func(q *jobs.Query) { q.Outcomes = []jobs.Outcome{jobs.OutcomeFailed} })
	of(func(q *jobs.Query) { q.States = []jobs.State{jobs.StateTrashed} })
	a.parked = len(a.queries)
	of(func(q *jobs.Query) { q.States = []jobs.State{jobs.StateHeld, jobs.StateSuspended} })
	for board, err := range jobs.AllBoards(ctx, cluster) {
		if err != nil {
			return err
		}
		waits := !board.OldestClaimable.IsZero() && time.Since(board.OldestClaimable) > longWait
		if waits && board.Jobs[jobs.StateClaimed] == 0 && board.Pause == nil && (base.Board == "" || base.Board == board.Name) {
			of(func(q *jobs.Query) { q.Board, q.States = board.Name, []jobs.State{jobs.StateClaimable} })
		}
	}
	return nil
}

// page reads a page. after is the number of a query, a slash, and the cursor of that query.
func (a *attention) page(ctx context.Context, cluster jobs.Reader, after string, limit int) (found []jobs.Job, next string, err error) {
	number, cursor, _ := strings.Cut(after, "/")
	at := 0
	if after != "" {
		if at, err = strconv.Atoi(number); err != nil || at < 0 || at >= len(a.queries) {
			return nil, "", cli.UsageError(errors.New("--after is not from a list with --needs-attention, or the boards have changed: list again"))
		}
	}
	query := a.queries[at]
	query.After, query.Limit = cursor, limit
	page, err := cluster.Jobs(ctx, query)
	if err != nil {
		return nil, "", err
	}
	if at == a.parked {
		page.Items = slices.DeleteFunc(page.Items, func(job jobs.Job) bool { return !job.Parked })
	}
	switch {
	case page.Next != "":
		next = strconv.Itoa(at) + "/" + page.Next
	case at+1 < len(a.queries):
		next = strconv.Itoa(at+1) + "/"
	}
	return page.Items, next, nil
}
