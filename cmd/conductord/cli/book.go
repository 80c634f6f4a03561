package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/conductord/conductord/logbook"
)

func (p *Program) bookCommand() *cobra.Command {
	return Noun("book", "Look at the logbook", p.bookListCommand(), p.bookGetCommand())
}

func (p *Program) bookListCommand() *cobra.Command {
	limit := defaultListed
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List books in the order of their ids, which is that of their making",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				books, more, err := listBooks(ctx, cluster, limit)
				if err != nil {
					return because(err, "list books")
				}
				if more {
					p.Note("there may be more: these are the first %d, and --limit 0 lists all", len(books))
				}
				return p.writeBooks(books)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most so many; 0: all")
	return cmd
}

// listBooks gathers pages. A limit of 0 gathers all.
func listBooks(ctx context.Context, connection logbook.Connection, limit int) (books []logbook.Book, more bool, err error) {
	books = []logbook.Book{}
	after := logbook.BookID{}
	for {
		want := logbook.MaxPage
		if limit > 0 {
			want = min(limit-len(books), logbook.MaxPage)
		}
		page, err := connection.Books(ctx, after, want)
		if err != nil {
			return nil, false, err
		}
		books = append(books, page...)
		if len(page) < want {
			return books, false, nil
		}
		if limit > 0 && len(books) >= limit {
			return books, true, nil
		}
		after = page[len(page)-1].ID
	}
}

func (p *Program) writeBooks(books []logbook.Book) error {
	if p.JSON() {
		return p.WriteJSON(books)
	}
	rows := make([][]string, 0, len(books))
	for _, book := range books {
		rows = append(rows, []string{book.ID.String(), book.Name, timeText(book.CreatedAt)})
	}
	return p.writeTable([]string{"id", "name", "created"}, rows)
}

func (p *Program) bookGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a book with its flows",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := logbook.ParseBookID(args[0])
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), func(ctx context.Context, cluster Cluster) error {
				book, err := cluster.Book(ctx, id)
				if err != nil {
					return because(err, "get book %s", id)
				}
				return p.writeBook(book)
			})
		},
	}
}

func (p *Program) writeBook(book logbook.Book) error {
	if p.JSON() {
		return p.WriteJSON(book)
	}
	err := p.writeFields([]field{
		{"id", book.ID.String()}, {"name", book.Name}, {"meta", valuesText(book.Meta)},
		{"created", timeText(book.CreatedAt)}, {"updated", timeText(book.UpdatedAt)},
		{"flows", strconv.Itoa(len(book.Flows))},
	})
	if err != nil || len(book.Flows) == 0 {
		return err
	}
	rows := make([][]string, 0, len(book.Flows))
	for i := range book.Flows {
		flow := &book.Flows[i]
		rows = append(rows, []string{flow.ID.String(), flow.Name, flow.Factory.Name, string(flow.State), timeText(flow.UpdatedAt)})
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	return p.writeTable([]string{"flow", "name", "factory", "state", "updated"}, rows)
}
