// Package access defines access control: principals, their grants, access tokens and quotas.
//
// A principal is a user or a program that calls the API. It authenticates with a client
// certificate, whose common name is the principal's name, or with an access token. A grant is a
// role on boards. A principal sees nothing of boards for which it has no grant, so boards can
// separate tenants.
//
// A cluster stores only the SHA-256 hash of a token. The caller makes the token from 256 random
// bits, so the hash does not reveal it.
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
	// MaxPrincipals bounds the principals of a cluster, because each node keeps them in memory.
	MaxPrincipals = 10_000
	// MaxGrants bounds the grants of a principal, because each call checks them.
	MaxGrants = 64
	// MaxApproves bounds the roles of a principal in approvals, because each decision searches them.
	MaxApproves = 32
	// MaxTokens bounds the tokens of a principal. A few are enough to replace a token in use.
	MaxTokens = 8
	// MaxTokenUses bounds the token uses that one command records.
	MaxTokenUses = 1_000
	// TokenUseInterval is the precision of Token.LastUsed. A higher precision would cost more
	// log entries.
	TokenUseInterval = time.Hour
)

// Role is a set of permissions on boards.
type Role string

// The roles. All of them include reading.
const (
	Viewer        Role = "viewer"        // reads
	Signaller     Role = "signaller"     // sends signals to jobs
	Approver      Role = "approver"      // decides approvals that need a role of the principal
	Poster        Role = "poster"        // posts jobs, saves books and sends signals
	Worker        Role = "worker"        // opens sessions, claims jobs, and records results
	Operator      Role = "operator"      // posts, signals, decides approvals, and controls the jobs, schedules and conductors of others
	Administrator Role = "administrator" // has all permissions; on all boards, also on the cluster
)

// Roles are all roles.
var Roles = []Role{Viewer, Signaller, Approver, Poster, Worker, Operator, Administrator}

// AllBoards is the pattern of a grant for all boards, and for objects that belong to no board.
const AllBoards = "*"

// Grant is a role on boards.
type Grant struct {
	Role   Role
	Boards string // a board's name, or a prefix and "*"
}

// Covers reports whether the grant applies to a board.
func (g Grant) Covers(board string) bool { return Covers(g.Boards, board) }

// String returns the text form ROLE=BOARDS, which ParseGrant reads.
func (g Grant) String() string { return string(g.Role) + "=" + g.Boards }

// ParseGrant reads the text form of a grant. A role without boards applies to all boards.
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
		return &logbook.InvalidError{Field: "grant role", Reason: fmt.Sprintf("%.64q is not one of %v", g.Role, Roles)}
	}
	return checkBoards(l, "grant boards", g.Boards)
}

// Principal is a user or a program that calls the API.
type Principal struct {
	Name   string
	Grants []Grant
	// HideValues: answers to this principal have names and states, and no values of jobs, flows and steps.
	HideValues bool
	// Approves are the roles that the principal can fill in approvals. It also needs a grant that permits decisions.
	Approves  []string
	Tokens    []Token
	CreatedAt time.Time
	UpdatedAt time.Time
	By        string // the principal that changed it last
	// Revision is the log index of the latest change of Grants, HideValues and Approves.
	Revision uint64
}

// Token is the record of an access token, without its secret.
type Token struct {
	ID        TokenID
	Hash      [sha256.Size]byte // zero in answers
	Expires   time.Time         // zero: never
	CreatedAt time.Time
	By        string    // the principal that made the token
	LastUsed  time.Time // less than TokenUseInterval before the last use; zero: never used
}

// TokenID names a token.
type TokenID struct{ uuid.UUID }

// prefix starts every token, so that users and repository scanners recognise tokens.
const prefix = "cdt_"

// Draw makes a new token. Give text only to its user, and token to the cluster.
func Draw(expires time.Time) (text string, token Token) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	text = prefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return text, Token{ID: TokenID{uuid.New()}, Hash: Hash(text), Expires: expires}
}

// IsToken reports whether a text has the prefix of a token.
func IsToken(text string) bool { return strings.HasPrefix(text, prefix) }

// Hash returns the hash by which a cluster identifies a token.
func Hash(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// CheckPrincipal checks a principal before it is saved.
func CheckPrincipal(l logbook.Limits, p *Principal) error {
	if err := CheckName(l, p.Name); err != nil {
		return err
	}
	if len(p.Grants) > MaxGrants {
		return &logbook.LimitError{Field: "grants", Limit: MaxGrants, Size: int64(len(p.Grants)), Unit: "grants"}
	}
	if len(p.Approves) > MaxApproves {
		return &logbook.LimitError{Field: "approves", Limit: MaxApproves, Size: int64(len(p.Approves)), Unit: "roles"}
	}
	for _, role := range p.Approves {
		if err := l.CheckName("approves", role); err != nil {
			return err
		}
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
		return &logbook.InvalidError{Field: "principal", Reason: fmt.Sprintf("%q contains a /, which is reserved for nodes and for operators on a node's machine", name)}
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

// Identity is an authenticated caller.
type Identity struct {
	Enforced   bool // access control is on; without it every caller has all permissions
	Name       string
	Grants     []Grant
	HideValues bool
	Quota      *Quota   // the principal's quota; nil: none
	Approves   []string // roles that the principal fills in approvals
}

// ErrUnknown: the caller is not authenticated. It has no certificate and no token, or its
// certificate or token is unknown, expired or revoked. It wraps jobs.ErrNotAllowed.
var ErrUnknown = fmt.Errorf("%w: the caller is not known", jobs.ErrNotAllowed)
