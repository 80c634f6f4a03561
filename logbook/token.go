package logbook

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Token is the fencing token of a claim. Every write under a claim carries its token, and
// the store refuses tokens other than the job's current one. The tokens of a job only grow:
// an outside system that remembers the highest token can also refuse a delayed owner.
//
// Generation counts the restorations of the cluster from a backup or a surviving node. Index
// is the log index of the claim. Compare tokens only as pairs, because indexes repeat after a
// restoration.
//
// See Kleppmann, "How to do distributed locking" (2016).
type Token struct {
	Generation uint64
	Index      uint64
}

// IsZero reports whether the token is unset. An update outside any claim has no token.
func (t Token) IsZero() bool { return t == Token{} }

// Compare orders tokens. It returns a negative number if t is older than other, 0 if they are
// equal, and otherwise a positive number.
func (t Token) Compare(other Token) int {
	return cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Index, other.Index))
}

// String returns the text form "generation-index", which ParseToken reads.
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Generation, t.Index) }

// ParseToken reads the text form "generation-index". ErrInvalid.
func ParseToken(text string) (Token, error) {
	generation, index, found := strings.Cut(text, "-")
	g, errG := strconv.ParseUint(generation, 10, 64)
	i, errI := strconv.ParseUint(index, 10, 64)
	if !found || errG != nil || errI != nil {
		return Token{}, &InvalidError{Field: "token", Reason: fmt.Sprintf("%.64q is not of the form GENERATION-INDEX", text)}
	}
	return Token{Generation: g, Index: i}, nil
}

// MarshalText returns the text form, for JSON and logs.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the text form. ErrInvalid.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}
