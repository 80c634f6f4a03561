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
	// MinIDEnd is how many digits the end of an id has at least. Ids of version 7 end with random
	// digits, and begin with the time: all jobs of a minute begin with the same eight digits.
	MinIDEnd = 8
	// MaxIDMatches bounds the ids of one answer: a person compares no more.
	MaxIDMatches = 10
)

// IDPrefix is the beginning of an id, or its end.
type IDPrefix struct {
	Noun   IDNoun
	Digits string // hexadecimal, in lower case, without dashes
}

// IDMatches are ids that begin with the digits, in order, and then those that end with them.
type IDMatches struct {
	IDs  []uuid.UUID
	More bool // there can be others: one call examines a limited number of ids
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
			"%.64q is not a UUID, nor at least its first %d or last %d hexadecimal digits", text, MinIDPrefix, MinIDEnd)}
	}
	return prefix, nil
}
