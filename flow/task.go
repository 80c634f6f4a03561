package flow

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/conductord/conductord/logbook"
)

// Task is the work of one step. A Task may be executed by several flows at
// once, each with a Call of its own.
type Task interface {
	// Execute does the work and returns its result: a JSON value, or one that marshals to it (a
	// json.RawMessage is kept as it is). The context ends when the claim is lost, the step's
	// timeout is over or the flow must stop; Execute must then return soon. It may be called again
	// for the same step: after a failure if the step's policy says so, and after a crash, when
	// nobody knows how far it came. An error of type *logbook.Failure is recorded as it is; others
	// by their registered kind; NotYet is no failure.
	Execute(ctx context.Context, call *Call) (result any, err error)
}

// Reverter is a Task whose work can be undone.
type Reverter interface {
	Task
	// Revert undoes what Execute did, however far it came: also after a failure, and when nobody
	// knows whether Execute did anything, because its conductor has died. Without a crash, Revert
	// is called only after Execute. It may be called again after a crash.
	Revert(ctx context.Context, call *Call) error
}

// Call is one execution or one revert of a step: its arguments and its identity.
type Call struct {
	// Arguments are what the step requires, by the names that it uses itself.
	Arguments logbook.Values
	// Secrets are the names of the arguments into which secrets were put.
	Secrets []string

	Action  logbook.Action
	Job     string // the job's id; empty where a flow runs without a cluster
	Board   string // the job's board
	Flow    logbook.FlowID
	Step    string
	Attempt int // counts from 1, also attempts that a crash cut off
	// Try is the number of failures of this action in this round, plus one. Crashes, interruptions
	// and lost workers do not count.
	Try   int
	Tries int // how many tries Retry allows: 1 without it
	Round int // how often the step was begun anew: see Key
	Asked int // how often this attempt has said NotYet
	// Worker is the session of the worker that has the attempt already, where an earlier owner
	// of the flow has offered it; empty: none has it.
	Worker string
	// Only is the worker that must get the attempt: see SameWorkerAs. Zero: any worker may.
	Only WorkerID
	// Token is the fencing token of the claim. Pass it to outside systems that can refuse an older
	// one.
	Token logbook.Token

	// In a revert: the result of the execution, nil if it failed or nobody knows; the step's own
	// failure, if it failed; and the failures of all steps, which are why the flow reverts.
	Result       json.RawMessage
	Failure      *logbook.Failure
	FlowFailures map[string]*logbook.Failure

	stderr          string
	stderrTruncated bool
	unbegun         bool
	reporter        Reporter // of its progress; nil: nobody hears it
	taken           func(ctx context.Context, worker WorkerID) error
	bound           func() context.Context
}

// Key is equal in all attempts at the same action of the same step of the same flow, also after
// a crash, and in no other call: an idempotency key for outside systems.
//
// A step that is done again begins a new round, with new keys for both actions: after it was
// undone and a retry, the job's policy or an operator runs its flow again, and after an operator
// has rerun or completed it. With the same key, a payment made after a refund would look like a
// repeat of the first payment.
func (c *Call) Key() string {
	key := c.Flow.String() + "/" + c.Step + "/" + string(c.Action)
	if c.Round > 0 {
		key += "/" + strconv.Itoa(c.Round+1)
	}
	return key
}

// KeepStderr sets the end of a handler's stderr, which is recorded with the attempt.
func (c *Call) KeepStderr(end string, truncated bool) {
	c.stderr, c.stderrTruncated = end, truncated
}

// Stderr is what KeepStderr set.
func (c *Call) Stderr() (end string, truncated bool) { return c.stderr, c.stderrTruncated }

// KeepUnbegun sets whether the task returns without having begun, as when a handler cannot be started.
// Then there is nothing to revert. It is for code that makes tasks.
func (c *Call) KeepUnbegun(unbegun bool) { c.unbegun = unbegun }

// Unbegun is what KeepUnbegun set.
func (c *Call) Unbegun() bool { return c.unbegun }

// Backoff is the maximum of a step's attempts and the delays between them, or the delays between the
// rounds of a retry. It is a struct of
//
//	Attempts       int           // maximum; 0 and 1: one attempt. Unset for retries
//	Delay          time.Duration // before the second attempt
//	BackoffPercent int           // each further delay, in percent of the one before; 0: 100
//	MaxDelay       time.Duration // limit of the delays; 0: 5 min, or Delay if that is longer
//	JitterPercent  int           // random share of each delay, at most 100
type Backoff = logbook.Backoff
