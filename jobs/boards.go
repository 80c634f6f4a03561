package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// MaxKeptBoards bounds the boards of a cluster: metrics and listings have a
	// line for each.
	MaxKeptBoards = 10_000
	// MaxBoardRows bounds the kinds, and the holders, with which one board is
	// shown, so that the answer stays one message.
	MaxBoardRows = 1_000
	// MaxBoardLimit bounds what a limit may say: as much as none.
	MaxBoardLimit = 1 << 50
	// MaxPostingRate bounds a limit of postings a second. It is far more than a
	// cluster takes, and keeps the arithmetic within 64 bits.
	MaxPostingRate = 1_000_000
)

// BoardLimits bound a board; zero means no limit. A posting over a limit is refused
// with ErrLimit, and so is a job that is restored or reopened. A job that its owner
// releases is not.
type BoardLimits struct {
	Jobs  uint64 // unfinished ones
	Bytes uint64 // of the postings of unfinished ones; see Job.Size
	// PostingsPerSecond is a token bucket with the postings of one second: so many may
	// come at once.
	PostingsPerSecond uint64
}

// The bounds of a step of ageing: shorter ones would say no more than that the
// order of posting counts, longer ones nothing.
const (
	MinAgeing = time.Second
	MaxAgeing = 365 * 24 * time.Hour
)

// BoardAgeing is how waiting raises the priority of a board's jobs. All that
// wait are raised at the same moments, so that their order never changes, and a
// job's place is known when it becomes claimable: it is raised by the steps that
// have been since then. Its age counts from when it first was claimable.
type BoardAgeing struct {
	Step  time.Duration // of waiting for one step of priority; 0: waiting raises nothing any more
	Since time.Time     // when that was said
	Steps int64         // by which a job that has waited from the beginning was raised until then
}

// Raised is by how many steps a job is raised that has waited from the
// beginning, which is when its board was told to age jobs first.
func (a *BoardAgeing) Raised(at time.Time) int64 {
	if a.Step <= 0 {
		return a.Steps
	}
	return a.Steps + max(0, int64(at.Sub(a.Since)/a.Step))
}

// BoardPause says who has paused a board, why and since when.
type BoardPause struct {
	By     string
	Reason string
	At     time.Time
}

// BoardStatus is a board as it stands at one moment. All of it was counted when
// it happened: reading it costs the same however many jobs there are.
type BoardStatus struct {
	Name      string
	CreatedAt time.Time // zero of the default board before its first job
	Limits    BoardLimits
	Pause     *BoardPause // nil: jobs can be claimed
	Ageing    BoardAgeing

	Jobs            map[State]uint64 // by state, where there are any
	Parked          uint64           // of those held or suspended, the ones that their retry policy has parked
	Bytes           uint64           // of the postings of unfinished jobs
	OldestClaimable time.Time
	NextDue         time.Time // of delayed and cooling jobs
	Posted          BoardRate
	Finished        BoardRate

	// Of a board that is read alone, at most MaxBoardRows each.
	Kinds   []BoardKind   // by name
	Holders []BoardHolder // sessions that have claimed jobs of it
	More    bool          // there are more kinds or holders
}

// Unfinished is how many jobs of the board are not finished.
func (s *BoardStatus) Unfinished() uint64 {
	var n uint64
	for state, count := range s.Jobs {
		if !state.Finished() {
			n += count
		}
	}
	return n
}

// BoardRate is the number of jobs in the last minute, five minutes and fifteen. They
// are counted in spans of 15 s; the oldest span counts in part.
type BoardRate struct {
	One     uint64
	Five    uint64
	Fifteen uint64
}

// BoardKind are the jobs of one kind, by state.
type BoardKind struct {
	Kind string
	Jobs map[State]uint64
}

// BoardHolder is a session that has claimed jobs of a board.
type BoardHolder struct {
	Session SessionID
	Owner   string
	Jobs    uint64
}

// BoardCommand is how a person pauses or resumes a board.
type BoardCommand struct {
	Board  string // empty: DefaultBoard
	By     string // who, for people
	Reason string // one sentence, for people
}

// Boards looks after the boards themselves. An empty name is DefaultBoard,
// which always exists. To repeat a call is harmless.
type Boards interface {
	// CreateBoard makes a board before the first job is posted to it, which
	// makes it otherwise. One that exists stays as it is. ErrLimit at
	// MaxKeptBoards.
	CreateBoard(ctx context.Context, name string) error
	// BoardStatus reads a board, with its kinds and holders. ErrNotFound.
	BoardStatus(ctx context.Context, name string) (BoardStatus, error)
	// BoardList reads a page of up to limit boards by name, without kinds and
	// holders. after is Page.Next of the page before.
	BoardList(ctx context.Context, after string, limit int) (Page[BoardStatus], error)
	// LimitBoard replaces the limits of a board. Jobs that are over them
	// already stay. ErrNotFound.
	LimitBoard(ctx context.Context, name string, limits BoardLimits) error
	// AgeBoard has a job of the board that waits to be claimed count as one step
	// of priority higher for each step of time that it has waited: so nothing
	// waits for ever. Jobs that wait already count from now on. A step of 0 ends
	// that: what waits keeps what it has reached. ErrNotFound; ErrInvalid unless
	// the step is 0 or between MinAgeing and MaxAgeing.
	AgeBoard(ctx context.Context, name string, step time.Duration) error
	// PauseBoard keeps everybody from claiming jobs of the board, those that are
	// cancelled and to be undone too, until it is resumed. Jobs that are claimed
	// go on, and postings are accepted. A board that is paused already stays so,
	// with its reason. ErrNotFound.
	PauseBoard(ctx context.Context, request BoardCommand) error
	// ResumeBoard ends a pause, and wakes callers that wait for jobs. ErrNotFound.
	ResumeBoard(ctx context.Context, request BoardCommand) error
	// DeleteBoard forgets a board with its limits and rates. ErrNotFound;
	// ErrConflict while it has jobs, kept finished ones too, or schedules, and
	// for DefaultBoard.
	DeleteBoard(ctx context.Context, name string) error
}

// CheckBoardName checks the name of a board; an empty one is DefaultBoard.
func CheckBoardName(l logbook.Limits, name string) error {
	return CheckOptionalName(l, "board", name)
}

// CheckBoardCommand checks what a person says about a board.
func CheckBoardCommand(l logbook.Limits, o *BoardCommand) error {
	if err := CheckBoardName(l, o.Board); err != nil {
		return err
	}
	return checkSaid(l, "board", o.By, o.Reason)
}

// CheckBoardLimits checks the limits of a board.
func CheckBoardLimits(limits *BoardLimits) error {
	for _, limit := range []struct {
		name       string
		said, most uint64
		unit       string
	}{
		{"jobs", limits.Jobs, MaxBoardLimit, "jobs"},
		{"bytes", limits.Bytes, MaxBoardLimit, "bytes"},
		{"postings_per_second", limits.PostingsPerSecond, MaxPostingRate, "postings"},
	} {
		if limit.said > limit.most {
			return &logbook.LimitError{Field: "board " + limit.name, Limit: int64(limit.most), Size: int64(min(limit.said, 1<<62)), Unit: limit.unit}
		}
	}
	return nil
}

// CheckAgeing checks a step of ageing; 0 is none.
func CheckAgeing(step time.Duration) error {
	if step != 0 && (step < MinAgeing || step > MaxAgeing) {
		return &logbook.InvalidError{Field: "board ageing", Reason: fmt.Sprintf("%s; a step of priority is 0, for none, or takes %s to %s", step, MinAgeing, MaxAgeing)}
	}
	return nil
}
