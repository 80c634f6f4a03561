package jobs

import (
	"time"

	"github.com/conductord/conductord/logbook"
)

// Opening is how a session is opened.
type Opening struct {
	ID   SessionID
	Name string // of the owner, for people; two sessions of one name are two owners
	Host string
	PID  int
	TTL  time.Duration // zero: DefaultTTL
}

// Bounds of a session's time to live.
const (
	DefaultTTL = 4 * time.Second
	MinTTL     = 500 * time.Millisecond // below that a busy machine loses healthy sessions
	MaxTTL     = time.Hour
)

// MaxExpiry is the longest time of its own that a claim may have.
const MaxExpiry = 365 * 24 * time.Hour

// A session that is well is heard every fifth of its TTL, and after three
// fifths its owner starts nothing any more: from then on it is suspect.
const (
	suspectParts = 3
	suspectOf    = 5
)

// SuspectAfter is how long a session of a TTL may be silent before it is
// suspect.
func SuspectAfter(ttl time.Duration) time.Duration { return ttl / suspectOf * suspectParts }

// MaxClaims bounds what one session holds, so that its expiry is one small write.
const MaxClaims = 256

// Session is the presence of a client on the boards.
type Session struct {
	ID       SessionID
	Name     string
	Host     string
	PID      int
	TTL      time.Duration
	OpenedAt time.Time
	Claims   int // how many jobs it holds
	// Principal opened it, and alone may use it; empty without access control.
	Principal string
}

// EntityConductor is the kind of entity that a conductor is.
const EntityConductor = "conductor"

// EntityWorker is that of a step worker: a process that does steps, and claims no jobs.
const EntityWorker = "step_worker"

// Entity is a presence that others may look up. It lives as long as its
// session; registering it again replaces it.
type Entity struct {
	Kind     string
	Name     string
	Boards   []string // of a conductor: where it claims; of a worker: whose jobs it works for, empty: all
	JobKinds []string // of a conductor: what it can build; of a worker: the types of steps that it does
	MaxJobs  int      // of a conductor: how many jobs at once; of a worker: its slots
	Host     string
	PID      int
	Labels   []string // what it offers
	Metadata logbook.Values

	Session      SessionID
	RegisteredAt time.Time
	Held         int // claims of its session, in lists
}
