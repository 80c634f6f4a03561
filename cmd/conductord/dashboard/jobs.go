package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

// shownBoards is the maximum number of boards to choose from. See visit.bound.
const shownBoards = 100

// jobsData is the data of the list of jobs.
type jobsData struct {
	Filter  jobFilter
	Boards  []string // that the user may see
	Jobs    []*v1.Job
	More    pager
	Scans   bool
	Actions []operation // that the user may apply to the filtered jobs
	Done    string      // number of jobs that a bulk has just changed; empty: no bulk
}

// jobFilter is the filter in the page's address.
type jobFilter struct {
	Board, Kind, Name, Key, Tag, Error, State, From, To, ID string
	States                                                  []string // the choices; State can have several states, separated by commas
}

// stateChoices are the choices of the filter: states and, for completed jobs, outcomes.
func stateChoices() (choices []string) {
	for _, state := range jobs.States {
		choices = append(choices, string(state))
	}
	for _, outcome := range outcomes {
		choices = append(choices, string(outcome))
	}
	return choices
}

var outcomes = []jobs.Outcome{jobs.OutcomeSuccess, jobs.OutcomeReverted, jobs.OutcomeFailed, jobs.OutcomeCancelled}

// dateForm is the format in which browsers write the value of an input of type datetime-local.
const dateForm = "2006-01-02T15:04"

// jobQuery reads the filter of an address.
func (v *visit) jobQuery() (jobFilter, *v1.ListJobsRequest, error) {
	f := jobFilter{
		Board: v.query("board"), Kind: v.query("kind"), Name: v.query("name"), Key: v.query("key"), Tag: v.query("tag"),
		Error: v.query("error"), State: v.query("state"), From: v.query("from"), To: v.query("to"), ID: v.query("id"), States: stateChoices(),
	}
	q := &v1.ListJobsRequest{
		Board: f.Board, Kind: f.Kind, Name: f.Name, Key: f.Key, ErrorType: f.Error, Order: string(jobs.OrderNewest),
		After: v.query("after"), Limit: v.rows(), Stale: true,
	}
	if f.Tag != "" {
		q.Tags = strings.Fields(strings.ReplaceAll(f.Tag, ",", " "))
	}
	switch {
	case f.State == "":
	case stateIsOutcome(f.State):
		q.Outcomes = []string{f.State}
	default:
		q.States = strings.Split(f.State, ",")
	}
	if len(q.States) > 1 {
		f.States = append(f.States, f.State) // the list keeps the filters of another page
	}
	var err error
	q.PostedFrom, q.PostedTo, err = v.between()
	return f, q, err
}

// between are the times "from" and "to" of a filter; nil: none.
func (v *visit) between() (from, to *timestamppb.Timestamp, err error) {
	if text := v.query("from"); text != "" {
		from, err = parseDate("from", text)
	}
	if text := v.query("to"); text != "" && err == nil {
		to, err = parseDate("to", text)
	}
	return from, to, err
}

// parseDate reads a time in the format of browsers, as UTC.
func parseDate(name, text string) (*timestamppb.Timestamp, error) {
	stamp, err := time.Parse(dateForm, text)
	if err != nil {
		return nil, fmt.Errorf("%w: field %s is %.64q, and must be a time in UTC such as 2026-01-31T18:30", jobs.ErrInvalid, name, text)
	}
	return command.TimeToProto(stamp), nil
}

func stateIsOutcome(word string) bool { return slices.Contains(outcomes, jobs.Outcome(word)) }

// utc is a time of the filter in the form of the command line.
func utc(text string) string {
	if text == "" {
		return ""
	}
	return text + ":00Z"
}

// loadJobs lists jobs, the newest first.
func loadJobs(ctx context.Context, v *visit) (view, error) {
	filter, query, err := v.jobQuery()
	if err != nil {
		return view{}, err
	}
	var data jobsData
	if data.Boards, err = v.boards(ctx); err != nil {
		return view{}, err
	}
	if query.Board, err = v.listedBoard(ctx, query.Board); err != nil {
		return view{}, err
	}
	if data.Boards = most(v, data.Boards, shownBoards); query.Board != "" && !slices.Contains(data.Boards, query.Board) {
		data.Boards = append(data.Boards, query.Board)
	}
	filter.Board = query.Board
	data.Filter = filter
	if filter.ID != "" {
		return view{Title: "Jobs", Command: "conductord job get " + cli.Operand(filter.ID), Data: data}, v.byID(ctx, &data)
	}
	answer, err := ask(ctx, v.api.board.ListJobs, query)
	if err != nil {
		return view{}, err
	}
	data.Jobs, data.Scans, data.More = answer.GetJobs(), answer.GetScans(), v.more(answer.GetNext())
	data.Actions = v.offeredBulk(&filter)
	if done, err := strconv.ParseUint(v.query("done"), 10, 32); err == nil {
		data.Done = countText(done)
	}
	return view{
		Title: "Jobs", Command: "conductord job list" + filter.flags(), Data: data, Watch: &v1.WatchRequest{Board: query.Board},
	}, nil
}

// byID finds the jobs whose ids start with the filter's text.
func (v *visit) byID(ctx context.Context, data *jobsData) error {
	found, err := ask(ctx, v.api.board.FindIDs, &v1.FindIDsRequest{Noun: string(jobs.IDOfJob), Prefix: data.Filter.ID, Stale: true})
	for _, id := range found.GetIds() {
		if len(data.Jobs) == v.bound(pageRows) {
			break
		}
		if got, err := ask(ctx, v.api.board.GetJob, &v1.GetJobRequest{Id: id, Stale: true}); err == nil {
			data.Jobs = append(data.Jobs, got.GetJob())
		}
	}
	return err
}

// flags is the filter as flags of the command line.
func (f *jobFilter) flags() string {
	state, outcome := f.State, ""
	if stateIsOutcome(f.State) {
		state, outcome = "", f.State
	}
	return flags("board", f.Board, "kind", f.Kind, "name", f.Name, "key", f.Key, "tag", f.Tag, "error", f.Error,
		"posted-since", utc(f.From), "posted-until", utc(f.To), "outcome", outcome, "state", state)
}

// flags returns the command-line flags that have a value; its arguments are name, value, name,
// value.
func flags(pairs ...string) (text string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			text += " --" + pairs[i] + " " + cli.Quoted(pairs[i+1])
		}
	}
	return text
}

// boards are the names of the first boards that the user may see.
func (v *visit) boards(ctx context.Context) (names []string, err error) {
	answer, err := ask(ctx, v.api.board.ListBoards, &v1.ListBoardsRequest{Stale: true})
	for _, board := range answer.GetBoards() {
		names = append(names, board.GetName())
	}
	return names, err
}
