// Package steps is the contract between conductors, nodes and the workers beside the cluster
// that do steps: see docs/worker-protocol.md.
//
// A conductor offers an attempt (Offer). A worker pulls (Pull), gets Work, and reports its
// Outcome. The leader brings them together in memory. The logbook names the worker's session
// before the worker gets the attempt, so the next owner of the flow finds the same worker.
package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Limits of the calls.
const (
	// MaxSlots is how many attempts a worker makes at once: more than a machine does.
	MaxSlots = 1024
	// MaxHeld bounds the attempts that a worker names in a call. Some wait for a slot, and
	// some for the record of their end.
	MaxHeld = 2 * MaxSlots
	// MaxOutput bounds the lines of one report, in bytes. There is always a next report.
	MaxOutput = 64 << 10
	// MaxOffers bounds what waits at the leader, for all flows: conductors with the default
	// settings have 64 steps each.
	MaxOffers = 10_000
)

// ID names an attempt at a step.
type ID struct {
	Flow    logbook.FlowID
	Step    string
	Action  logbook.Action
	Attempt int
	Asked   int // how often it has said "not yet"
}

func (id ID) String() string {
	text := fmt.Sprintf("%s %d of step %q of flow %s", id.Action, id.Attempt, id.Step, id.Flow)
	if id.Asked > 0 {
		text += fmt.Sprintf(", asked %d times", id.Asked)
	}
	return text
}

// Work is what a worker is given to make an attempt; the fields are those of flow.Call.
type Work struct {
	ID
	Job       jobs.JobID
	Board     string // of the job, as the leader knows it
	Type      string
	Labels    []string
	Key       string
	Round     int
	Try       int
	Tries     int
	Token     jobs.Token
	Arguments logbook.Values

	// Of a revert.

	Result       json.RawMessage
	Failure      *logbook.Failure
	FlowFailures map[string]*logbook.Failure

	TimeLeft time.Duration // 0: no limit
}

// Offer is an attempt that a conductor offers.
type Offer struct {
	Session jobs.SessionID // of the conductor
	Work    Work
	Worker  jobs.SessionID // that has it, as the logbook says; zero: none has had it
	Only    Only           // the worker that must get it; zero: any may
	Stop    bool           // the worker must end it
	Since   time.Time      // when the attempt began
	Wait    time.Duration
}

// Only is a worker that alone may get an attempt: see flow.SameWorkerAs. When its session has
// ended, those of its name may: a worker that has restarted.
type Only struct {
	Session jobs.SessionID
	Name    string
}

// Answer is what has happened to an offer. All fields are zero if nothing has.
type Answer struct {
	Worker  jobs.SessionID // takes it, when the logbook says so
	Name    string         // of the worker that takes it
	Outcome *Outcome
	Lost    bool // the session of the worker has ended
}

// Outcome is what a worker reports. One that is Done has a Result, a Failure or NotYet.
type Outcome struct {
	ID
	Done     bool
	Result   json.RawMessage
	Failure  *logbook.Failure
	NotYet   time.Duration
	Progress *logbook.Progress // with NotYet, its details
	Output   string
	Stderr   string
}

// Pull asks for work.
type Pull struct {
	Session jobs.SessionID // of the worker
	Slots   int            // how many more attempts it can make
	Holds   []Held
	Wait    time.Duration
	Refill  bool // give one more attempt for each in Holds whose end is recorded while the call waits
}

// Held is an attempt that a worker has, and whose end is not recorded.
type Held struct {
	ID
	Stopping bool
}

// Pulled answers a Pull: what to do, and which held attempts must end.
type Pulled struct {
	Work []Work
	Stop []ID
}

// Live is a worker that lives, with what the leader remembers of it.
type Live struct {
	jobs.Entity
	Holds  int       // attempts that it named when it asked last
	Heard  time.Time // when it asked last; zero: not since this leader leads
	Failed int       // different steps that have failed, with no success between
	Aside  time.Time // since when it is set aside; zero: it is not
	Trial  time.Time // when it gets the next attempt on trial
}

// Offerer is the conductor's side. A method may be called concurrently and repeated.
type Offerer interface {
	// OfferStep waits until a worker takes the attempt, or until the one that has it reports.
	// ErrFenced: the claim is over, or the attempt is not as the logbook says.
	OfferStep(ctx context.Context, offer Offer) (Answer, error)
}

// Client is the worker's side.
type Client interface {
	jobs.Attendant
	// PullSteps waits for work. A later call of the same session ends an earlier one.
	// ErrSessionExpired; ErrInvalid if the session has registered no worker.
	PullSteps(ctx context.Context, pull Pull) (Pulled, error)
	// ReportStep tells what has become of an attempt, and reports whether that is recorded;
	// if not, it must be reported again. A repeat changes nothing. ErrSessionExpired; ErrFenced
	// if the attempt is another worker's, or over in another way.
	ReportStep(ctx context.Context, worker jobs.SessionID, outcome Outcome, wait time.Duration) (recorded bool, err error)
}

// Suits reports whether a worker, by its entity, does steps of a type for the jobs of a board,
// and has the labels that are wanted.
func Suits(worker *jobs.Entity, board, kind string, labels []string) bool {
	for _, label := range labels {
		if !slices.Contains(worker.Labels, label) {
			return false
		}
	}
	return slices.Contains(worker.JobKinds, kind) && (len(worker.Boards) == 0 || slices.Contains(worker.Boards, board))
}
