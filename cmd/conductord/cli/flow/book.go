package flow

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// BookCommand makes the noun of books.
func BookCommand(p *cli.Program) *cobra.Command {
	return cli.Noun("book", "Show books and their flows", bookListCommand(p), bookGetCommand(p))
}

func bookListCommand(p *cli.Program) *cobra.Command {
	books := cli.List[logbook.Book]{
		What: "books",
		Read: func(ctx context.Context, cluster cli.Cluster, after string, limit int) ([]logbook.Book, string, error) {
			page, err := cluster.Books(ctx, after, limit)
			return page.Items, page.Next, err
		},
		Answer: func(books []logbook.Book, next string) proto.Message {
			return &v1.ListBooksResponse{Books: cli.Messages(books, command.BookToProto), Next: next}
		},
		Header: []string{"id", "name", "created"},
		Row:    func(b *logbook.Book) []string { return []string{b.ID.String(), b.Name, cli.AgoText(b.CreatedAt)} },
	}
	return books.Command(p, &cobra.Command{Use: "list", Short: "List books, newest first"}, nil)
}

func bookGetCommand(p *cli.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a book with its flows",
		Args:  cobra.ExactArgs(1),
		RunE: cli.Get(p, "book", logbook.ParseBookID, cli.Cluster.Book, func(_ context.Context, _ cli.Cluster, book logbook.Book) error {
			return writeBook(p, book)
		}),
	}
}

func writeBook(p *cli.Program, book logbook.Book) error {
	if p.JSON() {
		return p.WriteJSON(command.BookToProto(&book))
	}
	err := p.WriteFields([]cli.Field{
		{"id", book.ID.String()}, {"name", book.Name}, {"meta", cli.ValuesText(book.Meta)},
		{"created", p.TimeText(book.CreatedAt)}, {"updated", p.TimeText(book.UpdatedAt)},
		{"flows", strconv.Itoa(len(book.Flows))},
	})
	if err != nil || len(book.Flows) == 0 {
		return err
	}
	rows := make([][]string, 0, len(book.Flows))
	for i := range book.Flows {
		flow := &book.Flows[i]
		rows = append(rows, []string{flow.ID.String(), flow.Name, flow.Factory.Name, string(flow.State), cli.AgoText(flow.UpdatedAt)})
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	return p.WriteTable([]string{"flow", "name", "factory", "state", "updated"}, rows)
}
