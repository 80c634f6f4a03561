package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
)

func (p *Program) boardCommand() *cobra.Command {
	return Noun("board", "Manage boards: show, pause, limit",
		p.boardListCommand(), p.boardShowCommand(), p.boardCreateCommand(),
		p.boardPauseCommand("pause", "Pause a board: its jobs cannot be claimed until you resume it",
			"Claimed jobs continue, and the board accepts postings. The command is idempotent.", Cluster.PauseBoard),
		p.boardPauseCommand("resume", "Resume a paused board", "Its jobs are claimable immediately.", Cluster.ResumeBoard),
		p.boardLimitCommand(), p.boardAgeingCommand(), p.boardDeleteCommand(), p.boardWaitCommand(), p.boardCountCommand(),
	)
}

// boardVerb makes a command for one board, which its argument names, and
// shows the board as it stands afterwards.
func (p *Program) boardVerb(use, short, long string, do func(ctx context.Context, cluster Cluster, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " BOARD", Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: cobra.ExactArgs(1),
		RunE: p.ask(func(ctx context.Context, cluster Cluster, args []string) error {
			if err := do(ctx, cluster, args[0]); err != nil {
				return because(err, "%s board %s", use, args[0])
			}
			return p.showBoard(ctx, cluster, args[0], func(b *jobs.BoardStatus) string { return " " + p.openText(b) + ", " + limitsText(b.Limits) })
		}),
	}
}

// showBoard reads a board after a change and shows it: as JSON, or in a line.
func (p *Program) showBoard(ctx context.Context, cluster Cluster, name string, line func(*jobs.BoardStatus) string) error {
	status, err := cluster.BoardStatus(ctx, name)
	if err != nil {
		return because(err, "read board %s", name)
	}
	return p.Show(command.BoardToProto(&status), "%s%s", status.Name, line(&status))
}

func (p *Program) openText(status *jobs.BoardStatus) string {
	if status.Pause == nil {
		return "open"
	}
	said := "paused since " + p.timeText(status.Pause.At)
	if status.Pause.By != "" {
		said += " by " + status.Pause.By
	}
	if status.Pause.Reason != "" {
		said += ": " + status.Pause.Reason
	}
	return said
}

// ageingText says how waiting raises priority, and nothing where it never did.
func (p *Program) ageingText(ageing jobs.BoardAgeing) string {
	switch {
	case ageing == jobs.BoardAgeing{}:
		return ""
	case ageing.Step == 0:
		return "off since " + p.timeText(ageing.Since) + "; what waits keeps what it has reached"
	}
	return "a step of priority for each " + durationText(ageing.Step) + " of waiting, since " + p.timeText(ageing.Since)
}

func limitsText(limits jobs.BoardLimits) string {
	var said []string
	for _, limit := range []struct {
		n    uint64
		what string
	}{
		{limits.Jobs, "unfinished jobs"}, {limits.Bytes, "bytes of them"}, {limits.PostingsPerSecond, "postings a second"},
	} {
		if limit.n > 0 {
			said = append(said, fmt.Sprintf("%d %s", limit.n, limit.what))
		}
	}
	if len(said) == 0 {
		return "no limits"
	}
	return "at most " + strings.Join(said, ", ")
}

func (p *Program) boardListCommand() *cobra.Command {
	boards := list[jobs.BoardStatus]{
		what:  "boards",
		whole: true, // a cluster keeps a bounded number of boards
		read: func(ctx context.Context, cluster Cluster, _ string, _ int) (all []jobs.BoardStatus, _ string, _ error) {
			for board, err := range jobs.AllBoards(ctx, cluster) {
				if err != nil {
					return all, "", err
				}
				all = append(all, board)
			}
			return all, "", nil
		},
		answer: func(boards []jobs.BoardStatus, _ string) proto.Message {
			return &v1.ListBoardsResponse{Boards: messages(boards, command.BoardToProto)}
		},
		header: []string{"board", "state", "claimable", "claimed", "unfinished", "oldest", "posted/min", "finished/min"},
		row: func(b *jobs.BoardStatus) []string {
			state := "open"
			if b.Pause != nil {
				state = "paused"
			}
			return []string{
				b.Name, state, numberText(b.Jobs[jobs.StateClaimable]), numberText(b.Jobs[jobs.StateClaimed]), numberText(b.Unfinished()),
				OrDash(agoText(b.OldestClaimable)), numberText(b.Posted.One), numberText(b.Finished.One),
			}
		},
	}
	return boards.command(p, &cobra.Command{Use: "list", Short: "List boards with their jobs and rates"}, nil)
}

func numberText(n uint64) string { return strconv.FormatUint(n, 10) }

func (p *Program) boardShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show BOARD", Short: "Show a board: jobs by state and kind, rates, and claims by owner", Args: cobra.ExactArgs(1),
		RunE: get(p, "board", name, boardStatus, func(_ context.Context, _ Cluster, status jobs.BoardStatus) error {
			if p.JSON() {
				return p.WriteJSON(command.BoardToProto(&status))
			}
			return p.writeBoard(&status)
		}),
	}
}

// boardStatus reads a board, and says how one is made.
func boardStatus(cluster Cluster, ctx context.Context, name string) (jobs.BoardStatus, error) {
	status, err := cluster.BoardStatus(ctx, name)
	return status, adviseCreate(err, name)
}

// adviseCreate names the command that makes a board which there is not.
func adviseCreate(err error, board string) error {
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	return advisedError{err, "the first posting to a board makes it, or `conductord board create " + Operand(board) + "`"}
}

func (p *Program) writeBoard(b *jobs.BoardStatus) error {
	fields := []field{
		{"board", b.Name}, {"created", p.timeText(b.CreatedAt)}, {"state", p.openText(b)}, {"limits", limitsText(b.Limits)},
		{"ageing", p.ageingText(b.Ageing)},
		{"jobs", OrDash(statesText(b.Jobs))}, {"parked jobs", numberText(b.Parked)}, {"bytes of unfinished jobs", numberText(b.Bytes)},
		{"oldest claimable", agoText(b.OldestClaimable)}, {"next due", p.timeText(b.NextDue)},
		{"posted in 1, 5, 15 min", rateText(b.Posted)}, {"finished in 1, 5, 15 min", rateText(b.Finished)},
	}
	for _, kind := range b.Kinds {
		fields = append(fields, field{"kind " + Clean(OrDash(kind.Kind)), statesText(kind.Jobs)})
	}
	for _, holder := range b.Holders {
		fields = append(fields, field{"held by " + Clean(holder.Owner), fmt.Sprintf("%d, in session %s", holder.Jobs, holder.Session)})
	}
	if b.More {
		fields = append(fields, field{"more", "there are more kinds or holders than are listed"})
	}
	return p.writeFields(fields)
}

func rateText(rate jobs.BoardRate) string {
	return fmt.Sprintf("%d, %d, %d", rate.One, rate.Five, rate.Fifteen)
}

// statesText are the jobs by state, in the order of a job's life.
func statesText(counts map[jobs.State]uint64) string {
	var said []string
	for _, state := range jobs.States {
		if n := counts[state]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(said, ", ")
}

func (p *Program) boardCreateCommand() *cobra.Command {
	return p.boardVerb("create", "Create a board before the first job is posted to it",
		"Otherwise, the first posted job creates the board. An existing board does not change.",
		func(ctx context.Context, cluster Cluster, name string) error { return cluster.CreateBoard(ctx, name) })
}

func (p *Program) boardPauseCommand(use, short, long string, do func(Cluster, context.Context, jobs.BoardCommand) error) *cobra.Command {
	var reason string
	cmd := p.boardVerb(use, short, long, func(ctx context.Context, cluster Cluster, name string) error {
		return do(cluster, ctx, jobs.BoardCommand{Board: name, By: operatorName(), Reason: reason})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason, in one sentence")
	return cmd
}

func (p *Program) boardLimitCommand() *cobra.Command {
	var given jobs.BoardLimits
	named := []string{"jobs", "bytes", "postings-per-second"}
	var cmd *cobra.Command
	cmd = p.boardVerb("limit", "Limit a board; the cluster refuses postings over a limit",
		"Omitted limits do not change; 0 removes a limit. Existing jobs over a new limit stay.",
		func(ctx context.Context, cluster Cluster, name string) error {
			status, err := cluster.BoardStatus(ctx, name)
			if err != nil {
				return adviseCreate(err, name)
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
	flags.Uint64Var(&given.Jobs, named[0], 0, "unfinished jobs")
	flags.Uint64Var(&given.Bytes, named[1], 0, "maximum bytes of the postings of unfinished jobs")
	flags.Uint64Var(&given.PostingsPerSecond, named[2], 0, "maximum postings per second, in bursts of one second's worth")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.ContainsFunc(named, flags.Changed) {
			return usageError{errors.New("name a limit: --jobs, --bytes or --postings-per-second")}
		}
		return nil
	}
	return cmd
}

func (p *Program) boardDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete BOARD", Short: "Delete an empty board, with its limits", Args: cobra.ExactArgs(1),
		Long: "Delete a board with its limits and rates. It must have no jobs, including finished jobs, and no schedules.",
		RunE: about(p, name, func(ctx context.Context, cluster Cluster, board string) error {
			return because(cluster.DeleteBoard(ctx, board), "delete board %s", board)
		}),
	}
}

func (p *Program) boardAgeingCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ageing BOARD DURATION|off", Short: "Raise a waiting job's priority by one step per interval", Args: cobra.ExactArgs(2),
		Long: "Raise the priority of each claimable job by one step per DURATION of waiting, so that low priorities make\n" +
			"progress. \"off\" disables ageing; waiting jobs keep their current priority.",
		RunE: func(cmd *cobra.Command, args []string) error {
			step := time.Duration(0)
			if args[1] != "off" {
				var err error
				if step, err = time.ParseDuration(args[1]); err != nil || step == 0 {
					return usageError{fmt.Errorf("%q is neither \"off\" nor a duration such as 1m", args[1])}
				}
			}
			return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := cluster.AgeBoard(ctx, args[0], step); err != nil {
					return because(err, "have the jobs of board %s age", args[0])
				}
				return p.showBoard(ctx, cluster, args[0], func(b *jobs.BoardStatus) string { return ", ageing: " + OrDash(p.ageingText(b.Ageing)) })
			})
		},
	}
}
