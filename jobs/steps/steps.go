// Package steps defines the contract between conductors, nodes and step workers, which run steps
// outside the cluster: see docs/worker-protocol.md.
//
// A conductor offers an attempt (Offer). A worker calls Pull, gets Work, and reports its Outcome.
// The leader matches offers and workers in memory. The logbook records the worker's session before
// the worker gets the attempt, so the next owner of the flow finds the same worker.
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
	// MaxSlots limits the parallel attempts of a worker. No machine needs more.
	MaxSlots = 1024
	// MaxHeld bounds the attempts in Pull.Holds. Some of them wait for a slot, and some for
	// the record of their end.
	MaxHeld = 2 * MaxSlots
	// MaxOutput bounds the output of one report, in bytes. Further output goes into the next
	// report.
	MaxOutput = 64 << 10
	// MaxOffers bounds the offers that wait at the leader, for all flows. Conductors with
	// default settings offer up to 64 steps each.
	MaxOffers = 10_000
)

// ID names an attempt at a step.
type ID struct {
	Flow    logbook.FlowID
	Step    string
	Action  logbook.Action
	Attempt int
	Asked   int // number of "not yet" results so far
}

func (id ID) String() string {
	text := fmt.Sprintf("%s %d of step %q of flow %s", id.Action, id.Attempt, id.Step, id.Flow)
	if id.Asked > 0 {
		text += fmt.Sprintf(", asked %d times", id.Asked)
	}
	return text
}

// SendPlace is the place of the worker's signals in their ids: see logbook.NameSends. The step's own
// signals have another place.
func (id ID) SendPlace() string { return fmt.Sprintf("%s/%d/worker", id.Step, id.Attempt) }

// Work is the input of an attempt by a worker. The fields have the same meaning as in flow.Call.
type Work struct {
	ID
	Job    jobs.JobID
	Board  string // board of the job; set by the leader
	Type   string
	Labels []string
	Key    string
	Round  int
	Try    int
	Tries  int
	// LastFailure is the failure of the previous try.
	LastFailure *logbook.Failure
	Token       jobs.Token
	Arguments   logbook.Values

	// Only for a revert.

	Result       json.RawMessage
	Failure      *logbook.Failure
	FlowFailures map[string]*logbook.Failure
	Cause        logbook.RevertCause

	TimeLeft time.Duration // 0: no limit

	// LastProgress is the last report of the previous attempt in this round; nil: none.
	LastProgress *logbook.Progress
	// Checkpoints are the checkpoints of this round by name; set by the leader for the worker.
	Checkpoints logbook.Values
}

// Offer is an attempt that a conductor offers.
type Offer struct {
	Session jobs.SessionID // session of the conductor
	Work    Work
	Worker  jobs.SessionID // session of the worker that has the attempt, as recorded in the logbook; zero: none
	Only    Only           // the only worker that may get the attempt; zero: any worker
	Stop    bool           // the worker must end the attempt
	Since   time.Time      // when the attempt started
	Wait    time.Duration
	// Refused is the number of the latest checkpoint, if the conductor has refused it with Refusal.
	Refused int
	Refusal error
}

// Only is the only worker that may get an attempt: see flow.SameWorkerAs. After the end of its
// session, any worker with its name may get the attempt: the worker has restarted.
type Only struct {
	Session jobs.SessionID
	Name    string
}

// Answer is the state of an offer. All fields are zero if nothing has changed.
type Answer struct {
	Worker  jobs.SessionID // session of the worker that takes the attempt when the logbook names it
	Name    string         // name of that worker
	Outcome *Outcome       // the latest report; nil: none
	Lost    bool           // the session of the worker has ended
}

// Outcome is a worker's report about an attempt. With Done, it has a Result, a Failure or NotYet.
// Without Done, it can have a Checkpoint.
type Outcome struct {
	ID
	Done     bool
	Result   json.RawMessage
	Failure  *logbook.Failure
	NotYet   time.Duration
	Progress *logbook.Progress // with NotYet: only its details are used
	Output   string
	Stderr   string
	// Checkpoint must be recorded before the answer. Its Number is above the numbers of all earlier checkpoints of the
	// attempt, and a repeat of the report has the same number.
	Checkpoint *logbook.Checkpoint
	// Sends are signals of a successful execution. The cluster sends them with the record of the success.
	Sends []logbook.Sending
}

// Pull requests work.
type Pull struct {
	Session jobs.SessionID // session of the worker
	Slots   int            // free slots
	Holds   []Held         // all attempts that the worker has
	Wait    time.Duration
	Refill  bool // add one slot for each attempt in Holds whose end is recorded while the call waits
}

// Held is an attempt that a worker has, and whose end is not recorded.
type Held struct {
	ID
	Stopping bool // the attempt got a stop request, or has ended and is being reported
}

// Pulled is the answer to a Pull: new attempts, and held attempts that must end.
type Pulled struct {
	Work []Work
	Stop []ID
}

// Live is a live worker, with the leader's records of it.
type Live struct {
	jobs.Entity
	Holds  int       // attempts in its latest Pull
	Heard  time.Time // time of its latest Pull; zero: none during this leadership
	Failed int       // different steps that failed since the latest success
	Aside  time.Time // when the worker was set aside; zero: it is not set aside
	Trial  time.Time // when a worker that is set aside gets its next attempt, on trial
}

// Offerer is the interface for conductors. Its method may be called concurrently, and repeating a
// call is harmless.
type Offerer interface {
	// OfferStep waits until a worker takes the attempt, or until the worker that has the attempt
	// reports. ErrFenced if the claim has ended, or if the logbook does not have the attempt in
	// this state.
	OfferStep(ctx context.Context, offer Offer) (Answer, error)
}

// Client is the interface for workers. Its methods may be called concurrently.
type Client interface {
	jobs.Attendant
	// PullSteps waits for attempts. A later call of the same session ends an earlier one.
	// ErrSessionExpired; ErrInvalid if the session has not registered a step worker.
	PullSteps(ctx context.Context, pull Pull) (Pulled, error)
	// ReportStep reports an attempt, and waits for the record of its end or its checkpoint. If recorded
	// is false, report it again. A repeat changes nothing. ErrSessionExpired; ErrFenced if the attempt
	// belongs to another worker, or has ended otherwise; ErrLimit and ErrInvalid.
	ReportStep(ctx context.Context, worker jobs.SessionID, outcome Outcome, wait time.Duration) (recorded bool, err error)
}

// Suits reports whether a worker's entity has the type, the board and all the labels of a step.
func Suits(worker *jobs.Entity, board, kind string, labels []string) bool {
	for _, label := range labels {
		if !slices.Contains(worker.Labels, label) {
			return false
		}
	}
	return slices.Contains(worker.JobKinds, kind) && (len(worker.Boards) == 0 || slices.Contains(worker.Boards, board))
}
