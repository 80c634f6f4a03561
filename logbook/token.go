package logbook

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Token is the fencing token of a claim: every write under a claim carries it, and
// the state machine refuses a token that is no longer the job's. Tokens of one job
// only grow, so an outside system that remembers the highest token it has seen can
// refuse a delayed owner too.
//
// Generation counts restorations of the cluster from a backup or a survivor; Index
// is the log index of the claim. Only the pair is ordered: after a restoration an
// index may be assigned again.
//
// See Kleppmann, "How to do distributed locking" (2016).
type Token struct {
	Generation uint64
	Index      uint64
}

// IsZero reports whether the token is unset, as in an update outside any claim.
func (t Token) IsZero() bool { return t == Token{} }

// Compare orders tokens: negative if t is older than other.
func (t Token) Compare(other Token) int {
	return cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Index, other.Index))
}

// String gives the form "generation-index" that ParseToken reads.
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Generation, t.Index) }

// ParseToken reads "generation-index".
func ParseToken(text string) (Token, error) {
	generation, index, found := strings.Cut(text, "-")
	g, errG := strconv.ParseUint(generation, 10, 64)
	i, errI := strconv.ParseUint(index, 10, 64)
	if !found || errG != nil || errI != nil {
		return Token{}, &InvalidError{Field: "token", Reason: fmt.Sprintf("%.64q is not of the form GENERATION-INDEX", text)}
	}
	return Token{Generation: g, Index: i}, nil
}

// MarshalText makes tokens readable in JSON and logs.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}
