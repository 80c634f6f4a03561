package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// BookToProto converts a book and its flows; nil stays nil.
func BookToProto(b *logbook.Book) *v1.Book {
	if b == nil {
		return nil
	}
	message := &v1.Book{
		Id:        idText(b.ID.UUID),
		Name:      b.Name,
		Meta:      ValuesToProto(b.Meta),
		CreatedAt: TimeToProto(b.CreatedAt),
		UpdatedAt: TimeToProto(b.UpdatedAt),
		Board:     b.Board,
	}
	for i := range b.Flows {
		message.Flows = append(message.Flows, FlowDetailToProto(&b.Flows[i]))
	}
	return message
}

// BookFromProto converts a book and its flows. Nil is the zero book.
func BookFromProto(message *v1.Book) (logbook.Book, error) {
	var r reader
	b := logbook.Book{
		ID:        logbook.BookID{UUID: r.id("book id", message.GetId())},
		Name:      message.GetName(),
		Meta:      ValuesFromProto(message.GetMeta()),
		CreatedAt: r.time("book created_at", message.GetCreatedAt()),
		UpdatedAt: r.time("book updated_at", message.GetUpdatedAt()),
		Board:     message.GetBoard(),
	}
	for _, flow := range message.GetFlows() {
		converted, err := FlowDetailFromProto(flow)
		b.Flows = append(b.Flows, keep(&r, converted, err))
	}
	if r.err != nil {
		return logbook.Book{}, r.err
	}
	return b, nil
}
