package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

func (p *Program) bookCommand() *cobra.Command {
	return Noun("book", "Show books and their flows", p.bookListCommand(), p.bookGetCommand())
}

func (p *Program) bookListCommand() *cobra.Command {
	books := list[logbook.Book]{
		what: "books",
		read: func(ctx context.Context, cluster Cluster, after string, limit int) ([]logbook.Book, string, error) {
			page, err := cluster.Books(ctx, after, limit)
			return page.Items, page.Next, err
		},
		answer: func(books []logbook.Book, next string) proto.Message {
			return &v1.ListBooksResponse{Books: messages(books, command.BookToProto), Next: next}
		},
		header: []string{"id", "name", "created"},
		row:    func(b *logbook.Book) []string { return []string{b.ID.String(), b.Name, agoText(b.CreatedAt)} },
	}
	return books.command(p, &cobra.Command{Use: "list", Short: "List books, newest first"}, nil)
}

func (p *Program) bookGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show a book with its flows",
		Args:  cobra.ExactArgs(1),
		RunE: get(p, "book", logbook.ParseBookID, Cluster.Book, func(_ context.Context, _ Cluster, book logbook.Book) error {
			return p.writeBook(book)
		}),
	}
}

func (p *Program) writeBook(book logbook.Book) error {
	if p.JSON() {
		return p.WriteJSON(command.BookToProto(&book))
	}
	err := p.writeFields([]field{
		{"id", book.ID.String()}, {"name", book.Name}, {"meta", valuesText(book.Meta)},
		{"created", p.timeText(book.CreatedAt)}, {"updated", p.timeText(book.UpdatedAt)},
		{"flows", strconv.Itoa(len(book.Flows))},
	})
	if err != nil || len(book.Flows) == 0 {
		return err
	}
	rows := make([][]string, 0, len(book.Flows))
	for i := range book.Flows {
		flow := &book.Flows[i]
		rows = append(rows, []string{flow.ID.String(), flow.Name, flow.Factory.Name, string(flow.State), agoText(flow.UpdatedAt)})
	}
	if err := p.WriteLines([]string{""}); err != nil {
		return err
	}
	return p.WriteTable([]string{"flow", "name", "factory", "state", "updated"}, rows)
}
