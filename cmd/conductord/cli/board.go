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

	"github.com/conductord/conductord/jobs"
)

func (p *Program) boardCommand() *cobra.Command {
	return Noun("board", "Look after the boards",
		p.boardListCommand(), p.boardShowCommand(), p.boardCreateCommand(), p.boardPauseCommand(), p.boardResumeCommand(),
		p.boardLimitCommand(), p.boardAgeingCommand(), p.boardDeleteCommand(), p.boardWaitCommand(),
	)
}

// boardVerb makes a command for one board, which its argument names, and
// shows the board as it stands afterwards.
func (p *Program) boardVerb(use, short, long string, do func(ctx context.Context, cluster Cluster, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " BOARD", Short: short, Long: strings.TrimSpace(short + ".\n\n" + long), Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := do(ctx, cluster, args[0]); err != nil {
					return because(err, "%s board %s", use, args[0])
				}
				status, err := cluster.BoardStatus(ctx, args[0])
				if err != nil {
					return because(err, "read board %s", args[0])
				}
				if p.JSON() {
					return p.WriteJSON(boardShown(status))
				}
				return p.WriteLines([]string{fmt.Sprintf("%s %s, %s", status.Name, openText(&status), limitsText(status.Limits))})
			})
		},
	}
}

func openText(status *jobs.BoardStatus) string {
	if status.Pause == nil {
		return "open"
	}
	said := "paused since " + timeText(status.Pause.At)
	if status.Pause.By != "" {
		said += " by " + status.Pause.By
	}
	if status.Pause.Reason != "" {
		said += ": " + status.Pause.Reason
	}
	return said
}

// shownBoard is a board as it is given as JSON: with its times as people and the
// API write them, where Go would count nanoseconds.
type shownBoard struct {
	jobs.BoardStatus
	Ageing *shownAgeing `json:"ageing,omitempty"`
}

type shownAgeing struct {
	jobs.BoardAgeing
	Step string `json:"step"`
}

func boardShown(status jobs.BoardStatus) shownBoard {
	shown := shownBoard{BoardStatus: status}
	if status.Ageing != (jobs.BoardAgeing{}) {
		shown.Ageing = &shownAgeing{status.Ageing, status.Ageing.Step.String()}
	}
	return shown
}

// ageingText says how waiting raises priority, and nothing where it never did.
func ageingText(ageing jobs.BoardAgeing) string {
	switch {
	case ageing == jobs.BoardAgeing{}:
		return ""
	case ageing.Step == 0:
		return "off since " + timeText(ageing.Since) + "; what waits keeps what it has reached"
	}
	return "a step of priority for each " + durationText(ageing.Step) + " of waiting, since " + timeText(ageing.Since)
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
	return &cobra.Command{
		Use: "list", Short: "List the boards, and what is on each", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				boards, err := allBoards(ctx, cluster)
				if err != nil {
					return because(err, "list boards")
				}
				return p.writeBoards(boards)
			})
		},
	}
}

// allBoards gathers pages; a cluster keeps a bounded number of boards.
func allBoards(ctx context.Context, cluster Cluster) ([]jobs.BoardStatus, error) {
	all := []jobs.BoardStatus{}
	for board, err := range jobs.AllBoards(ctx, cluster) {
		if err != nil {
			return all, err
		}
		all = append(all, board)
	}
	return all, nil
}

func (p *Program) writeBoards(boards []jobs.BoardStatus) error {
	if p.JSON() {
		shown := make([]shownBoard, 0, len(boards))
		for _, board := range boards {
			shown = append(shown, boardShown(board))
		}
		return p.WriteJSON(shown)
	}
	rows := make([][]string, 0, len(boards))
	for i := range boards {
		b := &boards[i]
		state := "open"
		if b.Pause != nil {
			state = "paused"
		}
		rows = append(rows, []string{
			b.Name, state, numberText(b.Jobs[jobs.StateClaimable]), numberText(b.Jobs[jobs.StateClaimed]), numberText(b.Unfinished()),
			OrDash(ageText(b.OldestClaimable, time.Now())), numberText(b.Posted.One), numberText(b.Finished.One),
		})
	}
	return p.writeTable([]string{"board", "state", "claimable", "claimed", "unfinished", "oldest", "posted/min", "finished/min"}, rows)
}

func numberText(n uint64) string { return strconv.FormatUint(n, 10) }

// ageText is how long ago a moment was, and nothing for no moment.
func ageText(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return durationText(max(now.Sub(since), 0))
}

func (p *Program) boardShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show BOARD", Short: "Show a board: its jobs by state and kind, its rates, and who holds what", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				status, err := cluster.BoardStatus(ctx, args[0])
				if err != nil {
					return because(err, "show board %s", args[0])
				}
				if p.JSON() {
					return p.WriteJSON(boardShown(status))
				}
				return p.writeBoard(&status)
			})
		},
	}
}

func (p *Program) writeBoard(b *jobs.BoardStatus) error {
	fields := []field{
		{"board", b.Name}, {"created", timeText(b.CreatedAt)}, {"state", openText(b)}, {"limits", limitsText(b.Limits)},
		{"ageing", ageingText(b.Ageing)},
		{"jobs", OrDash(statesText(b.Jobs))}, {"parked jobs", numberText(b.Parked)}, {"bytes of unfinished jobs", numberText(b.Bytes)},
		{"claimable for", ageText(b.OldestClaimable, time.Now())}, {"next due", timeText(b.NextDue)},
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
	return p.boardVerb("create", "Make a board before the first job is posted to it",
		"The first job makes it otherwise. A board that exists stays as it is.",
		func(ctx context.Context, cluster Cluster, name string) error { return cluster.CreateBoard(ctx, name) })
}

func (p *Program) boardPauseCommand() *cobra.Command {
	var reason string
	cmd := p.boardVerb("pause", "Keep everybody from claiming jobs of a board, until it is resumed",
		"Jobs that are claimed go on, and postings are accepted. A board that is paused already stays so.",
		func(ctx context.Context, cluster Cluster, name string) error {
			return cluster.PauseBoard(ctx, jobs.BoardOrder{Board: name, By: operatorName(), Reason: reason})
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, in one sentence")
	return cmd
}

func (p *Program) boardResumeCommand() *cobra.Command {
	var reason string
	cmd := p.boardVerb("resume", "End the pause of a board", "Whoever waits for its jobs gets them.",
		func(ctx context.Context, cluster Cluster, name string) error {
			return cluster.ResumeBoard(ctx, jobs.BoardOrder{Board: name, By: operatorName(), Reason: reason})
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, in one sentence")
	return cmd
}

func (p *Program) boardLimitCommand() *cobra.Command {
	var given jobs.BoardLimits
	named := []string{"jobs", "bytes", "postings-per-second"}
	var cmd *cobra.Command
	cmd = p.boardVerb("limit", "Bound a board: what is over a limit is refused when it is posted",
		"A limit that is not named stays as it is; 0 takes it away. Jobs that are over it already stay.",
		func(ctx context.Context, cluster Cluster, name string) error {
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
	flags.Uint64Var(&given.Jobs, named[0], 0, "unfinished jobs")
	flags.Uint64Var(&given.Bytes, named[1], 0, "bytes of the postings of unfinished jobs")
	flags.Uint64Var(&given.PostingsPerSecond, named[2], 0, "postings a second; those of one second may come at once")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.ContainsFunc(named, flags.Changed) {
			return usageError{errors.New("say what is bounded: --jobs, --bytes or --postings-per-second")}
		}
		return nil
	}
	return cmd
}

func (p *Program) boardDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete BOARD", Short: "Forget an empty board, with its limits", Args: cobra.ExactArgs(1),
		Long: "Forget a board with its limits and rates. It must have no jobs, kept finished ones too, and no schedules.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := cluster.DeleteBoard(ctx, args[0]); err != nil {
					return because(err, "delete board %s", args[0])
				}
				return nil
			})
		},
	}
}

func (p *Program) boardAgeingCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ageing BOARD DURATION|off", Short: "Have waiting raise priority: one step for each so long", Args: cobra.ExactArgs(2),
		Long: "Has a job that waits to be claimed count as one step of priority higher for each so long that it has waited,\n" +
			"so that low priorities do not wait for ever. \"off\" ends that: what waits keeps what it has reached.",
		Example: "  conductord board ageing mail 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			step := time.Duration(0)
			if args[1] != "off" {
				var err error
				if step, err = time.ParseDuration(args[1]); err != nil || step == 0 {
					return usageError{fmt.Errorf("%q is neither \"off\" nor a duration such as 1m", args[1])}
				}
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				if err := cluster.AgeBoard(ctx, args[0], step); err != nil {
					return because(err, "have the jobs of board %s age", args[0])
				}
				status, err := cluster.BoardStatus(ctx, args[0])
				if err != nil {
					return because(err, "read board %s", args[0])
				}
				if p.JSON() {
					return p.WriteJSON(boardShown(status))
				}
				return p.WriteLines([]string{status.Name + ", ageing: " + OrDash(ageingText(status.Ageing))})
			})
		},
	}
}
