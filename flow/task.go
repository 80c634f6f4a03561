package flow

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/conductord/conductord/logbook"
)

// Task is the work of one step. Several flows can execute a Task concurrently, each with its own
// Call.
type Task interface {
	// Execute does the work and returns its result: a JSON value, or a value that marshals to
	// one. A json.RawMessage is kept unchanged.
	//
	// The context ends when the claim is lost, when the step's timeout is over, or when the flow must stop. Execute
	// must then return soon.
	//
	// Execute can be called again for the same step: after a failure, if the step's policy allows it, and after a
	// crash, when the progress of the earlier call is unknown. An error of type *logbook.Failure is recorded unchanged,
	// other errors under their registered kind; NotYet is not a failure.
	Execute(ctx context.Context, call *Call) (result any, err error)
}

// Reverter is a Task whose work can be reverted.
type Reverter interface {
	Task
	// Revert undoes the work of Execute, however much Execute did. It is also called after a
	// failure, and after a crash of the conductor, when it is unknown whether Execute did
	// anything. Without a crash, Revert is called only after Execute. After a crash, Revert can
	// be called again.
	Revert(ctx context.Context, call *Call) error
}

// Call is one execution or one revert of a step: its arguments and its identity.
type Call struct {
	// Arguments are the values that the step requires, by the step's own names for them.
	Arguments logbook.Values
	// Secrets are the names of the arguments that contain secrets.
	Secrets []string

	Action  logbook.Action
	Job     string // the job's id; empty where a flow runs without a cluster
	Board   string // the job's board
	Flow    logbook.FlowID
	Step    string
	Attempt int // counts from 1, including attempts that a crash cut off
	// Try is the number of failures of this action in this round, plus one. It excludes crashes,
	// interruptions and lost workers.
	Try   int
	Tries int // maximum of tries that Retry allows: 1 without it
	// LastFailure is the failure of the previous try; nil in the first one.
	LastFailure *logbook.Failure
	// LastProgress is the last report of the previous attempt in this round; nil: none.
	LastProgress *logbook.Progress
	Round        int // number of earlier rounds of the step: see Key
	Asked        int // number of times that this attempt has returned NotYet
	// Worker is the session of the worker that has the attempt because an earlier owner of the
	// flow offered it; empty: no worker has it.
	Worker string
	// Only is the worker that must get the attempt: see SameWorkerAs. Zero: any worker may.
	Only WorkerID
	// Token is the fencing token of the claim. Pass it to outside systems that can refuse older
	// tokens.
	Token logbook.Token

	// For a revert. Result is the result of the execution: nil if the execution failed, or if its result is unknown.
	// Failure is the step's own failure, if it failed. FlowFailures are the failures of all steps up to now. Cause is
	// the reason why the step is reverted.
	Result       json.RawMessage
	Failure      *logbook.Failure
	FlowFailures map[string]*logbook.Failure
	Cause        logbook.RevertCause
	// Final is set for a step of Flow.Finally or Flow.OnError, together with Cause: the zero cause after a success.
	Final bool

	sends           []logbook.Sending
	stderr          string
	stderrTruncated bool
	unbegun         bool
	reporter        Reporter     // of its progress; nil: none
	checkpoints     *checkpoints // nil: none yet
	taken           func(ctx context.Context, worker WorkerID) error
	bound           func() context.Context
}

// Key is an idempotency key for outside systems. All attempts at the same action of the same step of the same flow have
// the same key, even after a crash. Every other call has a different key.
//
// A new round has new keys for both actions. It starts when the step runs again after its revert,
// because of a retry, the job's policy or an operator. It also starts after an operator has rerun
// or completed the step. With the same key, a payment made after a refund would look like a repeat
// of the first payment.
func (c *Call) Key() string {
	key := c.Flow.String() + "/" + c.Step + "/" + string(c.Action)
	if c.Round > 0 {
		key += "/" + strconv.Itoa(c.Round+1)
	}
	return key
}

// KeepStderr sets the end of a handler's stderr. It is recorded with the attempt.
func (c *Call) KeepStderr(end string, truncated bool) {
	c.stderr, c.stderrTruncated = end, truncated
}

// Stderr is the value that KeepStderr set.
func (c *Call) Stderr() (end string, truncated bool) { return c.stderr, c.stderrTruncated }

// KeepUnbegun records whether the task returns before its work has started, for example because a handler cannot be
// started. Nothing is then reverted. It is for code that makes tasks.
func (c *Call) KeepUnbegun(unbegun bool) { c.unbegun = unbegun }

// Unbegun is the value that KeepUnbegun set.
func (c *Call) Unbegun() bool { return c.unbegun }

// Backoff limits the attempts of a step and sets the delays between them, or the delays between
// the rounds of a retry. It is a struct of
//
//	Attempts       int           // maximum; 0 and 1: one attempt. Unset for retries
//	Delay          time.Duration // before the second attempt
//	BackoffPercent int           // each further delay, in percent of the previous one; 0: 100
//	MaxDelay       time.Duration // limit of the delays; 0: 5 min, or Delay if that is longer
//	JitterPercent  int           // random share of each delay, at most 100
type Backoff = logbook.Backoff
