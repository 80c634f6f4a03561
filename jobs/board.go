package jobs

import (
	"context"
	"iter"
	"time"

	"github.com/conductord/conductord/logbook"
)

// Board is everything that can be done with jobs. Programs that need less
// take one of its parts.
//
// All methods may be called concurrently. An error that wraps ErrUnavailable
// says that nothing happened, one that wraps ErrUncertain that it may have;
// every call can be repeated after either, with the same arguments, without
// harm. Effects are durable when a method returns. Input over the limits is
// refused with ErrInvalid or ErrLimit and changes nothing. Every method
// returns early, with the context's error, when its context ends: then too it
// may or may not have happened.
type Board interface {
	Poster
	Reader
	Claimer
	Attendant
	Controller
	Historian
	Boards
	Conductors
}

// Poster puts jobs on boards.
type Poster interface {
	// Post accepts postings, each for itself: the answer has one Posted for
	// each, in order. The error is that of the call as a whole, and then the
	// answer is nil. A posting is refused with ErrConflict if its id stands
	// for another posting, or its flow is that of another unfinished job;
	// with ErrNotFound if its book or flow does not exist; with ErrInvalid if
	// it names no flow of a book that does not have exactly one. A posting with
	// the key of an unfinished job is answered with that job.
	Post(ctx context.Context, postings ...Posting) ([]Posted, error)
}

// Reader tells what is on the boards. Answers are linearizable: they show
// every write that had been acknowledged, to anybody, when the call began.
type Reader interface {
	// Job reads a job. ErrNotFound.
	Job(ctx context.Context, id JobID) (Job, error)

	// Jobs reads a page of jobs, in the order of the query, without details and
	// store. ErrInvalid.
	Jobs(ctx context.Context, query Query) (Page[Job], error)

	// Wait returns the job when it is finished; (*Job).Err says whether that was
	// a success. The board answers, without polling, when the job ends. A job of a
	// kind that nobody takes never ends: bound the context. ErrNotFound.
	Wait(ctx context.Context, id JobID) (Job, error)

	// Explain says why a job does not run now, and what would change that.
	// ErrNotFound.
	Explain(ctx context.Context, id JobID) (Explanation, error)

	// Watch yields events in order, without gap or repeat, and ends with the
	// context, or with an error: a *CompactedError if events after the position
	// are no longer kept. A slow reader loses nothing as long as what it has
	// yet to read is kept.
	Watch(ctx context.Context, watch Watch) iter.Seq2[Event, error]
}

// Query selects jobs. Its zero value selects all. An index leads to those with
// a key, with an error of a type, with a tag, and to the trashed ones; where
// several are asked for, the first of these counts.
type Query struct {
	Board     string    // empty: any
	States    []State   // empty: any
	Kind      string    // empty: any
	Key       string    // empty: any
	Tags      []string  // jobs that have all of them
	Name      string    // a part of it
	Outcomes  []Outcome // empty: any, and those that have none
	ErrorType string    // jobs with a kept error of this type; see JobError
	Order     Order     // zero: OrderPosted
	After     string    // Page.Next of the page before, of the same order; empty: from the first job on
	Limit     int       // 0 or over logbook.MaxPage: logbook.MaxPage

	// When it was posted, and when it was finished; To itself is not included.
	// Zero: any.
	PostedFrom, PostedTo     time.Time
	FinishedFrom, FinishedTo time.Time
}

// Order is the order of a listing of jobs.
type Order string

// The orders.
const (
	OrderPosted Order = ""       // as they were posted
	OrderNewest Order = "newest" // the one posted last first
	// OrderClaim: as they are claimed next. It lists the claimable jobs of one board,
	// DefaultBoard where the query names none, whatever labels they want.
	OrderClaim Order = "claim"
)

// Page is a part of a listing.
type Page[T any] = logbook.Page[T]

// Watch selects events. Its zero value selects all, from now on.
type Watch struct {
	After *Position // resume after this event; nil: from now on
	Board string    // empty: any
	Job   JobID     // zero: any
	Flows bool      // also events of kind EventFlow
	Owner string    // only events that concern the claims of owners of this name; empty: any

	Boards  []string    // these too, besides Board
	Kinds   []EventKind // only events of these kinds; empty: all but those that must be asked for
	JobKind string      // of the job; empty: any
	Key     string      // of the job; empty: any
	Tags    []string    // of the job: all of them
	// Sessions asks for events of sessions and entities too, which are of no
	// board and no job.
	Sessions bool
	// Others leaves out jobs that the owners of their claims have ended themselves, which
	// is what an Ending that is Recorded says. A board may send the events of some.
	Others bool

	// Begin asks for an event of kind EventBegun before all others. List what was
	// written before its position; the watch sends what comes after it.
	Begin bool
}

// Claimer takes jobs and lets go of them. The endings are symmetric: each
// takes the token of the claim, may carry the flow's last update, and is
// refused with ErrFenced if the claim is over, with ErrNotFound if the job is
// unknown. A repeat of the ending that took place is answered as it was.
type Claimer interface {
	// Claim takes one job for a session, also one with labels that the session does not
	// offer. The claim ends with the session; Extend gives it a time of its own. A repeat
	// with the same nonce gives the same claim again. ErrNotFound, ErrUnclaimable,
	// ErrSessionExpired; ErrLimit at MaxClaims.
	Claim(ctx context.Context, session SessionID, job JobID, nonce Nonce) (Claimed, error)

	// ClaimNext takes the first jobs in order that match, at least one and at
	// most request.Max; fewer where they are large, so that the answer fits
	// into a message. It waits until there is one, for request.Wait at most,
	// and then returns none. Keep the nonce until a call has returned claims:
	// a try whose answer was lost may still claim after a later call
	// has returned none, and the next call with the nonce returns those claims.
	// ErrUnclaimable: all claims made with the nonce have ended; use a new one.
	// ErrSessionExpired; ErrLimit.
	ClaimNext(ctx context.Context, request ClaimRequest) ([]Claimed, error)

	// Consume completes the job because its flow has ended. If it ended in a failure,
	// the RetryPolicy may keep the job for another attempt or for a person instead.
	Consume(ctx context.Context, ending Ending) error

	// Abandon releases the job, for others to claim after ending.Delay. A job
	// with a stop request ends as that says: see Controller.
	Abandon(ctx context.Context, ending Ending) error

	// Extend gives a claim a time of its own, which begins now. The claim ends after
	// it, unless it is extended again. The leader measures the time, and a new leader
	// measures the whole time again: a claim may last longer than its time, and never
	// shorter. ErrFenced for another token, and if the claim has ended; ErrNotFound;
	// ErrInvalid unless the time is between MinTTL and MaxExpiry.
	Extend(ctx context.Context, job JobID, token Token, expiry time.Duration) error

	// Trash puts the job aside: nobody can do it.
	Trash(ctx context.Context, ending Ending) error
}

// ClaimRequest says what a session is ready to take.
type ClaimRequest struct {
	Session SessionID
	Nonce   Nonce    // required: NewNonce for the first call, and after each that has returned claims
	Boards  []string // empty: DefaultBoard
	Kinds   []string // what it can do; empty: jobs of any kind
	Labels  []string // what it offers: jobs that want others are left for others
	Max     int      // 0: 1
	// Expiry is a time of its own for each claim: it ends then, unless it is
	// extended, however well the session lives. 0: it ends with the session.
	Expiry time.Duration
	Wait   time.Duration
	// Begins says that the new owner of a job begins its flow at once, before that is
	// recorded. Until then the claim stands for the record. If the claim ends without
	// an Ending that is Recorded, and nothing of the flow is recorded, the flow may
	// have begun (logbook.FlowDetail.Begun), and the next owner treats it as one that
	// has.
	Begins bool
}

// ClaimQuery selects claims. Its zero value selects all.
type ClaimQuery struct {
	Job     JobID     // zero: any; with one, HeldClaim.Left is when its claim ends
	Owner   string    // name of the session; empty: any
	Session SessionID // zero: any
	Board   string    // empty: any
	After   string    // Page.Next of the page before; empty: from the first one on
	Limit   int       // 0 or over logbook.MaxPage: logbook.MaxPage
}

// Attendant looks after sessions and the entities that live with them.
type Attendant interface {
	// OpenSession opens a session. ErrConflict if its id was used before with other
	// content, ErrSessionExpired if that session is over.
	OpenSession(ctx context.Context, opening Opening) (Session, error)

	// KeepAlive gives the session a full TTL from now. It writes nothing.
	// ErrSessionExpired.
	KeepAlive(ctx context.Context, id SessionID) error

	// CloseSession ends a session at once. Its jobs are claimable without a cool-down,
	// and its entities are removed. ErrSessionExpired if it has ended already.
	CloseSession(ctx context.Context, id SessionID) error

	// Register makes an entity of the session known, or replaces it.
	// ErrSessionExpired.
	Register(ctx context.Context, id SessionID, entity Entity) error

	// Sessions reads the open sessions, in the order of their ids.
	Sessions(ctx context.Context) ([]Session, error)

	// Claims reads a page of the claims that are held, by session, and those of
	// a session in the order in which they were made.
	Claims(ctx context.Context, query ClaimQuery) (Page[HeldClaim], error)

	// Entities reads the entities of a kind, or of all kinds if it is empty,
	// by kind and name.
	Entities(ctx context.Context, kind string) ([]Entity, error)
}
