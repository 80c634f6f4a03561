package logbook

import (
	"fmt"

	"github.com/google/uuid"
)

// BookID identifies a book. The caller makes it, so saving the same book twice is a repeat and
// not a second book.
type BookID struct{ uuid.UUID }

// FlowID identifies a flow detail, across all books of a cluster.
type FlowID struct{ uuid.UUID }

// NewBookID makes an id that sorts by the time it was made (UUID version 7).
func NewBookID() BookID { return BookID{uuid.Must(uuid.NewV7())} }

// NewFlowID makes an id that sorts by the time it was made (UUID version 7).
func NewFlowID() FlowID { return FlowID{uuid.Must(uuid.NewV7())} }

// ParseBookID reads the text form of a book's id.
func ParseBookID(text string) (BookID, error) {
	id, err := ParseID("book id", text)
	return BookID{id}, err
}

// ParseFlowID reads the text form of a flow's id.
func ParseFlowID(text string) (FlowID, error) {
	id, err := ParseID("flow id", text)
	return FlowID{id}, err
}

// IsZero reports whether the id was never set.
func (id BookID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the id was never set.
func (id FlowID) IsZero() bool { return id.UUID == uuid.Nil }

// ParseID reads a UUID in its canonical text form and names the field in the
// error. Other spellings that the uuid package understands (braces, urn:) are
// refused: one id must have one text.
func ParseID(field, text string) (uuid.UUID, error) {
	const canonicalLength = 36
	if len(text) != canonicalLength {
		return uuid.Nil, &InvalidError{Field: field, Reason: fmt.Sprintf("%.64q is not a UUID", text)}
	}
	id, err := uuid.Parse(text)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, &InvalidError{Field: field, Reason: fmt.Sprintf("%q is not a UUID", text)}
	}
	return id, nil
}
