package logbook

import (
	"fmt"
	"math/bits"
	"time"
)

// Backoff is the number of attempts and the delays between them, for a step or a job. For the
// rounds of a flow, only the delays apply. The zero value tries once.
type Backoff struct {
	Attempts int           // maximum attempts; 0 and 1: one
	Delay    time.Duration // before the second attempt
	// BackoffPercent is the length of each further delay, as a percentage of the previous
	// delay; 0: 100.
	BackoffPercent int
	MaxDelay       time.Duration // longest delay; 0: DefaultMaxDelay, or Delay if that is longer
	// JitterPercent is the random share of a delay, so that work that failed together is
	// not retried together. 20 turns 10 s into 8 s to 10 s.
	JitterPercent int
}

const (
	// MaxAttempts bounds the attempts, because each leaves a record: see KeptAttempts.
	MaxAttempts = 100
	// DefaultMaxDelay bounds growing delays. A step that waits longer looks stuck.
	DefaultMaxDelay = 5 * time.Minute
	// MaxDelay bounds every delay.
	MaxDelay = 365 * 24 * time.Hour
	// MaxBackoffPercent bounds how fast delays grow. With MaxDelay it keeps Longest
	// from overflowing.
	MaxBackoffPercent = 10_000
)

// Check checks the bounds of all fields. ErrInvalid or ErrLimit, with a field that starts with
// the given owner of the policy.
func (b Backoff) Check(owner string) error {
	longest := b.MaxDelay
	switch {
	case b.Attempts < 0:
		return &InvalidError{owner + " attempts", "negative"}
	case b.Attempts > MaxAttempts:
		return &LimitError{owner + " attempts", MaxAttempts, int64(b.Attempts), "attempts"}
	case b.Delay < 0 || b.Delay > MaxDelay:
		return &InvalidError{owner + " delay", fmt.Sprintf("%s is not between 0s and %s", b.Delay, MaxDelay)}
	case longest < 0 || longest > MaxDelay:
		return &InvalidError{owner + " max_delay", fmt.Sprintf("%s is not between 0s and %s", longest, MaxDelay)}
	case longest != 0 && longest < b.Delay:
		return &InvalidError{owner + " max_delay", fmt.Sprintf("%s is shorter than the first delay, %s", longest, b.Delay)}
	case b.BackoffPercent != 0 && b.BackoffPercent < 100:
		return &InvalidError{owner + " backoff_percent", fmt.Sprintf("%d is below 100", b.BackoffPercent)}
	case b.BackoffPercent > MaxBackoffPercent:
		return &LimitError{owner + " backoff_percent", MaxBackoffPercent, int64(b.BackoffPercent), "percent"}
	case b.JitterPercent < 0 || b.JitterPercent > 100:
		return &InvalidError{owner + " jitter_percent", fmt.Sprintf("%d is not between 0 and 100", b.JitterPercent)}
	}
	return nil
}

// Tries returns the maximum number of attempts.
func (b Backoff) Tries() int { return max(b.Attempts, 1) }

// Longest returns the delay after the given number of failures, without jitter. It ignores
// Attempts.
func (b Backoff) Longest(failures int) time.Duration {
	longest, delay := b.MaxDelay, b.Delay
	switch {
	case failures < 1:
		return 0
	case longest == 0:
		longest = max(DefaultMaxDelay, delay)
	}
	if b.BackoffPercent > 100 {
		for ; failures > 1 && delay > 0 && delay < longest; failures-- {
			delay = delay / 100 * time.Duration(b.BackoffPercent)
		}
	}
	return min(delay, longest)
}

// Wait returns Longest, shortened by the jitter. chance is a random number from the full range of
// uint64.
func (b Backoff) Wait(failures int, chance uint64) time.Duration {
	delay := b.Longest(failures)
	cut, _ := bits.Mul64(uint64(delay/100*time.Duration(b.JitterPercent)), chance)
	return delay - time.Duration(cut)
}
