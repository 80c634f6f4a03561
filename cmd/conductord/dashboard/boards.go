package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// boardsData is the data of the list of boards.
type boardsData struct {
	Boards []*v1.Board
	More   pager
}

// loadBoards lists the boards that the user may see, by name.
func loadBoards(ctx context.Context, v *visit) (view, error) {
	answer, err := ask(ctx, v.api.board.ListBoards, &v1.ListBoardsRequest{After: v.query("after"), Limit: v.rows(), Stale: true})
	data := boardsData{answer.GetBoards(), v.more(answer.GetNext())}
	return view{Title: "Boards", Command: "conductord board list", Data: data, Watch: &v1.WatchRequest{}}, err
}

// boardData is the data of the page of a board.
type boardData struct {
	Board      *v1.Board
	States     []stateCount
	Kinds      []kindCount
	Holders    []*v1.BoardHolder
	More       bool        // there are more kinds or holders
	Quotas     []*v1.Quota // the quotas that cover the board, from their first page
	Operations []operation
}

// kindCount is the number of jobs of a kind in each state, in the order of jobs.States.
type kindCount struct {
	Kind   string
	Counts []stateCount
}

// stateCount is the number of jobs in a state.
type stateCount struct {
	State badge
	Name  string
	Count uint64
}

func countStates(counts map[string]uint64) (all []stateCount) {
	for _, state := range jobs.States {
		all = append(all, stateCount{stateOf(string(state)), string(state), counts[string(state)]})
	}
	return all
}

// loadBoard loads the page of a board.
func loadBoard(ctx context.Context, v *visit) (view, error) {
	name := v.part("name")
	answer, err := ask(ctx, v.api.board.GetBoard, &v1.GetBoardRequest{Board: name, Stale: true})
	page := view{Title: "Board " + name, Command: "conductord board show " + cli.Operand(name), Watch: &v1.WatchRequest{Board: name}}
	if errors.Is(err, jobs.ErrNotFound) { // the first job creates the board; schedules may come before
		planned, _ := ask(ctx, v.api.schedules.List, &v1.ListSchedulesRequest{Board: name, Limit: 1, Stale: true})
		if len(planned.GetSchedules()) > 0 {
			page.Data = boardData{Board: &v1.Board{Name: name, Counts: &v1.BoardCounts{}}, States: countStates(nil)}
			return page, nil
		}
	}
	if err != nil {
		return view{}, err
	}
	data := boardData{Board: answer.GetBoard(), States: countStates(answer.GetBoard().GetCounts().GetJobs())}
	counts := data.Board.GetCounts()
	data.Holders = most(v, counts.GetHolders(), jobs.MaxBoardRows)
	kinds := most(v, counts.GetKinds(), jobs.MaxBoardRows)
	data.More = counts.GetMore() || len(data.Holders) < len(counts.GetHolders()) || len(kinds) < len(counts.GetKinds())
	for _, kind := range kinds {
		data.Kinds = append(data.Kinds, kindCount{kind.GetKind(), countStates(kind.GetJobs())})
	}
	if v.may(command.Read, access.AllBoards) {
		quotas, err := ask(ctx, v.api.access.ListQuotas, &v1.ListQuotasRequest{Stale: true})
		if err != nil {
			return view{}, err
		}
		for _, quota := range quotas.GetQuotas() {
			if quota.GetBoards() != "" && access.Covers(quota.GetBoards(), name) && len(data.Quotas) < v.bound(pageRows) {
				data.Quotas = append(data.Quotas, quota)
			}
		}
	}
	data.Operations = v.offered(boardOperations(name, data.Board), name, "boards", name)
	page.Data = data
	return page, nil
}

// boardOperations is the table of operations on a board; of is nil when an operation is performed.
func boardOperations(name string, of *v1.Board) []operation {
	limits, operand, number := of.GetLimits(), cli.Operand(name), strconv.FormatUint
	jobsThere := uint64(0)
	for _, n := range of.GetCounts().GetJobs() {
		jobsThere += n
	}
	ageing := ""
	if step := of.GetAgeing().GetStep(); step != nil {
		ageing = duration.Text(step.AsDuration())
	}
	onBoard := func(call func(*api) boardCall, next string) func(context.Context, *visit) (string, error) {
		return func(ctx context.Context, v *visit) (string, error) {
			_, err := ask(ctx, call(v.api), &v1.BoardCommand{Board: name, By: dashboardName, Reason: v.form("reason")})
			return next, err
		}
	}
	shown := addressBelow("boards", name)
	return []operation{
		{
			Verb: "pause", Text: "Pause", Command: "conductord board pause " + operand, Help: "Jobs cannot be claimed. Running jobs continue, and the board accepts postings.", Inputs: []input{why},
			permission: command.Operate, unfit: of.GetPause() != nil, do: onBoard(func(a *api) boardCall { return a.board.PauseBoard }, shown),
		},
		{
			Verb: "resume", Text: "Resume", Command: "conductord board resume " + operand, Help: "Jobs can be claimed again.", Inputs: []input{why},
			permission: command.Operate, unfit: of.GetPause() == nil, do: onBoard(func(a *api) boardCall { return a.board.ResumeBoard }, shown),
		},
		{
			Verb: "ageing", Text: "Set ageing", Command: "conductord board ageing " + operand + " DURATION", Help: "Raise a waiting job's priority by one step per interval.",
			Inputs:     []input{{Name: "step", Label: "Interval, such as 1m; empty: off", Value: ageing}},
			permission: command.Operate, do: func(ctx context.Context, v *visit) (string, error) { return shown, v.ageBoard(ctx, name) },
		},
		{
			Verb: "limit", Text: "Set limits", Command: "conductord board limit --jobs N " + operand, Help: "The board refuses postings over a limit. 0: unlimited.",
			Inputs: []input{
				{Name: "jobs", Label: "Unfinished jobs", Kind: "number", Value: number(limits.GetJobs(), 10)},
				{Name: "bytes", Label: "Bytes of unfinished jobs", Kind: "number", Value: number(limits.GetBytes(), 10)},
				{Name: "rate", Label: "Postings per second", Kind: "number", Value: number(limits.GetPostingsPerSecond(), 10)},
			},
			permission: command.Administer, do: func(ctx context.Context, v *visit) (string, error) { return shown, v.limitBoard(ctx, name) },
		},
		{
			Verb: "delete", Text: "Delete", Command: "conductord board delete " + operand, Help: "Remove the board and its limits. Fails if the board has schedules.", Danger: true,
			permission: command.Administer, unfit: jobsThere > 0, do: onBoard(func(a *api) boardCall { return a.board.DeleteBoard }, "boards"),
		},
	}
}

// boardCall is a call of the API about one board.
type boardCall func(context.Context, *connect.Request[v1.BoardCommand]) (*connect.Response[v1.Done], error)

func (v *visit) ageBoard(ctx context.Context, name string) error {
	var step time.Duration
	if text := v.form("step"); text != "" {
		var err error
		if step, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%w: field step is %.64q, and must be a duration such as 1m, or empty", jobs.ErrInvalid, text)
		}
	}
	_, err := ask(ctx, v.api.board.AgeBoard, &v1.AgeBoardCommand{Board: name, Step: command.DurationToProto(step)})
	return err
}

func (v *visit) limitBoard(ctx context.Context, name string) error {
	limits := &v1.BoardLimits{}
	for field, to := range map[string]*uint64{"jobs": &limits.Jobs, "bytes": &limits.Bytes, "rate": &limits.PostingsPerSecond} {
		text, err := v.form(field), error(nil)
		if text == "" {
			continue
		}
		if *to, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("%w: field %s is %.64q, and must be a whole number; 0 is no limit", jobs.ErrInvalid, field, text)
		}
	}
	_, err := ask(ctx, v.api.board.LimitBoard, &v1.LimitBoardCommand{Board: name, Limits: limits})
	return err
}
