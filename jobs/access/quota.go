package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// MaxQuotas bounds the quotas of a cluster. Each node keeps them in memory, and checks a posting
// against each quota that covers its board.
const MaxQuotas = 1_000

// Quota limits one principal, or several boards together. A call that would exceed a limit is
// refused with ErrLimit and changes nothing. Existing jobs and sessions stay. A posting must
// respect all quotas that cover it, and the limits of its board.
type Quota struct {
	Subject
	Limits    Amounts // 0: no limit
	Used      Amounts // the current use; only in answers
	UpdatedAt time.Time
	By        string // the principal that changed it last
}

// Subject is the subject of a quota. Exactly one of the fields is set.
type Subject struct {
	Principal string
	Boards    string // a board's name, or a prefix and "*"
}

// Amounts are the limits of a quota, or its current use.
type Amounts struct {
	Jobs  uint64 // unfinished jobs, posted by the principal or on the boards
	Bytes uint64 // bytes of the postings of these jobs; see jobs.Job.Size
	// PostingsPerSecond is the rate of a token bucket that holds the postings of one second.
	// It allows bursts: all postings of one second can arrive at once. As a use: the postings
	// taken from the bucket.
	PostingsPerSecond uint64
	Sessions          uint64 // open sessions; only for a principal
	// Watches are the watches and long polls (ClaimNext, WaitJob, WaitStep) at one node; only for a
	// principal. Each node counts its own.
	Watches uint64
}

// Quotas keeps the quotas of a cluster. Methods may be called concurrently. Changes are durable
// when a method returns. Any method can return ErrUnavailable, and SaveQuota and DeleteQuota can
// return ErrUncertain. Repeating a call is harmless.
type Quotas interface {
	// SaveQuota creates a quota, or replaces its limits. It ignores all fields but Subject and
	// Limits. The principal or the boards need not exist. ErrInvalid; ErrLimit at MaxQuotas.
	SaveQuota(ctx context.Context, q Quota) error
	// DeleteQuota removes a quota with its limits. ErrInvalid; ErrNotFound, unless an earlier
	// attempt of this call may have removed the quota.
	DeleteQuota(ctx context.Context, of Subject) error
	// Quotas reads a page of quotas with their use: quotas of boards, then quotas of
	// principals, each by name. Used.Watches counts the watches of the answering node. after is
	// Page.Next of the previous page; empty: the first page.
	Quotas(ctx context.Context, after string) (logbook.Page[Quota], error)
}

// String returns the subject as errors and commands name it.
func (s Subject) String() string {
	if s.Principal != "" {
		return fmt.Sprintf("principal %q", s.Principal)
	}
	return fmt.Sprintf("boards %q", s.Boards)
}

// CheckSubject checks the subject of a quota.
func CheckSubject(l logbook.Limits, s Subject) error {
	switch {
	case (s.Principal == "") == (s.Boards == ""):
		return &logbook.InvalidError{Field: "quota", Reason: "name either a principal or boards"}
	case s.Principal != "":
		return CheckName(l, s.Principal)
	}
	return checkBoards(l, "quota boards", s.Boards)
}

// CheckQuota checks a quota before it is saved.
func CheckQuota(l logbook.Limits, q *Quota) error {
	if err := CheckSubject(l, q.Subject); err != nil {
		return err
	}
	switch {
	case q.Limits == Amounts{}:
		return &logbook.InvalidError{Field: "quota", Reason: "limits nothing; to remove the quota, delete it"}
	case q.Boards != "" && q.Limits.Sessions > 0:
		return &logbook.InvalidError{Field: "quota sessions", Reason: "boards have no sessions; limit the sessions of a principal"}
	case q.Boards != "" && q.Limits.Watches > 0:
		return &logbook.InvalidError{Field: "quota watches", Reason: "watches are counted by principal; limit the watches of a principal"}
	}
	for _, limit := range []struct {
		name       string
		said, most uint64
		unit       string
	}{
		{"jobs", q.Limits.Jobs, jobs.MaxBoardLimit, "jobs"},
		{"bytes", q.Limits.Bytes, jobs.MaxBoardLimit, "bytes"},
		{"postings_per_second", q.Limits.PostingsPerSecond, jobs.MaxPostingRate, "postings"},
		{"sessions", q.Limits.Sessions, jobs.MaxBoardLimit, "sessions"},
		{"watches", q.Limits.Watches, jobs.MaxBoardLimit, "watches"},
	} {
		if limit.said > limit.most {
			return &logbook.LimitError{Field: "quota " + limit.name, Limit: int64(limit.most), Size: int64(min(limit.said, 1<<62)), Unit: limit.unit}
		}
	}
	return nil
}

// Covers reports whether the pattern boards, of a grant or a quota, matches a board.
func Covers(boards, board string) bool {
	if prefix, isPrefix := strings.CutSuffix(boards, "*"); isPrefix {
		return strings.HasPrefix(board, prefix)
	}
	return board == boards
}

func checkBoards(l logbook.Limits, field, boards string) error {
	if err := l.CheckName(field, boards); err != nil {
		return err
	}
	if strings.Contains(strings.TrimSuffix(boards, "*"), "*") {
		return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf("%q has a * before its end; a * is allowed only at the end, after a prefix of names", boards)}
	}
	return nil
}
