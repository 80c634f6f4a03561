// Package jobs is the board as a contract: jobs that are posted, claimed and
// finished, the sessions that hold the claims, and the guarantees of both.
//
// A Posting becomes a Job on a board. A Session claims it and gets a Claim
// with a Token. Every write under the claim shows the token, and the board
// refuses all but the latest. A session that is not kept alive expires: its
// jobs cool down for a moment and are then claimable by others, under higher
// tokens. A job ends by being consumed (its work is done, one way or another)
// or trashed (nobody can do it); abandoning it releases it. Operators suspend, resume
// and cancel jobs by a JobCommand, without a claim.
//
// A program posts with NewPosting and PostOne, to a *raftboard.Client. await.Result, in
// the package below this one, waits for the job and returns its flow:
//
//	client, err := raftboard.Dial(ctx, "127.0.0.1:7070")
//	job, err := jobs.PostOne(ctx, client, jobs.NewPosting("greet", nil, map[string]any{"name": "Ada"}))
//	result, err := await.Result(ctx, client, job.ID)
//	err = result.Decode("text", &text) // into a string
//
// A worker need not claim by hand: conductor.Run keeps the session, and runs the flow of
// each job or calls a function for it.
//
// Guarantees, for every implementation (package jobstest checks them): a job
// that was accepted is never lost; it has one owner at a time; the order is
// priority, then posting order; repeating a call with the same ids is
// harmless.
package jobs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/conductord/conductord/logbook"
)

// JobID names a job. The poster makes it, so that posting the same job twice
// is a repeat and not a second job.
type JobID struct{ uuid.UUID }

// SessionID names a session. Its owner makes it.
type SessionID struct{ uuid.UUID }

// Nonce names one request for claims, so that asking again after a lost
// answer gives the same claims and not more.
type Nonce struct{ uuid.UUID }

// NewJobID makes an id that sorts by the time it was made (UUID version 7).
func NewJobID() JobID { return JobID{uuid.Must(uuid.NewV7())} }

// NewSessionID makes a random id: nobody should guess another's session.
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

// IsZero reports whether the id was never set.
func (id JobID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the id was never set.
func (id SessionID) IsZero() bool { return id.UUID == uuid.Nil }

// IsZero reports whether the nonce was never set.
func (n Nonce) IsZero() bool { return n.UUID == uuid.Nil }

// Token is the fence of a claim; see logbook.Token.
type Token = logbook.Token

// DefaultBoard is the board that exists without being made.
const DefaultBoard = "default"

// State is where a job stands.
//
//	post ──► held ──(release)──► delayed, or claimable if it is due
//	post ──► delayed ──(due)──► claimable ──(claim)──► claimed ──(consume)──► completed
//	   └────────────────────────► ▲   ▲                │ │ │ └───(trash)────► trashed
//	                              │   └───(abandon)────┘ │ │
//	                              │                      │ └─(expiry, too many crashes)─► trashed
//	                              └────(due)── cooling ◄─┘ (expiry; abandon with a delay)
//
//	delayed, claimable, cooling ──(change of the not-before time)──► claimable, delayed
//	held, delayed, claimable, cooling ──(suspend)──► suspended ──(resume)──► as before
//	claimed, under a request to suspend ──(abandon, expiry)──► suspended
//	claimed, with a later not-before time ──(abandon, expiry)──► delayed
//	held, delayed, claimable, cooling, suspended ──(cancel)──► completed
//	claimed, under a request to cancel ──(consume, abandon, expiry)──► completed
//
//	claimed ──(consume of a failed attempt, by its RetryPolicy)──► cooling, or parked: held
//	held, parked ──(a person intervenes in its flow)──► claimable
//
// A job's deadline cancels it too, and its flow is undone.
//
// The lines about cancelling leave out a job whose flow must be undone: it is claimable
// until an owner has done that. Controller has the whole tables of requests and changes.
//
//	completed, trashed ──(a person intervenes in the failed flow)──► claimable
//	such a job, unclaimed ──(that is taken back; cancel)──► completed
//	trashed; completed without a flow, and failed ──(restore)──► held, delayed or claimable
//	trashed, under a request to cancel that left nothing to undo ──(restore)──► completed
//	completed, trashed ──(purge)──► gone
//
// Otherwise completed and trashed are final; such jobs are kept until the retention
// policy removes them.
type State string

// The states of a job.
const (
	StateDelayed   State = "delayed"   // waits for its not-before time
	StateClaimable State = "claimable" // waits for a conductor
	StateCooling   State = "cooling"   // waits a moment after an expiry, as its abandoner asked, or for its next attempt
	StateClaimed   State = "claimed"   // has an owner
	StateCompleted State = "completed" // consumed; Outcome says how it went
	StateTrashed   State = "trashed"   // cannot be done; Failure says why
	StateSuspended State = "suspended" // waits for a person to resume it; StopRequest says who stopped it
	StateHeld      State = "held"      // waits until a person releases it: it was posted so, or is parked
)

// States are all states, in the order of a job's life; later additions
// stand at the end, since places in this list are stored.
var States = []State{
	StateDelayed, StateClaimable, StateCooling, StateClaimed, StateCompleted, StateTrashed, StateSuspended, StateHeld,
}

// ParseState reads the name of a state.
func ParseState(text string) (State, error) {
	for _, state := range States {
		if string(state) == text {
			return state, nil
		}
	}
	return "", &logbook.InvalidError{Field: "state", Reason: fmt.Sprintf("%.64q is none of %v", text, States)}
}

// Finished reports whether the state is final. Only an operator changes such a job, by
// Controller.Intervene or by Historian.
func (s State) Finished() bool { return s == StateCompleted || s == StateTrashed }

// Outcome says how a completed job went.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess  Outcome = "success"  // its flow has done all of its work
	OutcomeReverted Outcome = "reverted" // its flow has failed and undone what it did
	OutcomeFailed   Outcome = "failed"   // its flow has failed, and could not undo everything: a person is needed
	// OutcomeCancelled: a person has ended it; its flow is undone, or was left
	// as it stood.
	OutcomeCancelled Outcome = "cancelled"
)

// Posting is the request for a new job. Only the three fields that a Change can set
// change afterwards.
type Posting struct {
	ID       JobID    // zero: Post makes one; set it to make a repeated Post safe across restarts of the caller
	Board    string   // empty: DefaultBoard
	Name     string   // for people; need not be unique
	Priority Priority // higher is claimed first

	// The work: a book to save with the job, or one that is saved already.
	// Neither: a job without a flow.
	Book   *logbook.Book
	BookID logbook.BookID
	// Flow is the flow of the book to run; zero where the book has only one.
	Flow logbook.FlowID
	// Kind is for a job without a flow: what its workers ask for. The kind of
	// a job with a flow is the name of the flow's factory.
	Kind string

	Details   json.RawMessage // anything that the poster wants to keep with the job
	Store     logbook.Values  // values for the flow's steps, over those of the flow
	NotBefore time.Time       // zero: at once
	Hold      bool            // nobody gets the job until it is released

	// Key names what the job is about. At most one unfinished job of a board
	// has it: posting another one answers with that job and makes none, but
	// gives it the priority and the front of the posting if they are higher.
	// A finished job keeps its key. It cannot come back while an unfinished job has the key.
	Key        string
	Front      bool     // before the others of its priority; of several such, the last comes first
	Tags       []string // to be found by, each once
	MaxCrashes int      // how many owners it may cost before it is trashed; 0: as the cluster has it
	Labels     []string // what an owner must offer, each once: ClaimNext gives the job only to who offers all
	// Deadline is when the work must be done. A job that is not finished then
	// is cancelled by the board, with what its flow has done undone, as by a
	// person's stop request; see ByDeadline. Nobody can claim it after that for
	// anything else.
	Deadline time.Time
	// Retry says what becomes of the job when its work has failed; nil: it is
	// completed.
	Retry *RetryPolicy
	// Retention is how long the job is kept when it is finished, however it has
	// ended, and its book if no other job refers to that. Of such jobs the
	// cluster keeps as many as of others, and then gives up those whose time
	// is over first. 0: as the cluster has it.
	Retention time.Duration
	// Traceparent is the W3C trace context of the span that posts the job, to which its
	// trace belongs. Empty: *raftboard.Client takes it from the context of Post, and
	// without a span there the job begins a trace of its own.
	Traceparent string
	// Err is why NewPosting or NewPlainPosting could not make it. Post and SaveSchedule
	// refuse it with this error.
	Err error
}

// Posted is what became of one posting.
type Posted struct {
	Job     Job
	Existed bool  // the job had been posted before: by a call that this one repeats, or under the same key
	Err     error // why it was refused; then Job holds only its ID
}

// Job is a posting and what has become of it.
type Job struct {
	ID       JobID
	Board    string
	Name     string
	Kind     string
	Priority Priority // as it was said
	// Effective is what an unfinished job of a board that ages jobs counted for
	// when it was read by Reader's Job: its priority, and the steps by which
	// waiting has raised it. nil: the board ages none, or it was read otherwise.
	Effective *Priority
	Sequence  uint64 // the posting order across all boards
	State     State
	Book      logbook.BookID
	BookName  string
	Flow      logbook.FlowID
	Details   json.RawMessage
	Store     logbook.Values
	NotBefore time.Time
	Held      bool // it was posted so, or is parked, and nobody has released it yet

	Key        string
	Front      uint64 // the log index at which it was put before its equals; 0: it was not
	Tags       []string
	MaxCrashes int
	Labels     []string // in their order

	Deadline  time.Time
	Retry     *RetryPolicy
	Retention time.Duration // see Posting
	Size      uint64        // bytes of the posting, which count against the limits of its board

	// Schedule is the name of the schedule that posted the job, and Slot the slot. Empty
	// and zero: the job was posted otherwise, also by Again from a scheduled one.
	Schedule string
	Slot     time.Time

	PostedBy    string // the principal; empty without access control
	Traceparent string // see Posting
	PostedAt    time.Time
	ModifiedAt  time.Time
	// StartedAt is when it was first claimed, since it was posted or a person reopened it:
	// another owner goes on with the same work. Zero: not yet.
	StartedAt  time.Time
	FinishedAt time.Time
	// ClaimableAt is since when a claimable job is that.
	ClaimableAt time.Time
	DueAt       time.Time // when a delayed or cooling job becomes claimable; of a suspended or held one, not before which

	Claim    *Claim       // set while the job is claimed
	Reserved *Reservation // see Controller.Transfer; nil: any conductor can claim it
	// Token is that of the present or the last claim; it outlives the claim,
	// so that a late repeat of the job's end is known as one. Of a job that was
	// reopened, it is that of the intervention.
	Token Token

	// LastOwner is the owner of the last claim that has ended, also while another has the
	// job; empty: none has ended.
	LastOwner string

	Claims   int // how often it was claimed
	Crashes  int // how often its owner vanished
	Failures int // how often it was abandoned with a failure
	// Attempts is how many attempts have failed of a job that has a retry policy,
	// since it was posted or a person has had it begin anew.
	Attempts int
	// Attempted is how the last of these ended, if it has not ended the job.
	Attempted   Outcome
	Parked      bool             // it is held by its retry policy, for a person
	Outcome     Outcome          // of a completed job
	StopRequest *OperatorRequest // the last stop request that was given, unless it was lifted
	Reason      string           // why it was last abandoned, trashed or cancelled
	Failure     *logbook.Failure // the evidence
}

// Claim ties a job to a session.
type Claim struct {
	Session SessionID
	Owner   string // the session's name, for people
	Token   Token
	Since   time.Time
	// Expiry is the claim's own time: however well the
	// session lives, the claim ends that long after it was made or last
	// extended. 0: it has none, and ends with its session.
	Expiry     time.Duration
	Extensions int // how often it was extended
	// Begins: its owner begins the job's flow at once; see ClaimRequest.
	Begins bool
}

// HeldClaim is a claim as one of a listing.
type HeldClaim struct {
	Job   JobID
	Board string
	Name  string // of the job
	Kind  string // of the job
	Claim Claim
	// Left is how long the claim has to go unless its session is kept alive
	// and it is extended, and Silent how long the session has not been heard.
	// They are only known where the timers are, and zero elsewhere.
	Left   time.Duration
	Silent time.Duration
	// Suspect: the session has been silent for longer than one that is well.
	Suspect bool
}

// Claimed is the answer to a claim: all that is needed to start the work.
type Claimed struct {
	Job  Job
	Book *logbook.Book       // without flows; nil if the job has none
	Flow *logbook.FlowDetail // with its atoms; nil if the job has none
}

// CheckOwner returns an error unless the session holds the claim and the job's
// token is the claim's. With another token the caller would write as another owner.
func (c *Claimed) CheckOwner(session SessionID) error {
	if claim := c.Job.Claim; claim == nil || claim.Session != session || claim.Token.IsZero() || claim.Token != c.Job.Token {
		return fmt.Errorf("the answer to a claim of session %s carries job %s, which that session does not hold; repeat the claim with its nonce", session, c.Job.ID)
	}
	return nil
}

// Ending is how an owner lets go of a job.
type Ending struct {
	Job   JobID
	Token Token
	// Update is the last update of the job's flow. It is applied in the same
	// indivisible write as the ending: both happen, or neither.
	Update  *logbook.Update
	Outcome Outcome          // Consume only
	Reason  string           // one sentence for a person; of a cancelled job, empty: that of the stop request
	Failure *logbook.Failure // the evidence
	Delay   time.Duration    // Abandon only: how long the job cools before it is claimable again
	// Recorded says that everything the owner has begun of the flow is recorded already,
	// or by Update. After a claim that Begins, only this proves that a flow without a
	// record has not begun.
	Recorded bool
}
