package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// IDNoun says what an id is of.
type IDNoun string

// What can be found by the beginning of its id.
const (
	IDOfJob     IDNoun = "job"
	IDOfBook    IDNoun = "book"
	IDOfFlow    IDNoun = "flow"
	IDOfSession IDNoun = "session"
)

// IDNouns are all of them.
var IDNouns = []IDNoun{IDOfJob, IDOfBook, IDOfFlow, IDOfSession}

const (
	// MinIDPrefix is how many digits the beginning of an id has at least.
	MinIDPrefix = 4
	// MaxIDMatches bounds the ids of one answer: a person compares no more.
	MaxIDMatches = 10
)

// IDPrefix is the beginning of an id.
type IDPrefix struct {
	Noun   IDNoun
	Digits string // hexadecimal, in lower case, without dashes
}

// IDMatches are ids with a prefix, in order.
type IDMatches struct {
	IDs  []uuid.UUID
	More bool // there are others, or more ids begin so than one call examines
}

// ParseIDPrefix reads the beginning of an id, with dashes or without.
func ParseIDPrefix(noun IDNoun, text string) (IDPrefix, error) {
	const digits, wholeLength = "0123456789abcdef", 36
	prefix := IDPrefix{Noun: noun, Digits: strings.ToLower(strings.ReplaceAll(text, "-", ""))}
	size := len(prefix.Digits)
	switch {
	case !slices.Contains(IDNouns, noun):
		return prefix, &logbook.InvalidError{Field: "noun", Reason: fmt.Sprintf("%.64q is none of %v", string(noun), IDNouns)}
	case len(text) > wholeLength, size > 2*len(uuid.UUID{}), size < MinIDPrefix, strings.Trim(prefix.Digits, digits) != "":
		return prefix, &logbook.InvalidError{Field: string(noun) + " id", Reason: fmt.Sprintf(
			"%.64q is not a UUID, nor the first %d or more of its hexadecimal digits", text, MinIDPrefix)}
	}
	return prefix, nil
}
