// Package access has the nouns of access control: principals, their grants, tokens and quotas.
//
// A principal is a person or a program that calls the API. It proves its name by a client
// certificate, whose common name it is, or by a token, which stands for it. A grant gives it
// a role on boards. A principal sees nothing of boards for which it has no grant, so boards
// are the tenants of a cluster.
//
// A cluster keeps the SHA-256 hash of a token and not the token. The caller draws it, 256
// random bits, so nobody can find it from its hash.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Bounds.
const (
	// MaxPrincipals bounds the principals of a cluster: each node holds them in memory.
	MaxPrincipals = 10_000
	// MaxGrants bounds the grants of a principal: each call looks at them.
	MaxGrants = 64
	// MaxTokens bounds the tokens of a principal: one in use, and others while they are exchanged.
	MaxTokens = 8
	// MaxTokenUses bounds the token uses that one command notes.
	MaxTokenUses = 1_000
	// TokenUseInterval is how exactly the last use of a token is kept. A shorter one would
	// cost more log entries, for a time that nobody needs.
	TokenUseInterval = time.Hour
)

// Role is what a principal may do on boards.
type Role string

// The roles. Each but Administrator may also read what is on its boards.
const (
	Viewer        Role = "viewer"        // reads
	Poster        Role = "poster"        // posts jobs and saves books
	Worker        Role = "worker"        // holds sessions, claims jobs, and records what becomes of them
	Operator      Role = "operator"      // posts, and steers jobs, schedules and conductors of others
	Administrator Role = "administrator" // everything; on all boards: the cluster too
)

// Roles are all roles.
var Roles = []Role{Viewer, Poster, Worker, Operator, Administrator}

// AllBoards is the pattern of a grant for every board, and for what belongs to no board.
const AllBoards = "*"

// Grant is a role on boards.
type Grant struct {
	Role   Role
	Boards string // the name of a board, or the beginning of names and "*"
}

// Covers reports whether the grant is for a board.
func (g Grant) Covers(board string) bool { return Covers(g.Boards, board) }

// String is the grant as commands show it and take it.
func (g Grant) String() string { return string(g.Role) + "=" + g.Boards }

// ParseGrant reads what String writes. A role alone is for all boards.
func ParseGrant(text string) (Grant, error) {
	role, boards, found := strings.Cut(text, "=")
	if !found {
		boards = AllBoards
	}
	g := Grant{Role(role), boards}
	return g, g.check(logbook.MaxLimits)
}

func (g Grant) check(l logbook.Limits) error {
	if !slices.Contains(Roles, g.Role) {
		return &logbook.InvalidError{Field: "grant role", Reason: fmt.Sprintf("%.64q is none of %v", g.Role, Roles)}
	}
	return checkBoards(l, "grant boards", g.Boards)
}

// Principal is a person or a program that calls the API.
type Principal struct {
	Name   string
	Grants []Grant
	// HideValues: answers to it have names and states, and no values of jobs, flows and steps.
	HideValues bool
	Tokens     []Token
	CreatedAt  time.Time
	UpdatedAt  time.Time
	By         string // the principal that changed it last
}

// Token is what a cluster keeps of a token.
type Token struct {
	ID        TokenID
	Hash      [sha256.Size]byte // zero in answers
	Expires   time.Time         // zero: never
	CreatedAt time.Time
	By        string    // the principal that made it
	LastUsed  time.Time // less than TokenUseInterval before its last use; zero: never
}

// TokenID names a token.
type TokenID struct{ uuid.UUID }

// prefix is how a token begins, so that people and scanners of repositories know it as one.
const prefix = "cdt_"

// Draw makes a new token: its text, for its user alone, and what is sent to the cluster.
func Draw(expires time.Time) (text string, token Token) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	text = prefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return text, Token{ID: TokenID{uuid.New()}, Hash: Hash(text), Expires: expires}
}

// IsToken reports whether a text looks like a token that Draw has made.
func IsToken(text string) bool { return strings.HasPrefix(text, prefix) }

// Hash is by what a cluster knows a token.
func Hash(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// CheckPrincipal checks a principal before it is saved.
func CheckPrincipal(l logbook.Limits, p *Principal) error {
	if err := CheckName(l, p.Name); err != nil {
		return err
	}
	if len(p.Grants) > MaxGrants {
		return &logbook.LimitError{Field: "grants", Limit: MaxGrants, Size: int64(len(p.Grants)), Unit: "grants"}
	}
	for _, grant := range p.Grants {
		if err := grant.check(l); err != nil {
			return err
		}
	}
	return nil
}

// CheckName checks the name of a principal. Names with a "/" belong to nodes and to
// operators on a node's machine.
func CheckName(l logbook.Limits, name string) error {
	if err := l.CheckName("principal", name); err != nil {
		return err
	}
	if strings.Contains(name, "/") {
		return &logbook.InvalidError{Field: "principal", Reason: fmt.Sprintf("%q holds a /, as only the names of nodes and of operators on a node's machine do", name)}
	}
	return nil
}

// CheckToken checks a token before it is added.
func CheckToken(t *Token) error {
	switch {
	case t.ID.UUID == uuid.Nil:
		return &logbook.InvalidError{Field: "token id", Reason: "unset"}
	case t.Hash == [sha256.Size]byte{}:
		return &logbook.InvalidError{Field: "token hash", Reason: "unset"}
	}
	return nil
}

// Identity is the caller as a node has authenticated it.
type Identity struct {
	Enforced   bool // access control is on; otherwise every caller may do everything
	Name       string
	Grants     []Grant
	HideValues bool
	Quota      *Quota // of the principal; nil: it has none
}

// ErrUnknown: the caller is not authenticated. It has shown nothing, or a certificate or token
// that is not known, or not valid any more. It is a jobs.ErrNotAllowed.
var ErrUnknown = fmt.Errorf("%w: the caller is not known", jobs.ErrNotAllowed)
