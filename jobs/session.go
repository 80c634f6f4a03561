package jobs

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// Opening is the request for a session.
type Opening struct {
	ID   SessionID
	Name string // name of the owner, for display; sessions with equal names are different owners
	Host string
	PID  int
	TTL  time.Duration // zero: DefaultTTL
}

// Bounds of a session's time to live.
const (
	DefaultTTL = 4 * time.Second
	MinTTL     = 500 * time.Millisecond // a busy machine would lose healthy sessions with a shorter TTL
	MaxTTL     = time.Hour
)

// MaxExpiry is the longest TTL of a claim.
const MaxExpiry = 365 * 24 * time.Hour

// A healthy session sends a keep-alive every fifth of its TTL. After three fifths without
// an acknowledged keep-alive, its owner starts no more work, and the session is suspect.
const (
	suspectParts = 3
	suspectOf    = 5
)

// SuspectAfter returns the time without keep-alive after which a session with this TTL is
// suspect.
func SuspectAfter(ttl time.Duration) time.Duration { return ttl / suspectOf * suspectParts }

// MaxClaims bounds the claims of one session, so that its expiry is one small write.
const MaxClaims = 256

// Session is the registration of one running client. Its keep-alives keep its claims.
type Session struct {
	ID       SessionID
	Name     string
	Host     string
	PID      int
	TTL      time.Duration
	OpenedAt time.Time
	Claims   int // number of claims
	// Principal is the principal that opened the session. No other principal may use the
	// session. Empty without access control.
	Principal string
}

// EntityConductor is the kind of a conductor's entity.
const EntityConductor = "conductor"

// EntityWorker is the kind of a step worker's entity. A step worker runs steps, and claims
// no jobs.
const EntityWorker = "step_worker"

// Entity is the public registration of a conductor, a step worker, or another program. It
// ends with its session. Registering the entity again replaces it.
type Entity struct {
	Kind     string
	Name     string
	Boards   []string // conductor: boards from which it claims, empty: DefaultBoard; step worker: boards of its jobs, empty: all
	JobKinds []string // conductor: kinds of job, empty: any; step worker: types of steps
	MaxJobs  int      // conductor: jobs in parallel; step worker: slots
	Host     string
	PID      int
	Labels   []string // offered labels
	Metadata logbook.Values

	Session      SessionID
	RegisteredAt time.Time
	Held         int // only in lists: claims of its session
}
