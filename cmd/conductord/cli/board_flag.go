package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
)

// AdviseCreate names the command that makes a board which there is not.
func AdviseCreate(err error, board string) error {
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	return Advised(err, "the first posting to a board makes it, or `conductord board create "+Operand(board)+"`")
}

// CheckBoards refuses a board in --board that does not exist: a misspelt name would pass for
// an empty board.
func CheckBoards(ctx context.Context, cluster Cluster, cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("board")
	if flag == nil || !flag.Changed {
		return nil
	}
	for _, name := range strings.Split(strings.Trim(flag.Value.String(), "[]"), ",") {
		if _, err := cluster.BoardStatus(ctx, name); !errors.Is(err, jobs.ErrNotFound) {
			continue // it is there, or the command itself says what is wrong
		}
		var known []string
		for board, err := range jobs.AllBoards(ctx, cluster) {
			if err != nil {
				break // a hint less
			}
			known = append(known, board.Name)
		}
		return fmt.Errorf("there is no board %q%s: %w", name, meant.Hint(name, known), jobs.ErrNotFound)
	}
	return nil
}

// noteKind names the kind that was perhaps meant, when no job has the one in --kind.
func (p *Program) noteKind(ctx context.Context, cluster Cluster, cmd *cobra.Command) {
	kind, board := cmd.Flags().Lookup("kind"), cmd.Flags().Lookup("board")
	if kind == nil || board == nil || !kind.Changed {
		return
	}
	name := jobs.DefaultBoard
	if board.Changed {
		name = board.Value.String()
	}
	status, err := cluster.BoardStatus(ctx, name)
	if err != nil {
		return
	}
	var known []string
	for i := range status.Kinds {
		known = append(known, status.Kinds[i].Kind)
	}
	if hint := meant.Hint(kind.Value.String(), known); hint != "" {
		p.Note("nothing is of kind %q%s", kind.Value.String(), hint)
	}
}
