package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/conductord/conductord/internal/meant"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// defaultListed is the default of --limit.
const defaultListed = 100

// List is a command that lists objects.
type List[T any] struct {
	What string // the noun in the plural
	// Read reads a page of at most limit items. The first page is read with "", and next is ""
	// after the last page.
	Read   func(ctx context.Context, cluster Cluster, after string, limit int) (page []T, next string, err error)
	Answer func(things []T, next string) proto.Message // the answer of the API
	Header []string
	Row    func(*T) []string
	Whole  bool // one page contains all items, so there is no limit
}

// Command completes a command. prepare checks the flags before a server is called.
func (l List[T]) Command(p *Program, cmd *cobra.Command, prepare func(args []string) error) *cobra.Command {
	limit, after := defaultListed, ""
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 0 {
			return UsageError(fmt.Errorf("--limit must not be negative: %d", limit))
		}
		if prepare != nil {
			if err := prepare(args); err != nil {
				return err
			}
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
			things, next, err := l.Collect(ctx, cluster, after, limit)
			if err != nil {
				return Because(err, "list %s", l.What)
			}
			if len(things) == 0 {
				if err := CheckBoards(ctx, cluster, cmd); err != nil {
					return err
				}
				p.noteKind(ctx, cluster, cmd)
			}
			if next != "" {
				p.Note("shown: %d; all items: --limit 0; next page: --after %s", len(things), Quoted(next))
			}
			return l.Show(p, things, next)
		})
	}
	if !l.Whole {
		cmd.Flags().IntVar(&limit, "limit", limit, "maximum number of items; 0: all")
		cmd.Flags().StringVar(&after, "after", "", "start after this item: the \"next\" of the previous page")
	}
	return cmd
}

// Collect reads pages until it has limit items, or all items if limit is 0. A page can be empty
// although a cursor follows, so Collect looks for one more item before it reports that there are
// more.
func (l List[T]) Collect(ctx context.Context, cluster Cluster, after string, limit int) (things []T, next string, err error) {
	for {
		want := logbook.MaxPage
		if limit > 0 {
			want = min(max(limit-len(things), 1), logbook.MaxPage)
		}
		page, following, err := l.Read(ctx, cluster, after, want)
		switch {
		case err != nil:
			return nil, "", err
		case next != "" && len(page) > 0:
			return things, next, nil
		}
		things = append(things, page...)
		if following == "" {
			return things, "", nil
		}
		if after = following; next == "" && len(things) == limit {
			next = following
		}
	}
}

// Show writes items as a table, or as JSON with the cursor of the next page.
func (l List[T]) Show(p *Program, things []T, next string) error {
	if p.JSON() {
		return p.WriteJSON(l.Answer(things, next))
	}
	rows := make([][]string, 0, len(things))
	for i := range things {
		rows = append(rows, l.Row(&things[i]))
	}
	return p.WriteTable(l.Header, rows)
}

// Messages converts each of many things.
func Messages[T any, M proto.Message](things []T, convert func(*T) M) []M {
	converted := make([]M, 0, len(things))
	for i := range things {
		converted = append(converted, convert(&things[i]))
	}
	return converted
}

// Ask makes the action of a command that needs a cluster and its arguments, but no checked flags.
func (p *Program) Ask(do func(ctx context.Context, cluster Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error { return do(ctx, cluster, args) })
	}
}

// About makes the action of a command about one object, which its first argument names.
func About[ID any](p *Program, parse func(string) (ID, error), do func(context.Context, Cluster, ID) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := parse(args[0])
		if err != nil {
			return err
		}
		return p.With(cmd.Context(), func(ctx context.Context, cluster Cluster) error { return do(ctx, cluster, id) })
	}
}

// Get makes the action of a command that reads and shows one object. what is its noun, such as
// "job".
func Get[ID, T any](p *Program, what string, parse func(string) (ID, error), read func(Cluster, context.Context, ID) (T, error), show func(context.Context, Cluster, T) error) func(*cobra.Command, []string) error {
	return About(p, parse, func(ctx context.Context, cluster Cluster, id ID) error {
		thing, err := read(cluster, ctx, id)
		if err != nil {
			return Because(err, "get %s %v", what, id)
		}
		return show(ctx, cluster, thing)
	})
}

// Name accepts any argument as a name; the server checks it.
func Name(text string) (string, error) { return text, nil }

// AdviseCreate adds the command that creates a missing board.
func AdviseCreate(err error, board string) error {
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	return Advised(err, "the first posting creates a board, or run `conductord board create "+Operand(board)+"`")
}

// AdviseList adds the command that lists the boards, if a board is missing.
func AdviseList(err error) error {
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	return Advised(err, "`conductord board list` lists the boards")
}

// CheckBoards refuses a board in --board that does not exist. Otherwise a misspelt name would look
// like an empty board.
func CheckBoards(ctx context.Context, cluster jobs.Boards, cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("board")
	if flag == nil || !flag.Changed {
		return nil
	}
	for _, name := range strings.Split(strings.Trim(flag.Value.String(), "[]"), ",") {
		if _, err := cluster.BoardStatus(ctx, name); !errors.Is(err, jobs.ErrNotFound) {
			continue // the board exists, or the command itself reports the error
		}
		var known []string
		for board, err := range jobs.AllBoards(ctx, cluster) {
			if err != nil {
				break // only the hint is missing
			}
			known = append(known, board.Name)
		}
		return AdviseList(fmt.Errorf("there is no board %q%s: %w", name, meant.Hint(name, known), jobs.ErrNotFound))
	}
	return nil
}

// noteKind suggests a similar kind if no job has the kind in --kind.
func (p *Program) noteKind(ctx context.Context, cluster jobs.Boards, cmd *cobra.Command) {
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
		p.Note("no job or conductor has the kind %q%s", kind.Value.String(), hint)
	}
}
