// Package board has the commands about boards.
package board

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

// Command makes the noun of boards.
func Command(p *cli.Program) *cobra.Command {
	return cli.Noun("board", "Manage boards: show, pause, limit",
		listCommand(p), showCommand(p), createCommand(p),
		pauseCommand(p, "pause", "Pause a board: its jobs cannot be claimed until you resume it",
			"Claimed jobs continue, and the board accepts postings. The command is idempotent.", jobs.Boards.PauseBoard),
		pauseCommand(p, "resume", "Resume a paused board", "Its jobs are claimable immediately.", jobs.Boards.ResumeBoard),
		limitCommand(p), ageingCommand(p), deleteCommand(p), waitCommand(p), countCommand(p),
	)
}

// boardVerb makes a command for the board that its argument names. The command then shows the
// board.
func boardVerb(p *cli.Program, use, short, long string, do func(ctx context.Context, boards jobs.Boards, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " BOARD", Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: cobra.ExactArgs(1),
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, args []string) error {
			if err := do(ctx, cluster, args[0]); err != nil {
				return cli.Because(cli.AdviseCreate(err, args[0]), "%s board %s", use, args[0])
			}
			return showBoard(ctx, p, cluster, args[0], func(b *jobs.BoardStatus) string { return " " + openText(p, b) + ", " + limitsText(b.Limits) })
		}),
	}
}

// showBoard reads a board after a change and shows it: as JSON, or in a line.
func showBoard(ctx context.Context, p *cli.Program, cluster jobs.Boards, name string, line func(*jobs.BoardStatus) string) error {
	status, err := cluster.BoardStatus(ctx, name)
	if err != nil {
		return cli.Because(err, "read board %s", name)
	}
	return p.Show(command.BoardToProto(&status), "%s%s", status.Name, line(&status))
}

func openText(p *cli.Program, status *jobs.BoardStatus) string {
	if status.Pause == nil {
		return "open"
	}
	said := "paused since " + p.TimeText(status.Pause.At)
	if status.Pause.By != "" {
		said += " by " + status.Pause.By
	}
	if status.Pause.Reason != "" {
		said += ": " + status.Pause.Reason
	}
	return said
}

// ageingText describes how waiting raises priority; empty if the board never had ageing.
func ageingText(p *cli.Program, ageing jobs.BoardAgeing) string {
	switch {
	case ageing == jobs.BoardAgeing{}:
		return ""
	case ageing.Step == 0:
		return "off since " + p.TimeText(ageing.Since) + "; waiting jobs keep their current priority"
	}
	return "priority +1 for each " + cli.DurationText(ageing.Step) + " of waiting, since " + p.TimeText(ageing.Since)
}

func limitsText(limits jobs.BoardLimits) string {
	var said []string
	for _, limit := range []struct {
		n         uint64
		one, many string
	}{
		{limits.Jobs, "unfinished job", "unfinished jobs"}, {limits.Bytes, "byte of unfinished jobs", "bytes of unfinished jobs"},
		{limits.PostingsPerSecond, "posting per second", "postings per second"},
	} {
		switch limit.n {
		case 0:
		case 1:
			said = append(said, "1 "+limit.one)
		default:
			said = append(said, fmt.Sprintf("%d %s", limit.n, limit.many))
		}
	}
	if len(said) == 0 {
		return "no limits"
	}
	return "at most " + strings.Join(said, ", ")
}

func listCommand(p *cli.Program) *cobra.Command {
	boards := cli.List[jobs.BoardStatus]{
		What:  "boards",
		Whole: true, // a cluster has a limited number of boards
		Read: func(ctx context.Context, cluster cli.Cluster, _ string, _ int) (all []jobs.BoardStatus, _ string, _ error) {
			for board, err := range jobs.AllBoards(ctx, cluster) {
				if err != nil {
					return all, "", err
				}
				all = append(all, board)
			}
			return all, "", nil
		},
		Answer: func(boards []jobs.BoardStatus, _ string) proto.Message {
			return &v1.ListBoardsResponse{Boards: cli.Messages(boards, command.BoardToProto)}
		},
		Header: []string{"board", "state", "claimable", "claimed", "unfinished", "oldest", "posted/min", "finished/min"},
		Row: func(b *jobs.BoardStatus) []string {
			state := "open"
			if b.Pause != nil {
				state = "paused"
			}
			return []string{
				b.Name, state, cli.NumberText(b.Jobs[jobs.StateClaimable]), cli.NumberText(b.Jobs[jobs.StateClaimed]), cli.NumberText(b.Unfinished()),
				cli.OrDash(cli.AgoText(b.OldestClaimable)), cli.NumberText(b.Posted.One), cli.NumberText(b.Finished.One),
			}
		},
	}
	return boards.Command(p, &cobra.Command{Use: "list", Short: "List boards with their jobs and rates"}, nil)
}

func showCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "show BOARD", Short: "Show a board: jobs by state and kind, rates, and claims by owner", Args: cobra.ExactArgs(1),
		RunE: cli.About(p, cli.Name, func(ctx context.Context, cluster cli.Cluster, name string) error {
			status, err := cluster.BoardStatus(ctx, name)
			if err != nil {
				return cli.Because(cli.AdviseCreate(err, name), "get board %s", name)
			}
			if p.JSON() {
				return p.WriteJSON(command.BoardToProto(&status))
			}
			return writeBoard(p, &status)
		}),
	}
}

func writeBoard(p *cli.Program, b *jobs.BoardStatus) error {
	fields := []cli.Field{
		{"board", b.Name}, {"created", p.TimeText(b.CreatedAt)}, {"state", openText(p, b)}, {"limits", limitsText(b.Limits)},
		{"ageing", ageingText(p, b.Ageing)},
		{"jobs", cli.OrDash(cli.StatesText(b.Jobs))}, {"parked jobs", cli.NumberText(b.Parked)}, {"bytes of unfinished jobs", cli.NumberText(b.Bytes)},
		{"oldest claimable", cli.AgoText(b.OldestClaimable)}, {"next due", p.TimeText(b.NextDue)},
		{"posted in 1, 5, 15 min", rateText(b.Posted)}, {"finished in 1, 5, 15 min", rateText(b.Finished)},
	}
	for _, kind := range b.Kinds {
		fields = append(fields, cli.Field{"kind " + cli.Clean(cli.OrDash(kind.Kind)), cli.StatesText(kind.Jobs)})
	}
	for _, holder := range b.Holders {
		fields = append(fields, cli.Field{"held by " + cli.Clean(holder.Owner), fmt.Sprintf("%d, in session %s", holder.Jobs, holder.Session)})
	}
	if b.More {
		fields = append(fields, cli.Field{"more", "the board has more kinds or owners than this list"})
	}
	return p.WriteFields(fields)
}

func rateText(rate jobs.BoardRate) string {
	return fmt.Sprintf("%d, %d, %d", rate.One, rate.Five, rate.Fifteen)
}

func createCommand(p *cli.Program) *cobra.Command {
	return boardVerb(p, "create", "Create a board before the first job is posted to it",
		"Otherwise, the first posted job creates the board. An existing board does not change.",
		func(ctx context.Context, cluster jobs.Boards, name string) error {
			return cluster.CreateBoard(ctx, name)
		})
}

func pauseCommand(p *cli.Program, use, short, long string, do func(jobs.Boards, context.Context, jobs.BoardCommand) error) *cobra.Command {
	var reason string
	cmd := boardVerb(p, use, short, long, func(ctx context.Context, cluster jobs.Boards, name string) error {
		return do(cluster, ctx, jobs.BoardCommand{Board: name, By: cli.OperatorName(), Reason: reason})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason, in one sentence")
	return cmd
}

func limitCommand(p *cli.Program) *cobra.Command {
	var given jobs.BoardLimits
	named := []string{"jobs", "bytes", "postings-per-second"}
	var cmd *cobra.Command
	cmd = boardVerb(p, "limit", "Limit a board; the cluster refuses postings over a limit",
		"Omitted limits do not change; 0 removes a limit. Existing jobs stay, even if they exceed a new limit.",
		func(ctx context.Context, cluster jobs.Boards, name string) error {
			status, err := cluster.BoardStatus(ctx, name)
			if err != nil {
				return err
			}
			limits := status.Limits
			for i, limit := range []struct{ to, from *uint64 }{
				{&limits.Jobs, &given.Jobs}, {&limits.Bytes, &given.Bytes}, {&limits.PostingsPerSecond, &given.PostingsPerSecond},
			} {
				if cmd.Flags().Changed(named[i]) {
					*limit.to = *limit.from
				}
			}
			return cluster.LimitBoard(ctx, name, limits)
		})
	flags := cmd.Flags()
	flags.Uint64Var(&given.Jobs, named[0], 0, "maximum unfinished jobs")
	flags.Uint64Var(&given.Bytes, named[1], 0, "maximum bytes of the postings of unfinished jobs")
	flags.Uint64Var(&given.PostingsPerSecond, named[2], 0, "maximum postings per second, in bursts of one second's worth")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.ContainsFunc(named, flags.Changed) {
			return cli.UsageError(errors.New("name a limit: --jobs, --bytes or --postings-per-second"))
		}
		return nil
	}
	return cmd
}

func deleteCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "delete BOARD", Short: "Delete an empty board, with its limits", Args: cobra.ExactArgs(1),
		Long: "Delete a board with its limits and rates. It must have no jobs, including finished jobs, and no schedules.",
		RunE: cli.About(p, cli.Name, func(ctx context.Context, cluster cli.Cluster, board string) error {
			return cli.Because(cli.AdviseList(cluster.DeleteBoard(ctx, board)), "delete board %s", board)
		}),
	}
}

func ageingCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use: "ageing BOARD DURATION|off", Short: "Raise a waiting job's priority by one step per interval", Args: cobra.ExactArgs(2),
		Long: "Raise the priority of each claimable job by one step per DURATION of waiting, so that jobs of low\n" +
			"priority are claimed too. \"off\" disables ageing; waiting jobs keep their current priority.",
		RunE: func(cmd *cobra.Command, args []string) error {
			step := time.Duration(0)
			if args[1] != "off" {
				var err error
				if step, err = time.ParseDuration(args[1]); err != nil || step == 0 {
					return cli.UsageError(fmt.Errorf("%q is neither \"off\" nor a duration such as 1m", args[1]))
				}
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster cli.Cluster) error {
				if err := cluster.AgeBoard(ctx, args[0], step); err != nil {
					return cli.Because(cli.AdviseCreate(err, args[0]), "set the ageing of board %s", args[0])
				}
				return showBoard(ctx, p, cluster, args[0], func(b *jobs.BoardStatus) string { return ", ageing: " + cli.OrDash(ageingText(p, b.Ageing)) })
			})
		},
	}
}

func countCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "count [BOARD|PREFIX*]…",
		Short: "Count the jobs of several boards by state, with a total",
		Long: "Count jobs by state, with a total, on the named boards, on boards whose names start with PREFIX, or on all\n" +
			"boards.",
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, names []string) error {
			boards, err := namedBoards(ctx, cluster, names)
			if err != nil {
				return cli.Because(cli.AdviseList(err), "count the jobs of boards")
			}
			return writeBoardCounts(p, boards)
		}),
	}
}

// namedBoards reads the boards with the given names or prefixes; all boards if none is given.
func namedBoards(ctx context.Context, cluster jobs.Boards, names []string) (boards []jobs.BoardStatus, _ error) {
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = !strings.HasSuffix(name, "*")
	}
	for board, err := range jobs.AllBoards(ctx, cluster) {
		if err != nil {
			return nil, err
		}
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return access.Covers(name, board.Name) }) {
			boards = append(boards, board)
		}
		missing[board.Name] = false
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			return nil, fmt.Errorf("board %q: %w", name, jobs.ErrNotFound)
		}
	}
	return boards, nil
}

// writeBoardCounts shows how many jobs each board has in each state, and the total. A state in which
// no board has jobs gets no column.
func writeBoardCounts(p *cli.Program, boards []jobs.BoardStatus) error {
	total := jobs.BoardStatus{Name: "total", Jobs: map[jobs.State]uint64{}}
	parts := []cli.Part{}
	for i := range boards {
		for state, n := range boards[i].Jobs {
			total.Jobs[state] += n
		}
		parts = append(parts, cli.Part{Message: command.BoardToProto(&boards[i])})
	}
	if p.JSON() {
		return p.WriteJSON(map[string]any{"boards": parts, "total": map[string]any{"jobs": total.Jobs, "unfinished": total.Unfinished()}})
	}
	header, rows := []string{"board", "unfinished"}, [][]string(nil)
	for _, state := range jobs.States {
		if total.Jobs[state] > 0 {
			header = append(header, string(state))
		}
	}
	for _, board := range append(boards, total) {
		row := []string{board.Name, cli.NumberText(board.Unfinished())}
		for _, state := range header[len(row):] {
			row = append(row, cli.NumberText(board.Jobs[jobs.State(state)]))
		}
		rows = append(rows, row)
	}
	return p.WriteTable(header, rows)
}
