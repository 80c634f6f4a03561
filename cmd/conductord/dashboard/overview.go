package dashboard

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// overviewData is what the overview shows.
type overviewData struct {
	Status   *v1.StatusResponse
	Advice   []advice // what needs a person
	Nodes    []nodeData
	States   []stateCount // of all jobs that the person may see
	Boards   []*v1.Board
	More     bool // there are more boards than one page of them
	Rate     rates
	Chart    *chart // nil: the person may not see all boards
	Failures []*v1.JobError
	Waiting  *v1.Board // that whose oldest claimable job waits longest; nil: none waits
	Upcoming []*v1.Schedule
}

// advice is a line at the top: what needs a person, and where to go.
type advice struct{ Text, Link, Address string }

// stateCount is how many jobs are in a state.
type stateCount struct {
	State badge
	Name  string
	Count uint64
}

// rates are how many jobs were posted and have ended in the last minute and the last five.
type rates struct{ Posted1, Posted5, Finished1, Finished5 uint64 }

// nodeData is a node as a row.
type nodeData struct {
	Member *v1.Member
	Status *v1.StatusResponse // nil: it does not answer
	Error  string
	Leader bool
	Lag    uint64 // entries that it has to apply
	Clock  string // empty: its clock is right
	Backup string
	// Started is rounded: nodes work it out anew for each answer, and it differs by a little.
	Started time.Time
}

// statusTime bounds the question to a node: one that is down must not hold up the page.
const statusTime = time.Second

// Bounds of what needs a person.
const (
	clockTolerance = 500 * time.Millisecond
	lagTolerance   = 1_000
	backupMissed   = 25 * time.Hour
)

// loadOverview shows how the cluster is, and what needs a person.
func loadOverview(ctx context.Context, v *visit) (view, error) {
	status, err := ask(ctx, v.api.cluster.Status, &v1.StatusRequest{})
	if err != nil {
		return view{}, err
	}
	data := overviewData{Status: status}
	v.addNodes(ctx, &data)
	if err := v.addBoards(ctx, &data); err != nil {
		return view{}, err
	}
	if v.may(command.Read, access.AllBoards) {
		if err := v.addActivity(ctx, &data); err != nil {
			return view{}, err
		}
	}
	v.advise(&data)
	return view{Title: "Overview", Command: "conductord cluster status", Data: data, Watch: &v1.WatchRequest{}}, nil
}

// addNodes asks all members for their status, at the same time.
func (v *visit) addNodes(ctx context.Context, data *overviewData) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	members := data.Status.GetMembers()
	data.Nodes = make([]nodeData, len(members))
	answered := make(chan int, len(members)) // never blocks: each question sends once
	for i, member := range members {
		go func() { // ends with ctx
			defer func() { answered <- i }()
			n := &data.Nodes[i]
			n.Member, n.Leader = member, member.GetName() == data.Status.GetLeader()
			if member.GetName() == data.Status.GetNode() {
				n.Status = data.Status
				return
			}
			calls := newAPI(&v.board.options, v.request)
			status, err := ask(ctx, calls.cluster.Status, &v1.StatusRequest{Node: member.GetName()})
			if n.Status = status; err != nil {
				n.Error = "no answer"
			}
		}()
	}
	for range members {
		<-answered
	}
	var latest uint64
	for i := range data.Nodes {
		latest = max(latest, data.Nodes[i].Status.GetCommitIndex())
	}
	for i := range data.Nodes {
		data.Nodes[i].judge(latest)
	}
}

// judge sets what the page shows of a node that answers. It leaves out small differences, because
// they change all the time and mean nothing.
func (n *nodeData) judge(latest uint64) {
	if n.Status == nil {
		return
	}
	n.Started = n.Status.GetStartedAt().AsTime().Round(time.Minute)
	if lag := latest - min(latest, n.Status.GetAppliedIndex()); lag >= lagTolerance {
		n.Lag = lag / lagTolerance * lagTolerance
	}
	if offset := n.Status.GetClockOffset().AsDuration(); offset.Abs() > clockTolerance {
		n.Clock = fmt.Sprintf("%+.1f s", offset.Seconds())
	}
	if n.Status.GetBackupAge() != nil {
		n.Backup = durationText(n.Status.GetBackupAge().AsDuration().Truncate(time.Minute))
	}
}

// addBoards counts the jobs of the boards that the person may see.
func (v *visit) addBoards(ctx context.Context, data *overviewData) error {
	boards, err := ask(ctx, v.api.board.ListBoards, &v1.ListBoardsRequest{Stale: true})
	if err != nil {
		return err
	}
	data.Boards, data.More = boards.GetBoards(), boards.GetNext() != ""
	counts := make(map[string]uint64)
	for _, board := range data.Boards {
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
	for _, state := range jobs.States {
		data.States = append(data.States, stateCount{stateOf(string(state)), string(state), counts[string(state)]})
	}
	if n := counts[parked]; n > 0 {
		data.advise("Parked jobs, which wait for a person: "+countText(n), "Show held jobs", v.board.views.address("jobs")+"?state=held")
	}
	if n := counts[string(jobs.StateTrashed)]; n > 0 {
		data.advise("Trashed jobs, which no conductor could do: "+countText(n), "Show them", v.board.views.address("jobs")+"?state=trashed")
	}
	return nil
}

// shownFailures and shownSchedules are how many the overview shows.
const (
	shownFailures  = 8
	shownSchedules = 200
	shownUpcoming  = 5
)

// addActivity reads what only a person who may see all boards can see.
func (v *visit) addActivity(ctx context.Context, data *overviewData) error {
	activity, err := ask(ctx, v.api.cluster.Activity, &v1.ActivityRequest{})
	if err != nil {
		return err
	}
	data.Chart = newChart(activity)
	failed, err := ask(ctx, v.api.board.ListErrors, &v1.ListErrorsRequest{Limit: shownFailures, Stale: true})
	if err != nil {
		return err
	}
	data.Failures = failed.GetErrors()
	unresolved, err := ask(ctx, v.api.board.ListJobs, &v1.ListJobsRequest{Outcomes: []string{string(jobs.OutcomeFailed)}, Limit: 1, Order: string(jobs.OrderNewest), Stale: true})
	if err != nil {
		return err
	}
	if len(unresolved.GetJobs()) > 0 {
		data.advise("Flows have failed and could not be undone", "Show them", v.board.views.address("jobs")+"?state=failed")
	}
	planned, err := ask(ctx, v.api.schedules.List, &v1.ListSchedulesRequest{Limit: shownSchedules, Stale: true})
	if err != nil {
		return err
	}
	data.Upcoming = upcoming(planned.GetSchedules())
	return nil
}

func (d *overviewData) advise(text, link, address string) {
	d.Advice = append(d.Advice, advice{text, link, address})
}

// advise finds what needs a person about the nodes. It stands before what the boards need.
func (v *visit) advise(data *overviewData) {
	jobs := data.Advice
	data.Advice = nil
	silent, voters := 0, 0
	for i := range data.Nodes {
		n := &data.Nodes[i]
		if n.Member.GetVoter() {
			voters++
		}
		switch name := n.Member.GetName(); {
		case n.Status == nil:
			if n.Member.GetVoter() {
				silent++
			}
			data.advise(fmt.Sprintf("Node %s does not answer", name), "Show the nodes", "#nodes")
		case n.Status.GetDiskShort():
			data.advise(fmt.Sprintf("The disk of node %s is short of space: nothing new is accepted", name), "Show the nodes", "#nodes")
		case n.Clock != "":
			data.advise(fmt.Sprintf("The clock of node %s is off by %s", name, n.Clock), "Show the nodes", "#nodes")
		case n.Status.GetMembersDiffer() != "":
			data.advise(fmt.Sprintf("The file of node %s lists other members: %s", name, n.Status.GetMembersDiffer()), "Show the nodes", "#nodes")
		case n.Status.GetBackupAge().AsDuration() > backupMissed:
			data.advise(fmt.Sprintf("Node %s has made no backup for %s", name, n.Backup), "Show the nodes", "#nodes")
		}
	}
	if data.Status.GetLeader() == "" {
		data.Advice = append([]advice{{"The cluster has no leader: a majority of its nodes must run", "Show the nodes", "#nodes"}}, data.Advice...)
	} else if silent > 0 && voters-silent == voters/2+1 {
		data.advise("No other node may fail: just a majority answers", "Show the nodes", "#nodes")
	}
	data.Advice = append(data.Advice, jobs...)
}
