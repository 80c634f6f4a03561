package dashboard

import (
	"context"
	"net/url"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// overviewData is the data of the overview.
type overviewData struct {
	nodesData
	States   []stateCount // of all jobs that the user may see
	Boards   []*v1.Board
	Left     int  // boards that are counted but not shown
	More     bool // there are more boards, which are not counted
	Rate     rates
	Chart    *chart // nil: the user may not see all boards
	Failures []*v1.JobError
	Waiting  *v1.Board // the board whose oldest claimable job waits longest; nil: none waits
	Upcoming []*v1.Schedule
}

// rates are the numbers of jobs posted and ended in the last minute and in the last five
// minutes.
type rates struct{ Posted1, Posted5, Finished1, Finished5 uint64 }

// loadOverview shows the state of the cluster, and the problems that need an operator.
func loadOverview(ctx context.Context, v *visit) (view, error) {
	nodes, err := v.nodes(ctx)
	if err != nil {
		return view{}, err
	}
	data := overviewData{nodesData: nodes}
	if err := v.addBoards(ctx, &data); err != nil {
		return view{}, err
	}
	if v.may(command.Read, access.AllBoards) {
		if err := v.addActivity(ctx, &data); err != nil {
			return view{}, err
		}
	}
	return view{Title: "Overview", Command: "conductord cluster status", Data: data, Watch: &v1.WatchRequest{}}, nil
}

// addBoards counts the jobs of the boards that the user may see.
func (v *visit) addBoards(ctx context.Context, data *overviewData) error {
	boards, err := ask(ctx, v.api.board.ListBoards, &v1.ListBoardsRequest{Stale: true})
	if err != nil {
		return err
	}
	all, counts := boards.GetBoards(), make(map[string]uint64)
	data.Boards, data.More = most(v, all, pageRows), boards.GetNext() != ""
	data.Left = len(all) - len(data.Boards)
	for _, board := range all {
		c := board.GetCounts()
		for state, n := range c.GetJobs() {
			counts[state] += n
		}
		counts[parked] += c.GetParked()
		data.Rate.Posted1, data.Rate.Posted5 = data.Rate.Posted1+c.GetPosted().GetOne(), data.Rate.Posted5+c.GetPosted().GetFive()
		data.Rate.Finished1, data.Rate.Finished5 = data.Rate.Finished1+c.GetFinished().GetOne(), data.Rate.Finished5+c.GetFinished().GetFive()
		if oldest := c.GetOldestClaimable(); oldest != nil && (data.Waiting == nil || oldest.AsTime().Before(data.Waiting.GetCounts().GetOldestClaimable().AsTime())) {
			data.Waiting = board
		}
	}
	data.States = countStates(counts)
	if n := counts[parked]; n > 0 {
		data.advise("Parked jobs: "+countText(n)+", which wait for an operator", "Show them", v.dashboard.views.address("parked"))
	}
	if n := counts[string(jobs.StateTrashed)]; n > 0 {
		data.advise("Trashed jobs: "+countText(n)+", which no conductor could run", "Show them", v.dashboard.views.address("jobs")+"?state=trashed")
	}
	for _, board := range idleBoards(all, time.Now()) {
		query := url.Values{"board": {board}, "state": {string(jobs.StateClaimable)}}
		data.advise("Jobs wait on board "+board+", and none is claimed", "Show them", v.dashboard.views.address("jobs")+"?"+query.Encode())
	}
	return nil
}

const (
	// longWait is the time after which the overview reports jobs that wait on a board without
	// claims.
	longWait = time.Minute
	// shownIdle limits the number of these boards in the overview.
	shownIdle = 3
)

// idleBoards finds boards whose jobs have waited long and that have no claimed job: perhaps no conductor
// serves them.
func idleBoards(boards []*v1.Board, now time.Time) (idle []string) {
	for _, board := range boards {
		c := board.GetCounts()
		oldest := c.GetOldestClaimable()
		if oldest != nil && now.Sub(oldest.AsTime()) > longWait && c.GetJobs()[string(jobs.StateClaimed)] == 0 && board.GetPause() == nil && len(idle) < shownIdle {
			idle = append(idle, board.GetName())
		}
	}
	return idle
}

// shownFailures and shownSchedules are the numbers of rows in the overview.
const (
	shownFailures   = 8
	shownSchedules  = 200
	countedFailures = 50 // jobs that it reads to count them
)

// addActivity reads data that requires permission for all boards.
func (v *visit) addActivity(ctx context.Context, data *overviewData) error {
	activity, err := ask(ctx, v.api.cluster.Activity, &v1.ActivityRequest{})
	if err != nil {
		return err
	}
	data.Chart = newChart(activity)
	failed, err := ask(ctx, v.api.board.ListErrors, &v1.ListErrorsRequest{Limit: uint32(v.bound(shownFailures)), Stale: true})
	if err != nil {
		return err
	}
	data.Failures = failed.GetErrors()
	unresolved, err := ask(ctx, v.api.board.ListJobs, &v1.ListJobsRequest{Outcomes: []string{string(jobs.OutcomeFailed)}, Limit: countedFailures, Order: string(jobs.OrderNewest), Stale: true})
	if err != nil {
		return err
	}
	if n := countText(len(unresolved.GetJobs())); n != "0" {
		if unresolved.GetNext() != "" {
			n += " or more"
		}
		data.advise("Failed jobs: "+n+", which are not reverted", "Show them", v.dashboard.views.address("jobs")+"?state=failed")
	}
	planned, err := ask(ctx, v.api.schedules.List, &v1.ListSchedulesRequest{Limit: shownSchedules, Stale: true})
	if err != nil {
		return err
	}
	data.Upcoming = upcoming(planned.GetSchedules())
	return nil
}
