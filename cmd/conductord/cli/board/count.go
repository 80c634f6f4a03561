package board

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/access"
)

func countCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "count [BOARD|PREFIX*]…",
		Short: "Count the jobs of several boards by state, with a total",
		Long: "Count jobs by state, with a total, on the named boards, on boards whose names start with PREFIX, or on all\n" +
			"boards.",
		RunE: p.Ask(func(ctx context.Context, cluster cli.Cluster, names []string) error {
			boards, err := namedBoards(ctx, cluster, names)
			if err != nil {
				return cli.Because(err, "count the jobs of boards")
			}
			return writeBoardCounts(p, boards)
		}),
	}
}

// namedBoards reads the boards that are named, by name or prefix; all if none is named.
func namedBoards(ctx context.Context, cluster cli.Cluster, names []string) (boards []jobs.BoardStatus, _ error) {
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
