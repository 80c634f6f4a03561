package fsmtest

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// SaveBook writes a book and its flows.
func (b *Board) SaveBook(ctx context.Context, book logbook.Book) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_SaveBook{SaveBook: command.BookToProto(&book)}})
	return err
}

// Book reads a book with its flows, without their atoms.
func (b *Board) Book(ctx context.Context, id logbook.BookID) (logbook.Book, error) {
	if err := ctx.Err(); err != nil {
		return logbook.Book{}, err
	}
	return b.machine.Book(id)
}

// Books reads books, the one with the highest id first, without their flows.
func (b *Board) Books(ctx context.Context, after string, limit int) (logbook.Page[logbook.Book], error) {
	if err := ctx.Err(); err != nil {
		return logbook.Page[logbook.Book]{}, err
	}
	return b.machine.Books(after, limit)
}

// FlowDetail reads a flow with its atoms and their attempts.
func (b *Board) FlowDetail(ctx context.Context, id logbook.FlowID) (logbook.FlowDetail, error) {
	if err := ctx.Err(); err != nil {
		return logbook.FlowDetail{}, err
	}
	flow, _, err := b.machine.Flow(id, fsm.Part{MaxBytes: fsm.Unbounded})
	return flow, err
}

// Update applies updates in one entry, each with its own verdict.
func (b *Board) Update(ctx context.Context, updates ...logbook.Update) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	verdicts := make([]error, len(updates))
	var commands []*v1.Command
	var places []int // in verdicts, of the updates that are commands
	for i := range updates {
		c := &v1.Command{Kind: &v1.Command_UpdateFlow{UpdateFlow: command.UpdateToProto(&updates[i])}}
		if verdicts[i] = command.Check(b.options.Limits, c); verdicts[i] == nil {
			commands = append(commands, c)
			places = append(places, i)
		}
	}
	if len(commands) == 0 {
		return verdicts, nil
	}
	results, err := b.propose(commands...)
	if err != nil {
		return nil, err
	}
	for at, result := range results {
		verdicts[places[at]] = command.ErrorFromProto(result.GetError())
	}
	return verdicts, nil
}

// DestroyBook removes a book, its flows and their atoms.
func (b *Board) DestroyBook(ctx context.Context, id logbook.BookID) error {
	_, err := b.run(ctx, &v1.Command{Kind: &v1.Command_DestroyBook{DestroyBook: &v1.DestroyBookCommand{Book: id.String()}}})
	return err
}
