package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// MaxQuotas bounds the quotas of a cluster: each node holds them in memory, and a posting is
// held against each one that covers its board.
const MaxQuotas = 1_000

// Quota bounds what a principal, or boards together, may use. A call that would exceed a limit
// is refused with ErrLimit and changes nothing. What existed before the quota stays. When
// several quotas cover a posting, all of them hold, and so do the limits of its board.
type Quota struct {
	Subject
	Limits    Amounts // 0: no limit
	Used      Amounts // set in answers
	UpdatedAt time.Time
	By        string // the principal that changed it last
}

// Subject is what a quota bounds: one of the two is set.
type Subject struct {
	Principal string
	Boards    string // the name of a board, or the beginning of names and "*"
}

// Amounts are the limits of a quota, or what its subject uses.
type Amounts struct {
	Jobs  uint64 // unfinished ones that the principal has posted, or that are on the boards
	Bytes uint64 // of the postings of these; see jobs.Job.Size
	// PostingsPerSecond is a token bucket with the postings of one second: so many may
	// come at once. Of what is used: how many of them are taken now.
	PostingsPerSecond uint64
	Sessions          uint64 // open ones of a principal
	// Watches are the watches and long polls (ClaimNext, WaitJob) of a principal that
	// one node answers. Each node counts its own.
	Watches uint64
}

// Quotas keeps the quotas of a cluster. Each method may be called concurrently; what SaveQuota
// and DeleteQuota have done is durable when they return. An error may also be ErrUnavailable
// or, of these two, ErrUncertain; to repeat a call is harmless.
type Quotas interface {
	// SaveQuota makes a quota, or replaces its limits; the rest of it is the cluster's to
	// set. Its principal or boards need not exist. ErrInvalid; ErrLimit at MaxQuotas.
	SaveQuota(ctx context.Context, q Quota) error
	// DeleteQuota removes a quota, so that its limits no longer hold. ErrInvalid; ErrNotFound, unless a
	// try of this call may have done it.
	DeleteQuota(ctx context.Context, of Subject) error
	// Quotas reads a page of the quotas with what their subjects use: those of boards first,
	// then those of principals, by name. Watches are those that the answering node counts.
	Quotas(ctx context.Context, after string) (logbook.Page[Quota], error)
}

// String is the subject as errors and commands name it.
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
		return &logbook.InvalidError{Field: "quota", Reason: "name a principal or boards, and not both"}
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
		return &logbook.InvalidError{Field: "quota", Reason: "limits nothing; delete a quota that is not wanted"}
	case q.Boards != "" && q.Limits.Sessions > 0:
		return &logbook.InvalidError{Field: "quota sessions", Reason: "boards have no sessions; limit those of a principal"}
	case q.Boards != "" && q.Limits.Watches > 0:
		return &logbook.InvalidError{Field: "quota watches", Reason: "watches are counted by principal; limit those of a principal"}
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

// Covers reports whether boards, as a grant or a quota names them, are or include a board.
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
		return &logbook.InvalidError{Field: field, Reason: fmt.Sprintf("%q has a * before its end; only a prefix of names can be given", boards)}
	}
	return nil
}
