package jobs

import (
	"context"

	"github.com/conductord/conductord/logbook"
)

// The limits of the signals of one job. A signal over a limit is an ErrSignalsFull.
const (
	// MaxUnreadSignals limits the signals that wait to be taken. A flow that falls further behind does not
	// read them.
	MaxUnreadSignals = 1_000
	// MaxUnreadBytes limits their size together.
	MaxUnreadBytes = 1 << 20
	// MaxSignals limits all signals of a job, because the board remembers each id until the job's record is
	// removed.
	MaxSignals = 10_000
)

// SignalAnswer says what became of a signal.
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
}

// Signaller sends signals to jobs.
type Signaller interface {
	// Signal sends a signal to a job, in any state of the job before its end. If a step of the job's flow
	// waits for a signal of this name, the wait that began first takes the signal in the same log entry, and
	// the job continues. Otherwise the job keeps the signal until a wait takes it. Waits take the signals of
	// one name in the order of the log.
	//
	// Without an ID, the client draws one. A repeat of the same ID changes nothing, also after the job's
	// end, and the answer is SignalRepeated.
	//
	// ErrNotFound. ErrJobOver if the job is finished. ErrSignalsFull at MaxUnreadSignals, MaxUnreadBytes and
	// MaxSignals. ErrInvalid or ErrLimit for a signal that logbook.Limits.CheckSignal refuses.
	Signal(ctx context.Context, job JobID, signal logbook.Signal) (SignalReceipt, error)
}

// SignalCommand is a signal and its job.
type SignalCommand struct {
	Job    JobID
	Signal logbook.Signal
}

// CheckSignalCommand checks a signal before it is written.
func CheckSignalCommand(l logbook.Limits, c *SignalCommand) error {
	if c.Job.IsZero() {
		return &logbook.InvalidError{Field: "signal job", Reason: "unset"}
	}
	return l.CheckSignal(&c.Signal)
}
