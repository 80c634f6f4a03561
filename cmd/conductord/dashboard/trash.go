package dashboard

import (
	"context"
	"slices"
	"strings"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// trashData is the data of the lists of jobs that need an operator: jobs in the trash, or parked jobs.
type trashData struct {
	Parked   bool
	Board    string // of the filter; empty: all
	Jobs     []*v1.Job
	Operable map[string]bool // by board: the user may operate its jobs
	Bulk     []operation
	More     pager
}

// loadTrash lists trashed and failed jobs, the newest first.
func loadTrash(ctx context.Context, v *visit) (view, error) {
	data, watch, err := v.needy(ctx, jobs.StateTrashed)
	return view{Title: "Trash", Command: "conductord trash list" + boardFlag(data.Board), Data: data, Watch: watch}, err
}

// loadParked lists the parked jobs. No index has only parked jobs, so a page of 50 held and
// suspended jobs may show fewer.
func loadParked(ctx context.Context, v *visit) (view, error) {
	data, watch, err := v.needy(ctx, jobs.StateHeld, jobs.StateSuspended)
	data.Parked = true
	data.Bulk = slices.DeleteFunc(data.Bulk, func(a operation) bool { return a.Verb != string(jobs.ActionRetry) }) // the other operations also apply to jobs that are not parked
	data.Jobs = slices.DeleteFunc(data.Jobs, func(j *v1.Job) bool { return !j.GetParked() })
	return view{Title: "Parked jobs", Command: "conductord job list --state held,suspended" + boardFlag(data.Board), Data: data, Watch: watch}, err
}

func (v *visit) needy(ctx context.Context, states ...jobs.State) (data trashData, watch *v1.WatchRequest, err error) {
	query := &v1.ListJobsRequest{Board: v.query("board"), Order: string(jobs.OrderNewest), After: v.query("after"), Limit: v.rows(), Stale: true}
	for _, state := range states {
		query.States = append(query.States, string(state))
	}
	if query.Board, err = v.listedBoard(ctx, query.Board); err != nil {
		return data, nil, err
	}
	answer, err := ask(ctx, v.api.board.ListJobs, query)
	data = trashData{Board: query.Board, Jobs: answer.GetJobs(), More: v.more(answer.GetNext()), Operable: map[string]bool{}}
	for _, job := range data.Jobs {
		data.Operable[job.GetBoard()] = v.may(command.Operate, job.GetBoard())
	}
	data.Bulk = v.offeredBulk(&jobFilter{Board: query.Board, State: strings.Join(query.States, ",")})
	return data, &v1.WatchRequest{Board: query.Board}, err
}

func boardFlag(board string) string { return flags("board", board) }
