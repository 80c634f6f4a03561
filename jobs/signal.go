package jobs

import (
	"cmp"
	"context"

	"github.com/conductord/conductord/logbook"
)

// The limits of the signals of one job. A signal over a limit is an ErrSignalsFull.
const (
	// MaxUnreadSignals limits the signals that wait to be taken. A flow with more unread
	// signals probably does not read them.
	MaxUnreadSignals = 1_000
	// MaxUnreadBytes limits their size together.
	MaxUnreadBytes = 1 << 20
	// MaxSignals limits all signals of a job, because the board remembers each id until the job's record is
	// removed.
	MaxSignals = 10_000
)

// SignalAnswer is the effect of a signal.
type SignalAnswer string

// The answers.
const (
	SignalTaken    SignalAnswer = "taken"    // a wait has taken the signal
	SignalKept     SignalAnswer = "kept"     // no step waits for the signal yet; the job keeps it
	SignalRepeated SignalAnswer = "repeated" // the job has received a signal with this id before: nothing changes
)

// SignalAnswers are all answers.
var SignalAnswers = []SignalAnswer{SignalTaken, SignalKept, SignalRepeated}

// SignalReceipt is the durable answer to a signal.
type SignalReceipt struct {
	Answer SignalAnswer
	First  SignalAnswer // only for SignalRepeated: the answer to the first signal with the id
	Job    JobID        // the job that has received the signal
}

// Signaller sends signals to jobs.
type Signaller interface {
	// Signal sends a signal to a job, in any state of the job before its end. If a step of the job's flow
	// waits for a signal of this name, the oldest wait takes the signal in the same log entry, and
	// the job continues. Otherwise the job keeps the signal until a wait takes it. Waits take the signals of
	// one name in the order of the log.
	//
	// Without an ID, the client draws one. A repeat of the same ID changes nothing, even after the job's end, and the
	// answer is SignalRepeated.
	//
	// ErrNotFound. ErrJobOver if the job is finished. ErrSignalsFull at MaxUnreadSignals, MaxUnreadBytes and
	// MaxSignals. ErrInvalid or ErrLimit for a signal that logbook.Limits.CheckSignal refuses.
	Signal(ctx context.Context, job JobID, signal logbook.Signal) (SignalReceipt, error)

	// SignalKey sends a signal to the unfinished job of a board that has a key, as Signal does. An empty board is
	// DefaultBoard. A repeat of an ID that the key's job has received changes nothing, even after the end of that job,
	// when another job has the key. ErrNotFound if no unfinished job has the key.
	SignalKey(ctx context.Context, board, key string, signal logbook.Signal) (SignalReceipt, error)
}

// Sends returns the signal of a posting, with its default id; nil: none.
func (p *Posting) Sends() *logbook.Signal {
	if p.Signal == nil {
		return nil
	}
	signal := *p.Signal
	signal.ID = cmp.Or(signal.ID, p.ID.String())
	return &signal
}

// checkPostingSignal checks the signal of a posting.
func checkPostingSignal(l logbook.Limits, p *Posting) error {
	switch {
	case p.Signal == nil:
		return nil
	case p.Key == "":
		return &logbook.InvalidError{Field: "posting signal", Reason: "set without a key; the key names the job that gets the signal"}
	}
	return l.CheckSignal(p.Sends())
}

// SignalCommand is a signal and its job: Job, or the unfinished job of a board that has a key.
type SignalCommand struct {
	Job        JobID
	Board, Key string
	Signal     logbook.Signal
}

// CheckSignalCommand checks a signal before it is written.
func CheckSignalCommand(l logbook.Limits, c *SignalCommand) error {
	switch {
	case c.Job.IsZero() && c.Key == "":
		return &logbook.InvalidError{Field: "signal job", Reason: "unset; name a job, or a board and a key"}
	case !c.Job.IsZero() && (c.Key != "" || c.Board != ""):
		return &logbook.InvalidError{Field: "signal key", Reason: "set together with a board or key; name either a job, or a board and a key"}
	}
	if err := CheckOptionalName(l, "signal board", c.Board); err != nil {
		return err
	}
	if err := CheckOptionalName(l, "signal key", c.Key); err != nil {
		return err
	}
	return l.CheckSignal(&c.Signal)
}
