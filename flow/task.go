package flow

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Task is the work of one step. A Task may be executed by several flows at
// once, each with a Call of its own.
type Task interface {
	// Execute does the work and returns its result, which must be a JSON
	// value or marshal to one (a json.RawMessage is kept as it is). The
	// context ends when the claim is lost, the step's time is up or the flow
	// is to stop; Execute must then return soon. It may be called again for
	// the same step: after a failure if the step's policy says so, and after
	// a crash, when nobody knows how far it came. An error of type
	// *logbook.Failure is recorded as it is; others by their registered kind;
	// NotYet is no failure.
	Execute(ctx context.Context, call *Call) (result any, err error)
}

// Reverter is a Task whose work can be undone.
type Reverter interface {
	Task
	// Revert undoes what Execute did, as far as it came: also after a
	// failure, and when it is not known whether Execute did anything. It may
	// be called again after a crash.
	Revert(ctx context.Context, call *Call) error
}

// Call is one execution or one revert of a step: what it is given, and who it is.
type Call struct {
	// Arguments are what the step requires, by the names that it uses itself.
	Arguments logbook.Values

	Action  logbook.Action
	Job     string // the job's id; empty where a flow runs without a cluster
	Flow    logbook.FlowID
	Step    string
	Attempt int // counts from 1
	Round   int // how often the step was begun anew: see Key
	Asked   int // how often this attempt has said NotYet
	// Token is the fence of the claim. Show it to outside systems that can
	// refuse an older one.
	Token logbook.Token

	// In a revert: the result of the execution, nil if it failed or nobody
	// knows; the step's own failure, if it failed; and every step's failure,
	// which is why the flow reverts.
	Result       json.RawMessage
	Failure      *logbook.Failure
	FlowFailures map[string]*logbook.Failure

	stderr          string
	stderrTruncated bool
	reporter        Reporter // of its progress; nil: nobody hears it
}

// Key is the same in every attempt at the same action of the same step of the
// same flow, also after a crash, and no other has it: a key for systems that
// recognise repeats.
//
// A step that is to be done anew begins a new round, with keys of its own for
// both actions: after it was undone, when a retry, the job's policy or a person
// has its flow run again; and after a person has had it run again, or has done
// it by hand. Were the key the same, whoever was paid, and paid back, would take
// the next payment for a repeat of the first.
func (c *Call) Key() string {
	key := c.Flow.String() + "/" + c.Step + "/" + string(c.Action)
	if c.Round > 0 {
		key += "/" + strconv.Itoa(c.Round+1)
	}
	return key
}

// KeepStderr keeps the end of what a handler wrote to stderr with the attempt.
func (c *Call) KeepStderr(end string, truncated bool) {
	c.stderr, c.stderrTruncated = end, truncated
}

// Stderr is what KeepStderr kept.
func (c *Call) Stderr() (end string, truncated bool) { return c.stderr, c.stderrTruncated }

// RetryPolicy says how often a step is tried, and how long it waits between.
// The zero value tries once.
type RetryPolicy struct {
	Attempts   int           // in all; 0 and 1: once
	Delay      time.Duration // before the second attempt
	Multiplier float64       // of the delay, before each further one; 0: 1
	MaxDelay   time.Duration // 0: DefaultMaxDelay, or Delay if that is longer
	// Jitter, from 0 to 1, is the share of the delay that is left to chance,
	// so that steps which failed together do not come back together: 0.2
	// makes 10 s anything from 8 s to 10 s.
	Jitter float64
}
