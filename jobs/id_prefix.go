package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// IDNoun is the kind of object that an id names.
type IDNoun string

// The objects that can be found by a part of their id.
const (
	IDOfJob     IDNoun = "job"
	IDOfBook    IDNoun = "book"
	IDOfFlow    IDNoun = "flow"
	IDOfSession IDNoun = "session"
)

// IDNouns are all values of IDNoun.
var IDNouns = []IDNoun{IDOfJob, IDOfBook, IDOfFlow, IDOfSession}

const (
	// MinIDPrefix is the minimum number of digits to find an id by its first digits.
	MinIDPrefix = 4
	// MinIDEnd is the minimum number of digits to find an id by its last digits. Ids of version 7 end
	// with random digits. They start with the time: all jobs of a minute have the same first
	// eight digits.
	MinIDEnd = 8
	// MaxIDMatches limits the ids of one answer. Operators do not compare more.
	MaxIDMatches = 10
)

// IDPrefix is the first or the last digits of an id.
type IDPrefix struct {
	Noun   IDNoun
	Digits string // hexadecimal, in lower case, without dashes
}

// IDMatches are the matching ids: ids that start with the digits, in order, then ids that end
// with the digits.
type IDMatches struct {
	IDs  []uuid.UUID
	More bool // more matches can exist: one call examines a limited number of ids
}

// ParseIDPrefix reads a part of an id, with dashes or without. ErrInvalid.
func ParseIDPrefix(noun IDNoun, text string) (IDPrefix, error) {
	const digits, wholeLength = "0123456789abcdef", 36
	prefix := IDPrefix{Noun: noun, Digits: strings.ToLower(strings.ReplaceAll(text, "-", ""))}
	size := len(prefix.Digits)
	switch {
	case !slices.Contains(IDNouns, noun):
		return prefix, &logbook.InvalidError{Field: "noun", Reason: fmt.Sprintf("%.64q is not one of %v", string(noun), IDNouns)}
	case len(text) > wholeLength, size > 2*len(uuid.UUID{}), size < MinIDPrefix, strings.Trim(prefix.Digits, digits) != "":
		return prefix, &logbook.InvalidError{Field: string(noun) + " id", Reason: fmt.Sprintf(
			"%.64q must be a UUID, or at least its first %d or last %d hexadecimal digits", text, MinIDPrefix, MinIDEnd)}
	}
	return prefix, nil
}
