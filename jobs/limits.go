package jobs

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/conductord/conductord/internal/traceparent"
	"github.com/conductord/conductord/logbook"
)

// Limits that cannot be configured.
const (
	// MaxBoards bounds the boards of one request or entity.
	MaxBoards = 32
	// MaxKinds bounds the kinds of one request or entity. Together with MaxBoards it bounds
	// the queues that a claim reads.
	MaxKinds = 256
	// MaxMetadata bounds the metadata of an entity, in bytes, so that a list of many
	// entities fits into one answer.
	MaxMetadata = 16 << 10
	// MaxReason bounds a reason, in bytes. A reason is one sentence, and is part of every
	// event and list. Longer texts belong in the failure.
	MaxReason = 4 << 10
	// MaxTags bounds the tags of a job, and MaxTagBytes their total size, because tags are
	// part of every list.
	MaxTags     = 32
	MaxTagBytes = 1 << 10
	// MaxLabels bounds the labels of a job. MaxLabelBytes bounds their total size with one
	// separator byte between labels, because the labels are part of a key.
	MaxLabels     = 16
	MaxLabelBytes = 255
	// MaxOffered bounds the labels that one request or entity offers, and
	// MaxOfferedBytes their total size.
	MaxOffered      = 64
	MaxOfferedBytes = 4 << 10
	// MaxMaxCrashes limits Posting.MaxCrashes. A job that loses more owners than that probably
	// causes their loss.
	MaxMaxCrashes = 1_000
	// MinRetention and MaxRetention bound Posting.Retention. A client that waits for a job
	// needs time to read the finished job. Records of years belong elsewhere.
	MinRetention = time.Second
	MaxRetention = 365 * 24 * time.Hour
	// MinDeadlineAfter and MaxDeadlineAfter bound Posting.DeadlineAfter. A shorter time is over before a conductor can
	// claim the job. A deadline of years is a mistake.
	MinDeadlineAfter = time.Second
	MaxDeadlineAfter = 365 * 24 * time.Hour
	// MaxDelay bounds Ending.Delay.
	MaxDelay = logbook.MaxDelay
)

const day = 24 * time.Hour

// CheckPosting checks a posting before it is written. The board checks that its book and
// flow exist.
func CheckPosting(l logbook.Limits, p *Posting) error {
	if p.Err != nil {
		return p.Err
	}
	if err := l.CheckName("posting name", p.Name); err != nil {
		return err
	}
	if err := CheckOptionalName(l, "posting board", p.Board); err != nil {
		return err
	}
	if err := checkWork(l, p); err != nil {
		return err
	}
	if err := CheckOptionalName(l, "posting key", p.Key); err != nil {
		return err
	}
	if err := checkWords(l, "posting tags", p.Tags, MaxTags, MaxTagBytes); err != nil {
		return err
	}
	if err := checkWords(l, "posting labels", p.Labels, MaxLabels, MaxLabelBytes-max(len(p.Labels)-1, 0)); err != nil {
		return err
	}
	switch {
	case !p.Deadline.IsZero() && !p.Deadline.After(p.NotBefore):
		return &logbook.InvalidError{Field: "posting deadline", Reason: "is not after not_before"}
	case !p.Deadline.IsZero() && p.DeadlineAfter != 0:
		return &logbook.InvalidError{Field: "posting deadline_after", Reason: "set together with deadline; set only one of the two"}
	case p.DeadlineAfter != 0 && (p.DeadlineAfter < MinDeadlineAfter || p.DeadlineAfter > MaxDeadlineAfter):
		return &logbook.InvalidError{
			Field: "posting deadline_after", Reason: fmt.Sprintf("%s is not between %s and %d days", p.DeadlineAfter, MinDeadlineAfter, MaxDeadlineAfter/day),
		}
	case p.Retention != 0 && (p.Retention < MinRetention || p.Retention > MaxRetention):
		return &logbook.InvalidError{
			Field: "posting retention", Reason: fmt.Sprintf("%s is not between %s and %d days", p.Retention, MinRetention, MaxRetention/day),
		}
	case p.MaxCrashes < 0:
		return &logbook.InvalidError{Field: "posting max_crashes", Reason: "negative"}
	case p.MaxCrashes > MaxMaxCrashes:
		return &logbook.LimitError{Field: "posting max_crashes", Limit: MaxMaxCrashes, Size: int64(p.MaxCrashes), Unit: "crashes"}
	}
	if p.Traceparent != "" {
		if _, err := traceparent.Parse("posting traceparent", p.Traceparent); err != nil {
			return err
		}
	}
	if err := CheckRetryPolicy(l, p.Retry); err != nil {
		return err
	}
	if err := l.CheckValue("posting details", p.Details); err != nil {
		return err
	}
	if err := checkPostingSignal(l, p); err != nil {
		return err
	}
	return l.CheckValues("posting store", p.Store)
}

// checkWork checks the work of a posting: a flow of a book, or a kind.
func checkWork(l logbook.Limits, p *Posting) error {
	switch {
	case p.Book == nil && p.BookID.IsZero() && !p.Flow.IsZero():
		return &logbook.InvalidError{Field: "posting flow", Reason: "set without a book; a flow is found in its book"}
	case p.Book == nil && p.BookID.IsZero():
		return CheckOptionalName(l, "posting kind", p.Kind)
	case p.Kind != "":
		return &logbook.InvalidError{
			Field: "posting kind", Reason: "set together with a book; the kind of a job with a flow is the name of the flow's factory",
		}
	case p.Book == nil:
		return nil
	case !p.BookID.IsZero() && p.BookID != p.Book.ID:
		return &logbook.InvalidError{Field: "posting book_id", Reason: "differs from the book in the posting"}
	case p.Flow.IsZero() && len(p.Book.Flows) > 1:
		return &logbook.InvalidError{
			Field: "posting flow", Reason: fmt.Sprintf("not set; a book with %d flows requires it", len(p.Book.Flows)),
		}
	}
	return l.CheckBook(p.Book)
}

// CheckEnding checks an ending before it is written. The caller checks the fields that
// only one kind of ending allows.
func CheckEnding(l logbook.Limits, e *Ending) error {
	switch {
	case e.Job.IsZero():
		return &logbook.InvalidError{Field: "ending job", Reason: "unset"}
	case e.Token.IsZero():
		return &logbook.InvalidError{Field: "ending token", Reason: "unset"}
	case len(e.Reason) > MaxReason:
		return &logbook.LimitError{Field: "ending reason", Limit: MaxReason, Size: int64(len(e.Reason)), Unit: "bytes"}
	case !utf8.ValidString(e.Reason):
		return &logbook.InvalidError{Field: "ending reason", Reason: "not UTF-8"}
	case e.Delay < 0 || e.Delay > MaxDelay:
		return &logbook.InvalidError{
			Field: "ending delay", Reason: fmt.Sprintf("%s is not between 0s and %s", e.Delay, MaxDelay),
		}
	}
	if err := l.CheckFailure("ending failure", e.Failure); err != nil {
		return err
	}
	if err := checkContinuation(l, e); err != nil {
		return err
	}
	if e.Update == nil {
		return nil
	}
	return l.CheckUpdate(e.Update)
}

func checkContinuation(l logbook.Limits, e *Ending) error {
	again := e.Again
	switch {
	case again == nil:
		return nil
	case e.Outcome != OutcomeSuccess:
		return &logbook.InvalidError{Field: "ending again", Reason: fmt.Sprintf("set, and the outcome is %s; only a success can continue", e.Outcome)}
	case again.Delay < 0 || again.Delay > logbook.MaxWait:
		return &logbook.InvalidError{Field: "ending again delay", Reason: fmt.Sprintf("%s is not between 0s and %s", again.Delay, logbook.MaxWait)}
	}
	return l.CheckValues("ending again store", again.Store)
}

// CheckJobCommand checks a command about a job before it is written. The caller checks the
// fields that only one command allows, such as Revert.
func CheckJobCommand(l logbook.Limits, c *JobCommand) error {
	switch {
	case c.Steps != StepsDefault && c.Steps != StepsInterrupt && c.Steps != StepsFinish:
		return &logbook.InvalidError{Field: "command steps", Reason: fmt.Sprintf("%.64q is neither %s nor %s", c.Steps, StepsInterrupt, StepsFinish)}
	case c.Grace < 0 || c.Grace > MaxGrace:
		return &logbook.InvalidError{Field: "command grace", Reason: fmt.Sprintf("%s is not between 0s and %s", c.Grace, MaxGrace)}
	case c.Within < 0 || c.Within > MaxReservation:
		return &logbook.InvalidError{Field: "command within", Reason: fmt.Sprintf("%s is not between 0s and %s", c.Within, MaxReservation)}
	}
	return checkDirective(l, "command", directive{c.Job, c.By, c.Reason})
}

// directive has the common fields of all operators' requests about a job.
type directive struct {
	job        JobID
	by, reason string
}

func checkDirective(l logbook.Limits, what string, d directive) error {
	if d.job.IsZero() {
		return &logbook.InvalidError{Field: what + " job", Reason: "unset"}
	}
	return checkSaid(l, what, d.by, d.reason)
}

// checkSaid checks the fields By and Reason of an operator's request.
func checkSaid(l logbook.Limits, what, by, reason string) error {
	switch {
	case len(reason) > MaxReason:
		return &logbook.LimitError{Field: what + " reason", Limit: MaxReason, Size: int64(len(reason)), Unit: "bytes"}
	case !utf8.ValidString(reason):
		return &logbook.InvalidError{Field: what + " reason", Reason: "not UTF-8"}
	}
	return CheckOptionalName(l, what+" by", by)
}

// CheckOpening checks an opening before it is written. A TTL of zero means
// DefaultTTL.
func CheckOpening(l logbook.Limits, o *Opening) error {
	switch {
	case o.ID.IsZero():
		return &logbook.InvalidError{Field: "session id", Reason: "unset"}
	case o.PID < 0:
		return &logbook.InvalidError{Field: "session pid", Reason: "negative"}
	case o.TTL != 0 && (o.TTL < MinTTL || o.TTL > MaxTTL):
		return &logbook.InvalidError{
			Field: "session ttl", Reason: fmt.Sprintf("%s is not between %s and %s", o.TTL, MinTTL, MaxTTL),
		}
	}
	if err := l.CheckName("session name", o.Name); err != nil {
		return err
	}
	return CheckOptionalName(l, "session host", o.Host)
}

// CheckEntity checks an entity before it is written. It ignores Session and RegisteredAt,
// which the board sets.
func CheckEntity(l logbook.Limits, e *Entity) error {
	if err := l.CheckName("entity kind", e.Kind); err != nil {
		return err
	}
	if err := l.CheckName("entity name", e.Name); err != nil {
		return err
	}
	if err := CheckOptionalName(l, "entity host", e.Host); err != nil {
		return err
	}
	if err := checkNames(l, "entity boards", e.Boards, MaxBoards, "boards"); err != nil {
		return err
	}
	if err := checkNames(l, "entity kinds", e.JobKinds, MaxKinds, "kinds"); err != nil {
		return err
	}
	if err := checkWords(l, "entity labels", e.Labels, MaxOffered, MaxOfferedBytes); err != nil {
		return err
	}
	switch {
	case e.PID < 0:
		return &logbook.InvalidError{Field: "entity pid", Reason: "negative"}
	case e.MaxJobs < 0:
		return &logbook.InvalidError{Field: "entity max_jobs", Reason: "negative"}
	case e.MaxJobs > MaxClaims:
		return &logbook.LimitError{Field: "entity max_jobs", Limit: MaxClaims, Size: int64(e.MaxJobs), Unit: "jobs"}
	}
	if err := l.CheckValues("entity metadata", e.Metadata); err != nil {
		return err
	}
	size := 0
	for name, value := range e.Metadata {
		size += len(name) + len(value)
	}
	if size > MaxMetadata {
		return &logbook.LimitError{Field: "entity metadata", Limit: MaxMetadata, Size: int64(size), Unit: "bytes"}
	}
	return nil
}

// CheckClaimRequest checks a request for claims before it is written.
func CheckClaimRequest(l logbook.Limits, r *ClaimRequest) error {
	switch {
	case r.Session.IsZero():
		return &logbook.InvalidError{Field: "claim session", Reason: "unset"}
	case r.Nonce.IsZero():
		return &logbook.InvalidError{Field: "claim nonce", Reason: "unset"}
	case r.Max < 0:
		return &logbook.InvalidError{Field: "claim max", Reason: "negative"}
	case r.Max > MaxClaims:
		return &logbook.LimitError{Field: "claim max", Limit: MaxClaims, Size: int64(r.Max), Unit: "claims"}
	case r.Wait < 0:
		return &logbook.InvalidError{Field: "claim wait", Reason: "negative"}
	}
	if r.Expiry != 0 {
		if err := CheckExpiry(r.Expiry); err != nil {
			return err
		}
	}
	if err := checkNames(l, "claim boards", r.Boards, MaxBoards, "boards"); err != nil {
		return err
	}
	if err := checkWords(l, "claim labels", r.Labels, MaxOffered, MaxOfferedBytes); err != nil {
		return err
	}
	return checkNames(l, "claim kinds", r.Kinds, MaxKinds, "kinds")
}

// CheckExpiry checks the TTL of a claim.
func CheckExpiry(expiry time.Duration) error {
	if expiry < MinTTL || expiry > MaxExpiry {
		return &logbook.InvalidError{Field: "claim expiry", Reason: fmt.Sprintf("%s is not between %s and %d days", expiry, MinTTL, MaxExpiry/day)}
	}
	return nil
}

// CheckQuery checks a query for jobs.
func CheckQuery(q *Query) error {
	if len(q.Tags) > MaxTags {
		return &logbook.LimitError{Field: "query tags", Limit: MaxTags, Size: int64(len(q.Tags)), Unit: "tags"}
	}
	others := func(s State) bool { return s != StateClaimable }
	switch {
	case q.Order != OrderPosted && q.Order != OrderNewest && q.Order != OrderClaim:
		return &logbook.InvalidError{Field: "query order", Reason: fmt.Sprintf("%.64q is neither %q nor %q", q.Order, OrderNewest, OrderClaim)}
	case q.Order == OrderClaim && (slices.ContainsFunc(q.States, others) || len(q.Outcomes) > 0):
		return &logbook.InvalidError{Field: "query order", Reason: "only claimable jobs have a place in claim order"}
	}
	return nil
}

// checkWords checks a list of names, and their total size.
func checkWords(l logbook.Limits, field string, words []string, most, bytes int) error {
	if err := checkNames(l, field, words, most, "words"); err != nil {
		return err
	}
	size := 0
	for _, word := range words {
		size += len(word)
	}
	if size > bytes {
		return &logbook.LimitError{Field: field, Limit: int64(bytes), Size: int64(size), Unit: "bytes"}
	}
	return nil
}

// checkNames checks a list of names. It refuses duplicates, so that readers of the list
// need not handle them.
func checkNames(l logbook.Limits, field string, names []string, limit int, unit string) error {
	if len(names) > limit {
		return &logbook.LimitError{Field: field, Limit: int64(limit), Size: int64(len(names)), Unit: unit}
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := l.CheckName(field, name); err != nil {
			return err
		}
		if seen[name] {
			return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf("%q occurs twice", name)}
		}
		seen[name] = true
	}
	return nil
}

// CheckOptionalName checks a name that may be empty.
func CheckOptionalName(l logbook.Limits, field, name string) error {
	if name == "" {
		return nil
	}
	return l.CheckName(field, name)
}
