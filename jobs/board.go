package jobs

import (
	"context"
	"iter"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Board has all operations on jobs. Programs that need fewer depend on one of the embedded
// interfaces.
//
// These rules apply to all methods:
//
//   - Methods may be called concurrently.
//   - Effects are durable when a method returns without an error.
//   - ErrUnavailable means that the call had no effect. ErrUncertain means that it may have
//     had its effect. After either, repeating the call with the same arguments is harmless.
//   - Input over the limits is refused with ErrInvalid or ErrLimit, and changes nothing.
//   - A method returns the context's error when its context ends. The call may have had its
//     effect.
type Board interface {
	Poster
	Reader
	Claimer
	Attendant
	Controller
	Signaller
	Publisher
	Approver
	Historian
	Boards
	Conductors
}

// Poster puts jobs on boards.
type Poster interface {
	// Post posts jobs. The result has one Posted for each posting, in order; a refused
	// posting does not affect the others. If the whole call fails, Post returns an error and
	// no result.
	//
	// Posted.Err is ErrConflict if the id belongs to another posting, or if the flow belongs to another unfinished job.
	// It is ErrNotFound if the book or the flow does not exist. It is ErrInvalid if the posting names no flow, and the
	// book does not have exactly one flow. For a posting with the key of an unfinished job, Posted.Job is that job.
	Post(ctx context.Context, postings ...Posting) ([]Posted, error)
}

// Reader reads jobs and their events. Reads are linearizable: they show every write that
// any caller saw acknowledged before the read started.
type Reader interface {
	// Job reads a job. ErrNotFound.
	Job(ctx context.Context, id JobID) (Job, error)

	// Jobs reads a page of jobs, in the order of the query, without details and
	// store. ErrInvalid for an invalid query.
	Jobs(ctx context.Context, query Query) (Page[Job], error)

	// Wait waits, without polling, until a job is finished, or until only an operator can
	// continue it (State.NeedsOperator), and returns the job. (*Job).Err returns nil for a
	// success. Without a worker for its kind, a job never ends: use a context with a
	// deadline. ErrNotFound.
	Wait(ctx context.Context, id JobID) (Job, error)

	// Step reads a step of a job's flow; see Step. Name an instance of a step in an each with its index, such as
	// send[2]. ErrNotFound if the job or its flow has no such step; ErrInvalid for a step that only has
	// instances.
	Step(ctx context.Context, job JobID, step string) (Step, error)

	// WaitStep waits, without polling, until a step has ended, or until only an operator can continue the job
	// (Step.Settled), and returns the step. It returns at once if the step has ended in the current record. It waits
	// for a step that the flow does not have yet. ErrNotFound if the flow's definition shows that there is no such
	// step, or if the flow ends without the instance.
	WaitStep(ctx context.Context, job JobID, step string) (Step, error)

	// Explain returns why a job does not run now, and a remedy. ErrNotFound.
	Explain(ctx context.Context, id JobID) (Explanation, error)

	// Watch yields events in order, without gap or repeat. It ends when the context ends, or
	// yields an error as the last item: a *CompactedError if events after the position are
	// no longer kept. A slow reader loses no event while the board keeps its unread events.
	Watch(ctx context.Context, watch Watch) iter.Seq2[Event, error]
}

// Query selects jobs. Its zero value selects all jobs. Key, ErrorType, Tags and the state
// trashed have an index. The first of them that is set, in this order, finds the jobs; all
// other fields only filter.
type Query struct {
	Board     string    // empty: any
	States    []State   // empty: any
	Kind      string    // empty: any
	Key       string    // empty: any
	Tags      []string  // jobs with all of these tags
	Name      string    // a part of the name
	Outcomes  []Outcome // empty: any, and jobs without an outcome
	ErrorType string    // jobs with a kept error of this type; see JobError
	Order     Order     // zero: OrderPosted
	After     string    // Page.Next of the previous page, with the same Order; empty: first page
	Limit     int       // 0 or over logbook.MaxPage: logbook.MaxPage

	// Times of posting and of the end; the To times are exclusive. Zero: any.
	PostedFrom, PostedTo     time.Time
	FinishedFrom, FinishedTo time.Time
}

// Order is the order of a list of jobs.
type Order string

// The orders.
const (
	OrderPosted Order = ""       // posting order
	OrderNewest Order = "newest" // reverse posting order
	// OrderClaim is the order in which jobs are claimed. It lists the claimable jobs of one
	// board, by default DefaultBoard, regardless of their labels.
	OrderClaim Order = "claim"
)

// Page is a part of a list.
type Page[T any] = logbook.Page[T]

// Watch selects events. Its zero value selects events of all boards and jobs, starting now.
type Watch struct {
	After *Position // resume after this event; nil: start now
	Board string    // empty: any
	Job   JobID     // zero: any
	Flows bool      // include events of kind EventFlow
	Owner string    // only events of claims of owners with this name; empty: any

	Boards  []string    // further boards, in addition to Board
	Kinds   []EventKind // only events of these kinds; empty: all, with Flows and Sessions
	JobKind string      // kind of the job; empty: any
	Key     string      // key of the job; empty: any
	Tags    []string    // jobs with all of these tags
	// Sessions includes events of sessions and entities, which belong to no board and no
	// job.
	Sessions bool
	// Others omits endings by the owners themselves with Ending.Recorded. A board may
	// still send some of them.
	Others bool

	// Begin asks for an EventBegun before all other events. To miss nothing, read the jobs
	// after EventBegun: the watch sends all later events.
	Begin bool
}

// Claimer claims jobs and ends claims. Consume, Abandon and Trash end a claim. Each takes
// the token of the claim, and can carry the last update of the flow. ErrFenced if the claim
// has ended, ErrNotFound if the job is unknown. Repeating an ending that took effect returns
// the same result.
type Claimer interface {
	// Claim claims one job for a session, regardless of the job's labels. The claim ends
	// with the session; Extend gives it its own TTL. A repeat with the same nonce returns the
	// same claim. ErrNotFound, ErrUnclaimable, ErrSessionExpired; ErrLimit at MaxClaims.
	Claim(ctx context.Context, session SessionID, job JobID, nonce Nonce) (Claimed, error)

	// ClaimNext claims the first matching jobs in claim order, at most request.Max. It
	// claims fewer if they are large, so that the answer fits into a message. It waits for
	// a job, at most request.Wait, and then returns no claims and no error.
	//
	// Keep the nonce until a call has returned claims. An attempt with a lost answer can
	// still claim jobs later, and only a call with its nonce returns those claims.
	//
	// ErrUnclaimable: all claims made with the nonce have ended; use a new nonce.
	// ErrSessionExpired; ErrLimit at MaxClaims.
	ClaimNext(ctx context.Context, request ClaimRequest) ([]Claimed, error)

	// Consume completes a job whose work has ended. ending.Outcome must agree with the state
	// of the job's flow: ErrInvalid. After OutcomeReverted or OutcomeFailed, the job's
	// RetryPolicy can instead start another attempt, or park the job.
	Consume(ctx context.Context, ending Ending) error

	// Abandon releases a job, for others to claim after ending.Delay. A stop request of the
	// job takes effect then: see Controller.
	Abandon(ctx context.Context, ending Ending) error

	// Extend sets or replaces the claim's own TTL, which starts now. The claim ends after
	// that time unless it is extended again. The leader measures the time, and a new leader
	// starts it again: a claim can last longer than its TTL, and never shorter. ErrFenced
	// for another token, and if the claim has ended; ErrNotFound; ErrInvalid unless expiry
	// is between MinTTL and MaxExpiry.
	Extend(ctx context.Context, job JobID, token Token, expiry time.Duration) error

	// Trash sets a job aside permanently, because no worker can do it. Only an operator can
	// retry it.
	Trash(ctx context.Context, ending Ending) error
}

// ClaimRequest selects the jobs that a session can claim.
type ClaimRequest struct {
	Session SessionID
	Nonce   Nonce    // required: make a new one for the first call, and after each call that returned claims
	Boards  []string // empty: DefaultBoard
	Kinds   []string // kinds of job; empty: any
	Labels  []string // labels that the session offers; jobs with other labels are skipped
	Max     int      // maximum number of claims; 0: 1
	// Expiry is the TTL of each claim. The claim ends after that time unless it is
	// extended, even if the session is kept alive. 0: the claim ends with the session.
	Expiry time.Duration
	Wait   time.Duration // maximum wait for a job
	// Begins: the owner starts steps of a claimed job before their start is recorded: the first steps of its flow, or
	// the steps after a wait that a signal has ended. If such a claim ends before the owner has recorded anything, and
	// without Ending.Recorded, these steps may have run: logbook.FlowDetail.Begun is set, and the next owner treats
	// them as running.
	Begins bool
}

// ClaimQuery selects claims. Its zero value selects all claims.
type ClaimQuery struct {
	Job     JobID     // zero: any
	Owner   string    // name of the session; empty: any
	Session SessionID // zero: any
	Board   string    // empty: any
	After   string    // Page.Next of the previous page; empty: first page
	Limit   int       // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Attendant manages sessions and their entities. Every method with a session id returns
// ErrSessionExpired if the session is unknown or has ended.
type Attendant interface {
	// OpenSession opens a session. A repeat returns the same session. ErrConflict if the id
	// was used with other content, ErrSessionExpired if the session of the id has ended.
	OpenSession(ctx context.Context, opening Opening) (Session, error)

	// KeepAlive gives the session a full TTL, starting now. It writes nothing to the log.
	KeepAlive(ctx context.Context, id SessionID) error

	// CloseSession ends a session at once. Its jobs are claimable without a cool-down,
	// and its entities are removed.
	CloseSession(ctx context.Context, id SessionID) error

	// Register registers an entity of the session, or replaces it.
	Register(ctx context.Context, id SessionID, entity Entity) error

	// Sessions reads the open sessions, sorted by id.
	Sessions(ctx context.Context) ([]Session, error)

	// Claims reads a page of current claims, sorted by session, and within a session by
	// the time of the claim.
	Claims(ctx context.Context, query ClaimQuery) (Page[HeldClaim], error)

	// Entities reads the entities of a kind, sorted by kind and name. An empty kind means
	// all kinds.
	Entities(ctx context.Context, kind string) ([]Entity, error)
}
