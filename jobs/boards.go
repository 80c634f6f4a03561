package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/logbook"
)

const (
	// MaxKeptBoards bounds the boards of a cluster, because metrics and lists have a line
	// for each board.
	MaxKeptBoards = 10_000
	// MaxBoardRows bounds the kinds, and the holders, in a BoardStatus, so that it fits
	// into one message.
	MaxBoardRows = 1_000
	// MaxBoardLimit is the highest value of a limit. It is in effect no limit.
	MaxBoardLimit = 1 << 50
	// MaxPostingRate is the highest limit of postings per second. A cluster cannot reach
	// it, and it keeps the arithmetic within 64 bits.
	MaxPostingRate = 1_000_000
)

// BoardLimits are the limits of a board. Zero means no limit. Over a limit, the board
// refuses postings, and retries and interventions that reopen a job, with ErrLimit. It
// always accepts a job that its owner releases.
type BoardLimits struct {
	Jobs  uint64 // unfinished jobs
	Bytes uint64 // bytes of the postings of unfinished jobs; see Job.Size
	// PostingsPerSecond is the rate of a token bucket that holds the postings of one second. It
	// allows bursts: all postings of one second can arrive at once.
	PostingsPerSecond uint64
}

// The bounds of BoardAgeing.Step. With a shorter step, ageing would in effect replace
// priority by posting order. A longer step would have no effect.
const (
	MinAgeing = time.Second
	MaxAgeing = 365 * 24 * time.Hour
)

// BoardAgeing raises the priority of a board's waiting jobs. A job gains one step of
// priority for each Step of time since it first became claimable. All waiting jobs gain
// their steps at the same moments, so their order never changes.
type BoardAgeing struct {
	Step  time.Duration // waiting time for one step of priority; 0: no further steps
	Since time.Time     // when Step was set
	Steps int64         // steps before Since, of a job that waited from the start of ageing
}

// Raised returns the steps that a job has gained at a time, if it has waited since ageing
// was first set on its board.
func (a *BoardAgeing) Raised(at time.Time) int64 {
	if a.Step <= 0 {
		return a.Steps
	}
	return a.Steps + max(0, int64(at.Sub(a.Since)/a.Step))
}

// BoardPause is the pause of a board: operator, reason and time.
type BoardPause struct {
	By     string
	Reason string
	At     time.Time
}

// BoardStatus is a board at one moment. A board keeps counters, so reading it costs the
// same for any number of jobs.
type BoardStatus struct {
	Name      string
	CreatedAt time.Time // zero for DefaultBoard before its first job
	Limits    BoardLimits
	Pause     *BoardPause // nil: not paused
	Ageing    BoardAgeing

	Jobs            map[State]uint64 // number of jobs by state, without zeros
	Parked          uint64           // held or suspended jobs that their retry policy has parked
	Bytes           uint64           // bytes of the postings of unfinished jobs
	OldestClaimable time.Time        // when the job that is claimable for longest became claimable; zero: none
	NextDue         time.Time        // earliest due time of delayed, cooling and waiting jobs; zero: none
	Posted          BoardRate
	Finished        BoardRate

	// Only from Boards.BoardStatus, at most MaxBoardRows each.
	Kinds   []BoardKind   // by name
	Holders []BoardHolder // sessions with claims on jobs of the board
	More    bool          // more kinds or holders exist
}

// Unfinished returns the number of unfinished jobs.
func (s *BoardStatus) Unfinished() uint64 {
	var n uint64
	for state, count := range s.Jobs {
		if !state.Finished() {
			n += count
		}
	}
	return n
}

// BoardRate is the number of jobs in the last minute, five minutes and fifteen. They are counted in
// spans of 15 s; a share of the oldest span is included.
type BoardRate struct {
	One     uint64
	Five    uint64
	Fifteen uint64
}

// BoardKind has the numbers of jobs of one kind, by state.
type BoardKind struct {
	Kind string
	Jobs map[State]uint64
}

// BoardHolder is a session with claims on jobs of a board.
type BoardHolder struct {
	Session SessionID
	Owner   string
	Jobs    uint64
}

// BoardCommand is an operator's request to pause or resume a board.
type BoardCommand struct {
	Board  string // empty: DefaultBoard
	By     string // the operator, for display
	Reason string // one sentence, for display
}

// Boards manages boards. An empty name is DefaultBoard, which always exists. For other
// boards that do not exist, methods with a name return ErrNotFound, except CreateBoard. Repeating a
// call is harmless.
type Boards interface {
	// CreateBoard creates a board. Without it, the first job of a board creates the board.
	// An existing board stays unchanged. ErrLimit at MaxKeptBoards.
	CreateBoard(ctx context.Context, name string) error
	// BoardStatus reads a board, with its kinds and holders.
	BoardStatus(ctx context.Context, name string) (BoardStatus, error)
	// BoardList reads a page of up to limit boards, sorted by name, without kinds and
	// holders. after is Page.Next of the previous page, or empty.
	BoardList(ctx context.Context, after string, limit int) (Page[BoardStatus], error)
	// LimitBoard replaces the limits of a board. Existing jobs stay, even over the limits.
	LimitBoard(ctx context.Context, name string, limits BoardLimits) error
	// AgeBoard sets how fast waiting raises the priority of the board's jobs: one step of
	// priority for each step of time. So every job is claimed eventually. For jobs that
	// already wait, the age starts now. A step of 0 ends ageing, and waiting jobs keep the
	// priority that they have reached. ErrInvalid unless step is 0 or between MinAgeing and
	// MaxAgeing.
	AgeBoard(ctx context.Context, name string, step time.Duration) error
	// PauseBoard stops all claims from a board until ResumeBoard, including claims of
	// cancelled jobs that must be undone. Claimed jobs continue, and postings are accepted.
	// Pausing a paused board changes nothing, not even its reason.
	PauseBoard(ctx context.Context, request BoardCommand) error
	// ResumeBoard ends a pause, and wakes waiting ClaimNext calls.
	ResumeBoard(ctx context.Context, request BoardCommand) error
	// DeleteBoard removes a board with its limits and rates. ErrConflict for DefaultBoard,
	// and while the board has schedules or jobs, including finished ones.
	DeleteBoard(ctx context.Context, name string) error
}

// CheckBoardName checks the name of a board. An empty name is DefaultBoard.
func CheckBoardName(l logbook.Limits, name string) error {
	return CheckOptionalName(l, "board", name)
}

// CheckBoardCommand checks a command about a board before it is written.
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

// CheckAgeing checks a step of ageing. 0 means no ageing.
func CheckAgeing(step time.Duration) error {
	if step != 0 && (step < MinAgeing || step > MaxAgeing) {
		return &logbook.InvalidError{Field: "board ageing", Reason: fmt.Sprintf("%s; the interval must be 0 (no ageing), or %s to %s", step, MinAgeing, MaxAgeing)}
	}
	return nil
}
