package logbook

import (
	"fmt"

	"github.com/google/uuid"
)

// BookID names a book. The caller makes the id, so saving a book again with the same id creates no
// second book.
type BookID struct{ uuid.UUID }

// FlowID names a flow detail, across all books of a cluster. The caller makes the id.
type FlowID struct{ uuid.UUID }

// NewBookID makes a UUID of version 7, which sorts by creation time.
func NewBookID() BookID { return BookID{uuid.Must(uuid.NewV7())} }

// NewFlowID makes a UUID of version 7, which sorts by creation time.
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

// IsZero reports whether the id is unset.
func (id BookID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the id is unset.
func (id FlowID) IsZero() bool { return id.UUID == uuid.Nil }

// ParseID reads a UUID in its canonical text form. ErrInvalid, with the given field. ParseID
// refuses other spellings that package uuid accepts (braces, urn:), because one id must have one
// text.
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
