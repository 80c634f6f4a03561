// Package jobs defines the job board: the interface Board, its types, and their
// guarantees.
//
// Terms: A program posts a Posting, and the board makes a Job of it. A worker opens a
// Session and claims the job. The Claim has a Token, a fencing token: every write under
// the claim carries the token, and the board refuses older ones. A session without
// keep-alives expires. Its jobs then cool down, and become claimable for others under
// higher tokens. The owner ends its claim in one of three ways:
//
//   - consume: the work of the job's flow has ended, and the job is completed.
//   - trash: no worker can do the job.
//   - abandon: the job is released, for others to claim.
//
// Operators suspend, resume and cancel jobs by a JobCommand, without a claim.
//
// Post with NewPosting and PostOne, to a *raftboard.Client. await.Result, of package
// jobs/await, waits for the job and returns its flow:
//
//	client, err := raftboard.Dial(ctx, "127.0.0.1:7070")
//	job, err := jobs.PostOne(ctx, client, jobs.NewPosting("greet", nil, map[string]any{"name": "Ada"}))
//	result, err := await.Result(ctx, client, job.ID)
//	err = result.Decode("text", &text) // into a string
//
// Most workers do not claim jobs themselves: conductor.Run keeps the session, and runs the
// flow of each job or calls a function.
//
// Every implementation guarantees the following, and package jobstest tests it:
//
//   - An accepted job is never lost.
//   - A job has at most one owner at a time.
//   - Jobs are claimed by effective priority, then front, then posting order.
//   - Repeating a call with the same ids is harmless.
package jobs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// JobID names a job. The poster makes the id, so a second posting with the same id is
// a repeat and creates no second job.
type JobID struct{ uuid.UUID }

// SessionID names a session. The session's owner makes the id.
type SessionID struct{ uuid.UUID }

// Nonce names one request for claims. A repeat with the same nonce, after a lost answer,
// returns the same claims and no more.
type Nonce struct{ uuid.UUID }

// NewJobID makes a UUID of version 7, which sorts by creation time.
func NewJobID() JobID { return JobID{uuid.Must(uuid.NewV7())} }

// NewSessionID makes a random id, so that no program can guess the session of another.
func NewSessionID() SessionID { return SessionID{uuid.New()} }

// NewNonce makes a random nonce.
func NewNonce() Nonce { return Nonce{uuid.New()} }

// ParseJobID reads the text form of a job's id.
func ParseJobID(text string) (JobID, error) {
	id, err := logbook.ParseID("job id", text)
	return JobID{id}, err
}

// ParseSessionID reads the text form of a session's id.
func ParseSessionID(text string) (SessionID, error) {
	id, err := logbook.ParseID("session id", text)
	return SessionID{id}, err
}

// ParseNonce reads the text form of a nonce.
func ParseNonce(text string) (Nonce, error) {
	id, err := logbook.ParseID("nonce", text)
	return Nonce{id}, err
}

// IsZero reports whether the id is unset.
func (id JobID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the id is unset.
func (id SessionID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the nonce is unset.
func (n Nonce) IsZero() bool { return n.UUID == uuid.Nil }

// Token is the fencing token of a claim; see logbook.Token.
type Token = logbook.Token

// DefaultBoard is the board that always exists.
const DefaultBoard = "default"

// State is the state of a job. These are all transitions:
//
//	post ──► held ──(release)──► delayed, or claimable if it is due
//	post ──► delayed ──(due)──► claimable ──(claim)──► claimed ──(consume)──► completed
//	   └────────────────────────► ▲   ▲                │ │ │ └───(trash)────► trashed
//	                              │   └───(abandon)────┘ │ │
//	                              │                      │ └─(expiry, too many crashes)─► trashed
//	                              ├────(due)── cooling ◄─┤ (expiry; abandon with a delay)
//	                              └────(due)── waiting ◄─┘ (abandon with Waits; consume with Again and a delay)
//
//	delayed, claimable, cooling, waiting ──(change of the not-before time)──► claimable, delayed
//	waiting ──(signal, decision or publication for its flow)──► claimable
//	held, delayed, claimable, cooling, waiting ──(suspend)──► suspended ──(resume)──► previous state, or claimable if due
//	claimed, under a request to suspend ──(abandon, expiry)──► suspended
//	claimed, with a later not-before time ──(abandon, expiry)──► delayed
//	held, delayed, claimable, cooling, waiting, suspended ──(cancel)──► completed
//	claimed, under a request to cancel ──(consume, abandon, expiry)──► completed
//
//	claimed ──(consume of a failed attempt, by its RetryPolicy)──► cooling, or parked: held
//	held, parked ──(intervention in its flow)──► claimable
//
// The board cancels a job at its deadline, and its flow is undone.
//
// Cancelling a job whose flow must be undone makes the job claimable, until an owner has
// undone the flow. Controller has the complete tables of requests and changes.
//
// Only operators change finished jobs:
//
//	completed, trashed ──(intervention in the failed flow)──► claimable
//	such a job, unclaimed ──(intervention taken back; cancel)──► completed
//	trashed ──(retry)──► held, delayed or claimable
//	completed without a flow, and reverted or failed ──(retry)──► held, delayed or claimable
//	trashed, under a request to cancel, with nothing to undo ──(retry)──► completed
//	completed, trashed ──(purge)──► removed
//
// Without an operator, completed and trashed are final, until retention removes the job.
type State string

// The states of a job.
const (
	StateDelayed   State = "delayed"   // waits for its not-before time
	StateClaimable State = "claimable" // waits for a conductor
	StateCooling   State = "cooling"   // waits after an expiry, for the delay of an abandon, or for its next attempt by its RetryPolicy
	StateClaimed   State = "claimed"   // has an owner
	StateCompleted State = "completed" // has ended, with an Outcome
	StateTrashed   State = "trashed"   // no worker can do it; Failure has the cause
	StateSuspended State = "suspended" // waits until an operator resumes it; StopRequest has the request
	StateHeld      State = "held"      // waits until an operator releases it: it was posted with Hold, or is parked
	StateWaiting   State = "waiting"   // its flow waits: for a signal, a publication, an approval, a time, or the next attempt of a step
)

// States are all states. The state machine stores indexes into this list, so new states
// go to the end.
var States = []State{
	StateDelayed, StateClaimable, StateCooling, StateClaimed, StateCompleted, StateTrashed, StateSuspended, StateHeld,
	StateWaiting,
}

// Finished reports whether the state is final. Only an operator changes a finished job, by
// Controller.Intervene or Historian.
func (s State) Finished() bool { return s == StateCompleted || s == StateTrashed }

// Pauses reports whether a conductor released the job, and none can claim it before Job.DueAt.
func (s State) Pauses() bool { return s == StateCooling || s == StateWaiting }

// NeedsOperator reports whether an unfinished job stays in the state until an operator releases,
// resumes, retries or cancels it.
func (s State) NeedsOperator() bool { return s == StateHeld || s == StateSuspended }

// Outcome is the result of a completed job.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess  Outcome = "success"  // the flow has done all its work
	OutcomeReverted Outcome = "reverted" // the flow failed, and its work is undone
	OutcomeFailed   Outcome = "failed"   // the flow failed, and not all its work is undone: an operator is needed
	// OutcomeCancelled: an operator or the deadline ended the job. Its flow is undone, or
	// stays as it was.
	OutcomeCancelled Outcome = "cancelled"
)

// Posting is the request for a new job. A Change can later change the fields Board,
// Priority, NotBefore, Hold, Front and Deadline; the others are constant.
type Posting struct {
	ID       JobID    // zero: Post makes one; set it so that a repeat after a restart of the caller creates no second job
	Board    string   // empty: DefaultBoard
	Name     string   // for display; need not be unique
	Priority Priority // higher is claimed first

	// The work: a book to save with the job (Book), or a saved one (BookID). Neither: a job
	// without a flow.
	Book   *logbook.Book
	BookID logbook.BookID
	// Flow is the flow of the book to run. Zero: the only flow of the book.
	Flow logbook.FlowID
	// Kind is the kind of a job without a flow; workers claim jobs by kind. The kind of a
	// job with a flow is the name of the flow's factory.
	Kind string

	Details   json.RawMessage // data of the poster, kept with the job
	Store     logbook.Values  // values for the flow's steps; they override values of the flow
	NotBefore time.Time       // earliest start; zero: at once
	Hold      bool            // the job is not claimable until an operator releases it

	// Key names the subject of the job. At most one unfinished job of a board has a given
	// key. A second posting with the key creates no job, and Post returns the existing job.
	// If the posting has a higher priority, or Front, the existing job gets it. A finished job
	// keeps its key, and cannot be retried while an unfinished job has the same key.
	Key        string
	Front      bool     // the job goes before others of its priority; the latest of several such jobs comes first
	Tags       []string // for searching; without duplicates
	MaxCrashes int      // lost owners after which the job is trashed; 0: the cluster's default
	Labels     []string // ClaimNext gives the job only to callers that offer all of these labels; without duplicates
	// Deadline is the time by which the work must be done. At the deadline, the board cancels
	// an unfinished job and has its flow undone, as by an operator's request with Revert; see
	// ByDeadline. After the deadline, the job can be claimed only to undo its flow.
	Deadline time.Time
	// DeadlineAfter sets the deadline relative to the posting, or to a later NotBefore. For the job of a schedule, the
	// deadline counts from the slot; if the job is posted later than SlotGrace after the slot, the deadline counts from
	// the posting. 0: none. Not together with Deadline.
	DeadlineAfter time.Duration
	// Retry decides what happens when the work of the job fails. Nil: the job is completed.
	Retry *RetryPolicy
	// Retention is the time for which the finished job is kept, however it ended, with its book unless another job
	// refers to the book. 0: the cluster's default. The cluster's maximum number of kept jobs still applies: beyond it,
	// the job whose retention ends first is removed first.
	Retention time.Duration
	// Traceparent is the W3C trace context of the span that posts the job. Empty:
	// *raftboard.Client takes the span from the context of Post. Without a span, the job
	// starts its own trace.
	Traceparent string
	// Signal is a signal to the unfinished job with the posting's Key. Without such a job, the job is posted with the
	// signal. Both happen in one log entry: of two parallel postings, one posts the job, and the job gets both signals.
	// Without an ID, the signal has the ID of the posting. Nil: none.
	Signal *logbook.Signal
	// Err is the error of NewPosting or NewPlainPosting. Post and SaveSchedule refuse the
	// posting with this error.
	Err error
}

// Posted is the result of one posting.
type Posted struct {
	Job     Job
	Existed bool // the job existed: an earlier call posted it, or it is unfinished and has the posting's key
	// Signal is the answer to the posting's signal; zero without a signal.
	Signal SignalReceipt
	Err    error // the refusal; Job then has only its ID
}

// Job is an accepted posting and its progress.
type Job struct {
	ID       JobID
	Board    string
	Name     string
	Kind     string
	Priority Priority // without ageing
	// UnreadSignals is the number of signals that no wait has taken: see Signaller.
	UnreadSignals int
	// Iteration is the number of the current iteration of a flow that continues (flow.Again), from 2; 0: the first.
	Iteration int

	// Effective is the priority with ageing at the time of the read: Priority, plus the
	// steps that the job gained by waiting. Only Reader.Job sets it, and only for an
	// unfinished job of a board that ages jobs or once did.
	Effective *Priority
	Sequence  uint64 // the posting order across all boards
	State     State
	Book      logbook.BookID
	BookName  string
	Flow      logbook.FlowID
	Details   json.RawMessage
	Store     logbook.Values
	NotBefore time.Time
	Held      bool // the job was posted with Hold or is parked, and has not been released

	Key        string
	Front      uint64 // log index at which the job was moved before others of its priority; 0: never
	Tags       []string
	MaxCrashes int
	Labels     []string // sorted

	Deadline      time.Time
	DeadlineAfter time.Duration // see Posting
	Retry         *RetryPolicy
	Retention     time.Duration // see Posting
	Size          uint64        // bytes of the posting, which count against the limits of its board

	// Schedule and Slot are the schedule that posted the job, by name, and the slot. They are
	// unset for other jobs, including jobs posted with Again.
	Schedule string
	Slot     time.Time

	PostedBy    string // the principal; empty without access control
	Traceparent string // see Posting
	PostedAt    time.Time
	ModifiedAt  time.Time
	// StartedAt is the time of the first claim since the job was posted, was retried by its
	// policy, or was reopened by an operator. A later owner does not change it. Zero: not claimed
	// since then.
	StartedAt  time.Time
	FinishedAt time.Time
	// ClaimableAt is the time at which a claimable job became claimable. Zero in other states.
	ClaimableAt time.Time
	DueAt       time.Time // when a delayed, cooling or waiting job becomes claimable; for a suspended or held job, the earliest time

	Claim    *Claim       // set while the job is claimed
	Reserved *Reservation // see Controller.Transfer; nil: any conductor can claim it
	// Token is the token of the current or latest claim. It outlives the claim, so the
	// board recognises a late repeat of the ending.
	Token Token

	// LastOwner is the owner of the latest ended claim, even while the job has another owner.
	// Empty: no claim has ended.
	LastOwner string

	Claims   int // number of claims
	Crashes  int // number of lost owners
	Failures int // number of abandons with a failure
	// Attempts is the number of failed attempts of a job with a retry policy, since the job
	// was posted or an operator restarted it.
	Attempts int
	// Attempted is the outcome of the latest failed attempt that did not end the job.
	Attempted   Outcome
	Parked      bool             // its retry policy holds the job until an operator decides
	Outcome     Outcome          // only for a completed job
	StopRequest *OperatorRequest // the latest stop request; nil: none, or withdrawn
	Reason      string           // reason of the latest abandon, trash or cancellation
	Failure     *logbook.Failure // the failure that ended the job or its latest claim
}

// Claim is the ownership of a job by a session.
type Claim struct {
	Session SessionID
	Owner   string // the session's name, for display
	Token   Token
	Since   time.Time
	// Expiry is the claim's own TTL. The claim ends that long after it was made or last
	// extended, even if its session is kept alive. 0: the claim ends with its session.
	Expiry     time.Duration
	Extensions int // number of extensions
	// Begins: the owner starts the job's flow before the start is recorded; see ClaimRequest.
	Begins bool
}

// HeldClaim is a claim in a list.
type HeldClaim struct {
	Job   JobID
	Board string
	Name  string // of the job
	Kind  string // of the job
	Claim Claim
	// Left is the time until the claim ends without keep-alive and extension. Silent is the
	// time since the session's last keep-alive. Only the leader, which has the timers, knows
	// them. Otherwise they are zero.
	Left   time.Duration
	Silent time.Duration
	// Suspect: Silent exceeds the silence of a healthy session; see SuspectAfter.
	Suspect bool
}

// Claimed is a claimed job with all data to start its work.
type Claimed struct {
	Job  Job
	Book *logbook.Book       // without flows; nil if the job has none
	Flow *logbook.FlowDetail // with atoms; nil if the job has none
}

// CheckOwner returns an error unless the session has the claim and the token of the job
// equals the token of the claim. Call it before the first write: with another token, the
// caller would write as another owner.
func (c *Claimed) CheckOwner(session SessionID) error {
	if claim := c.Job.Claim; claim == nil || claim.Session != session || claim.Token.IsZero() || claim.Token != c.Job.Token {
		return fmt.Errorf("the answer to a claim of session %s contains job %s, which this session does not hold; repeat the claim with its nonce", session, c.Job.ID)
	}
	return nil
}

// Ending ends a claim: the argument of Consume, Abandon and Trash.
type Ending struct {
	Job   JobID
	Token Token
	// Update is the last update of the job's flow. Update and ending are one atomic write:
	// both happen, or neither.
	Update  *logbook.Update
	Outcome Outcome          // only for Consume
	Reason  string           // one sentence, for display; empty for a cancelled job: the reason of the stop request
	Failure *logbook.Failure // the cause
	Delay   time.Duration    // only for Abandon: how long the job cools before it is claimable again
	// Waits, only for Abandon with a Delay: the job is waiting instead of cooling, because its flow cannot continue
	// before a signal, a publication, an approval, a time, or the next attempt of a step.
	Waits bool
	// Recorded: all started work of the flow is recorded, at the latest by Update. After a
	// claim with Begins, a flow without a record counts as not started only with Recorded.
	Recorded bool
	// Again, only for Consume with OutcomeSuccess, continues the job with another iteration of its flow. A job with a
	// cancel request ends instead. nil: the job ends.
	Again *Continuation
}

// Continuation starts the next iteration of a job's flow, in the log entry that ends the current iteration. The next
// iteration has a new flow detail. The job keeps its id, key, unread signals and deadline. The counts of its failures,
// crashes and attempts restart. The latest KeptIterations are kept.
type Continuation struct {
	Store logbook.Values // replaces values in the stores of the job and of the flow, by name; other values stay
	Delay time.Duration  // before the job can be claimed; at most logbook.MaxWait
}

// KeptIterations is the number of iterations of a job's flow that are kept, with the current one. The record of a job
// that continues without end stays small.
const KeptIterations = 10
